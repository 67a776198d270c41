-- The counters of one tenant in Valkey or Redis. One call is one step: nobody sees half of it.
--
-- KEYS: three per scope (a key, its tenant): state, leases, holds. All carry the tenant as their hash tag, so that a cluster keeps
-- them on one node.  ARGV: the verb, its payload as JSON, the time in milliseconds ("" takes the server's, the same for every process).
--
--   state   hash   window   packed list of {second, requests, tokens}: what tenants/limits/window.py describes
--                  running, tokens, cost     sums over the holds
--                  day, day_tokens, day_cost, month_tokens, month_cost, told     what the ledger has settled, and when it was told
--   leases  zset   request id -> when its hold ends unless it is renewed
--   holds   hash   request id -> packed {second, tokens, cost, running}
--
-- The rules are those of tenants/limits/local.py, and the tests hold the two against each other.

local SECONDS = 60
local TTL = 3600 -- of an idle scope; budgets are told again by the ledger
local SPENT = {'day_tokens', 'day_cost', 'month_tokens', 'month_cost'}

local verb, payload = ARGV[1], cjson.decode(ARGV[2])
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local second = math.floor(now / 1000)

-- One scope ------------------------------------------------------------------------------------------------------------------------

local function counts(tick) return math.abs(second - tick) <= SECONDS end

local function load(index)
  local base = (index - 1) * 3
  local scope = {state = KEYS[base + 1], leases = KEYS[base + 2], holds = KEYS[base + 3]}
  local flat = redis.call('HGETALL', scope.state)
  for i = 1, #flat, 2 do scope[flat[i]] = flat[i + 1] end
  for _, name in ipairs({'running', 'tokens', 'cost', 'told', unpack(SPENT)}) do scope[name] = tonumber(scope[name] or 0) end
  scope.buckets = {}
  for _, bucket in ipairs(scope.window and cmsgpack.unpack(scope.window) or {}) do
    if counts(bucket[1]) then table.insert(scope.buckets, bucket) end
  end
  return scope
end

local function save(scope)
  table.sort(scope.buckets, function(a, b) return a[1] < b[1] end)
  local fields = {'window', cmsgpack.pack(scope.buckets)}
  for _, name in ipairs({'running', 'tokens', 'cost', 'told', 'day', unpack(SPENT)}) do
    if scope[name] then
      table.insert(fields, name)
      table.insert(fields, type(scope[name]) == 'number' and string.format('%.0f', scope[name]) or scope[name])
    end
  end
  redis.call('HSET', scope.state, unpack(fields))
  for _, key in ipairs({scope.state, scope.leases, scope.holds}) do redis.call('EXPIRE', key, TTL) end
end

local function add(scope, tick, requests, tokens)
  if not counts(tick) then return end
  for _, bucket in ipairs(scope.buckets) do
    if bucket[1] == tick then
      bucket[2], bucket[3] = bucket[2] + requests, bucket[3] + tokens
      return
    end
  end
  table.insert(scope.buckets, {tick, requests, tokens})
end

local function used(scope, column)
  local sum = 0
  for _, bucket in ipairs(scope.buckets) do sum = sum + bucket[column] end
  return sum
end

local function reset(scope)
  local newest = 0
  for _, bucket in ipairs(scope.buckets) do newest = math.max(newest, bucket[1]) end
  return newest == 0 and 0 or (newest + SECONDS + 1) * 1000 - now
end

-- Milliseconds until so many of the oldest have left that `excess` is gone.
local function wait(scope, column, excess)
  table.sort(scope.buckets, function(a, b) return a[1] < b[1] end)
  for _, bucket in ipairs(scope.buckets) do
    excess = excess - bucket[column]
    if excess <= 0 then return (bucket[1] + SECONDS + 1) * 1000 - now end
  end
  return reset(scope)
end

-- Holds ----------------------------------------------------------------------------------------------------------------------------

local function held(scope, id)
  local packed = redis.call('HGET', scope.holds, id)
  return packed and cmsgpack.unpack(packed)
end

local function tally(scope, hold, sign)
  scope.tokens = scope.tokens + sign * hold[2]
  scope.cost = scope.cost + sign * hold[3]
  scope.running = scope.running + sign * hold[4]
end

-- Take, or correct what was taken: the window moves by the difference.
local function place(scope, id, hold)
  local known = held(scope, id)
  if known then
    tally(scope, known, -1)
    add(scope, hold[1], 0, hold[2] - known[2])
  else
    add(scope, hold[1], 1, hold[2])
  end
  tally(scope, hold, 1)
  redis.call('HSET', scope.holds, id, cmsgpack.pack(hold))
  redis.call('ZADD', scope.leases, now + payload.lease, id)
end

local function give_back(scope, id)
  local known = held(scope, id)
  if known then tally(scope, known, -1) end
  redis.call('HDEL', scope.holds, id)
  redis.call('ZREM', scope.leases, id)
end

local function end_leases(scope)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', scope.leases, '-inf', now)) do give_back(scope, id) end
end

-- Budgets --------------------------------------------------------------------------------------------------------------------------

-- Settled sums only grow within a period, so the largest number is the newest; an older day than the one known says nothing.
local function tell(scope, told)
  if scope.day and told.day < scope.day then return end
  local same = {day = scope.day == told.day, month = scope.day and string.sub(scope.day, 1, 7) == string.sub(told.day, 1, 7)}
  for _, name in ipairs(SPENT) do
    local period = string.match(name, '^%a+')
    scope[name] = math.max(told[name], same[period] and scope[name] or 0)
  end
  scope.day, scope.told = told.day, now
end

local function stale(scope, order)
  return scope.day ~= order.day or now - scope.told > payload.fresh
end

local function budgeted(bounds)
  return bounds.tokens_per_day or bounds.tokens_per_month or bounds.cost_per_day or bounds.cost_per_month
end

-- Verbs ----------------------------------------------------------------------------------------------------------------------------

local function refusals(scope, bounds, order)
  local found = {}
  local function refuse(limit, milliseconds)
    table.insert(found, limit)
    table.insert(found, milliseconds)
  end
  local rpm, tpm = bounds.requests_per_minute, bounds.tokens_per_minute
  local requests, tokens = used(scope, 2) + 1, used(scope, 3) + order.tokens
  if rpm and requests > rpm then refuse('requests', wait(scope, 2, requests - rpm)) end
  if tpm and tokens > tpm then refuse('tokens', wait(scope, 3, tokens - tpm)) end
  if bounds.concurrency and scope.running + 1 > bounds.concurrency then refuse('concurrency', payload.slot) end
  if scope.day then
    for _, name in ipairs(SPENT) do
      local period, what = string.match(name, '^(%a+)_(%a+)$')
      local limit = what .. '_per_' .. period
      if bounds[limit] and scope[name] + scope[what] + order[what] > bounds[limit] then refuse(limit, 0) end
    end
  end
  return found
end

local verbs = {}

-- Returns {"granted" | "refused" | "stale", second, {limit, ms, ...} per scope, {requests, tokens, reset ms} per scope}.
function verbs.admit(scopes)
  local order, refused, repeated, lists, readings = payload.order, false, false, {}, {}
  local told = payload.spent ~= cjson.null
  for i, scope in ipairs(scopes) do
    if told then tell(scope, payload.spent[i]) end
    repeated = repeated or held(scope, order.id)
    if not told and budgeted(payload.bounds[i]) and stale(scope, order) then return {'stale', second, {}, {}} end
  end
  for i, scope in ipairs(scopes) do
    lists[i] = repeated and {} or refusals(scope, payload.bounds[i], order)
    refused = refused or #lists[i] > 0
  end
  for i, scope in ipairs(scopes) do
    if not refused and not repeated then place(scope, order.id, {second, order.tokens, order.cost, 1}) end
    readings[i] = {used(scope, 2), used(scope, 3), reset(scope)}
  end
  return {refused and 'refused' or 'granted', second, lists, readings}
end

function verbs.put(scopes)
  for _, scope in ipairs(scopes) do
    for _, request in ipairs(payload.holds[scope.state]) do place(scope, request.id, request.hold) end
  end
end

function verbs.drop(scopes)
  for _, scope in ipairs(scopes) do
    for _, id in ipairs(payload.ids[scope.state] or {}) do give_back(scope, id) end
    local told = payload.spent[scope.state]
    if told then tell(scope, told) end
  end
end

local scopes = {}
for i = 1, #KEYS / 3 do
  scopes[i] = load(i)
  end_leases(scopes[i])
end
local answer = verbs[verb](scopes)
for _, scope in ipairs(scopes) do save(scope) end
return answer

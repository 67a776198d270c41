#!/usr/bin/env python3
"""Run the black-box cases of the pipeline contract against running servers; one function per case, named by its id.

    run_cases.py [--only GLOB] [--vllm | --scripted-vllm] [-v] TARGET=URL[,KEY] ...

KEY is sent as a bearer token. A case whose target is not given is skipped and counted. Targets (quote the `!`):

    R    render, derender, tokenizer t1, no parsers        R!   the same with the flag return_tokens_as_token_ids on
    R2   tokenizer t2                                      RP   t1, hermes + deepseek_r1, auto tool choice (RP2: a second process)
    RD   RP with default chat template kwargs {"open_think": true}
    L3 MI QX   t1 with llama3_json / mistral / qwen3_xml (QX also the qwen3 reasoning parser), auto tool choice
    RK   like R, needs its KEY (default: R, if R has a key)      NS   scale-out endpoints off
    G G! GP    generate, like R / R! / RP, scripted engine       GT   tokens-only generate node
    C C! CP    coupled endpoints, scripted engine (default: G G! GP)
    GO   a generate node older than the override key             GB RB   the same URLs as G and R with another tenant's key
    RT   R for a tenant whose default for the flag is on         RT!  R! for a tenant whose default is off

A9d is the half of A9 that needs RD. All servers: --max-model-len 512, --served-model-name m, --max-logprobs 20. For the product,
R and G may be one platform URL.

--vllm expects vLLM 0.32.0's answers where ours differ on purpose, and skips what is newer (NEW), corrected (OURS) or scripted;
--scripted-vllm is --vllm for servers that replay extra_args.script by a plug-in, so that scripted cases run too (vllm_xargs holds
no objects in vLLM, so the script travels there as JSON text).
Exit status 1 when a case fails. Needs httpx.
"""
import argparse
import fnmatch
import json
import math
import re
import sys
import time

import httpx

# ---------------------------------------------------------------------------------------------------- helper layer

ABSENT = object()                       # a key that is not sent
NEW, OURS = "new", "ours"  # newer than 0.32.0; corrected on purpose
SCRIPTED = "scripted"                   # needs the scripted engine
CASES, TARGETS = {}, {}
VLLM = SCRIPTED_VLLM = False
problems = []                           # of the case that runs


class Skip(Exception):
    """The case needs something that was not given, a target mostly."""


def case(*marks):
    def register(function):
        CASES[function.__name__] = (function, set(marks))
        return function
    return register


def short(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else text[:300] + "..."


def equal(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=0, abs_tol=1e-6)  # a logprob may have been a float32
    return a == b


def same(what, got, want):
    if not equal(got, want):
        problems.append(f"{what}: expected {short(want)}, got {short(got)}")


def has(what, got, want):
    """`got` is an object with at least the keys of `want`, with these values."""
    if not isinstance(got, dict):
        return problems.append(f"{what}: expected an object, got {short(got)}")
    for key, value in want.items():
        same(f"{what}.{key}", got.get(key, "<absent>"), value)


def true(what, condition, got=""):
    if not condition:
        problems.append(f"{what}: not so" + (f", got {short(got)}" if got != "" else ""))


def matches(what, got, pattern):
    true(f"{what} matches {pattern}", isinstance(got, str) and re.fullmatch(pattern, got), got)


def ours(product, vllm):
    """A deliberate divergence: the product's answer, or vLLM's with --vllm."""
    return vllm if VLLM else product


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.text = response.status_code, response.headers, response.text
        try:
            self.body = json.loads(self.text, parse_constant=lambda name: problems.append(f"body holds {name}: not JSON"))
        except ValueError:
            self.body = None

    def ok(self, what=""):
        """The body of a 200; anything else ends the case."""
        if self.status != 200:
            raise AssertionError(f"{what} expected 200, got {self.status} {short(self.text)}".strip())
        return self.body

    def choice(self, index=0):
        return self.ok()["choices"][index]

    def refused(self, what, status=400, says=(), **fields):
        """The error envelope, with these words in its message and these fields."""
        error = (self.body or {}).get("error") if isinstance(self.body, dict) else None
        if self.status != status or not isinstance(error, dict):
            problems.append(f"{what}: expected {status} with an error object, got {self.status} {short(self.text)}")
            return
        if not VLLM:
            same(f"{what}: keys of error", sorted(error), ["code", "message", "param", "type"])
        same(f"{what}: code", error.get("code"), status)
        for word in (says,) if isinstance(says, str) else says:
            true(f"{what}: message contains {word!r}", word in error["message"], error["message"])
        has(what, error, fields)


class Node:
    def __init__(self, url, key):
        self.key = key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60)

    def post(self, path, body, **headers):
        content = body if isinstance(body, (str, bytes)) else json.dumps(drop(body)).encode()
        headers = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return Answer(self.client.post(path, content=content, headers=headers))

    def events(self, path, body, **headers):
        """All events of an SSE answer; the last one is the string [DONE]."""
        with self.open(path, body, **headers) as response:
            return list(sse(response))

    def open(self, path, body, **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        return self.client.stream("POST", path, json=drop({**body, "stream": True}), headers=headers)


def sse(response):
    if response.status_code != 200:
        response.read()
        raise AssertionError(f"expected a stream, got {response.status_code} {short(response.text)}")
    for line in response.iter_lines():
        if line.startswith("data:"):
            data = line[5:].strip()
            yield data if data == "[DONE]" else json.loads(data)


def node(name):
    if name not in TARGETS and name[0] == "C":
        name = name.replace("C", "G")
    if name not in TARGETS:
        raise Skip(f"target {name}")
    return TARGETS[name]


def drop(value):
    """Without the keys whose value is ABSENT."""
    if isinstance(value, dict):
        return {k: drop(v) for k, v in value.items() if v is not ABSENT}
    return [drop(v) for v in value] if isinstance(value, (list, tuple)) else value


# ---- values the cases share

def B(text):
    return list(text.encode())


HI = [{"role": "user", "content": "Hi"}]
P1 = [257, *B("user\nHi"), 258, 10, 257, *B("assistant\n")]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def call_ids(city="Paris", close=True):
    return [261, *B('\n{"name": "get_weather", "arguments": {"city": "%s"}}\n' % city)] + [262] * close


W = call_ids()
E4_IDS = [*B("r"), 260, *W]
OVERRIDES = {"absent": ABSENT, "null": None, "true": True, "false": False}


def matrix(plain, flagged, overrides=OVERRIDES):
    """(label, node, override, placeholders expected) over flag x override."""
    for name, flag in ((plain, False), (flagged, True)):
        for label, override in overrides.items():
            yield f"{name} override {label}", node(name), override, override if isinstance(override, bool) else flag


def derender_matrix():
    """The same for /derender, which ignores flag and override in 0.32.0."""
    for label, to, override, placeholders in matrix("R", "R!"):
        yield label, to, override, ours(placeholders, False)


def chat_request(**fields):
    return {"messages": HI, **fields}


def tool_request(**fields):
    return {"messages": HI, "tools": TOOLS, "tool_choice": "auto", **fields}


# ---- derender, whole and chunk by chunk

def generated(ids, lps=None, index=0, finish="stop", **fields):
    return {"index": index, "token_ids": ids, "finish_reason": finish, "logprobs": ABSENT if lps is None else lps, **fields}


def response(*choices, **fields):
    return {"request_id": "r", "choices": list(choices), **fields}


CHAT, TEXT = "/v1/chat/completions/derender", "/v1/completions/derender"


def derender(to, ids, lps=None, request=ABSENT, finish="stop", **fields):
    """DC of the case list: the chat answer for one choice."""
    return to.post(CHAT, {"generate_response": response(generated(ids, lps, finish=finish)), "chat_request": request, **fields})


def derender_text(to, ids, lps=None, request=ABSENT, **fields):
    """DT of the case list."""
    return to.post(TEXT, {"generate_responses": [response(generated(ids, lps))], "completion_request": request, **fields})


def chunk_call(to, ids, state=None, lps=None, request=ABSENT, finish=None, path=CHAT, index=0, usage=ABSENT, chunk=ABSENT, **fields):
    """One streaming derender call (SC, ST)."""
    kind = "chat_request" if path == CHAT else "completion_request"
    piece = response(generated(ids, lps, index, finish), usage=usage) if chunk is ABSENT else chunk
    return to.post(path, {"stream": True, "generate_chunk": piece, "stream_state": state, kind: request, **fields})


def chunked(to, pieces, lps=None, finish="stop", **fields):
    """All calls of a stream, in order; `to` may be a list of nodes that take turns. Returns the answers' bodies."""
    nodes, state, bodies, at = to if isinstance(to, list) else [to], None, [], 0
    for number, ids in enumerate(pieces):
        part = None if lps is None else {"content": lps["content"][at:at + len(ids)]}
        last = number == len(pieces) - 1
        body = chunk_call(nodes[number % len(nodes)], ids, state, part, finish=finish if last else None, **fields).ok(f"call {number}")
        bodies.append(body)
        state, at = body["stream_state"], at + len(ids)
    return bodies


def pieces_of(ids, size):
    return [ids[i:i + size] for i in range(0, len(ids), size)]


def chunkings(ids):
    return {"whole": [ids], "singles": pieces_of(ids, 1), "threes": pieces_of(ids, 3)}


def assemble(chunks):
    """Fold stream chunks into one message per index: {index: {content, reasoning, tools, finish, ...}}."""
    folded = {}
    for part in (choice for chunk in chunks for choice in chunk["choices"]):
        delta = part.get("delta") or {}
        to = folded.setdefault(part["index"], {"roles": 0, "content": "", "reasoning": "", "tools": {}, "finish": None,
                                               "stop_reason": None, "entries": [], "ids": []})
        to["roles"] += delta.get("role") == "assistant"
        to["content"] += part.get("text") or delta.get("content") or ""
        to["reasoning"] += delta.get("reasoning") or ""
        to["finish"] = part.get("finish_reason") or to["finish"]
        to["stop_reason"] = part.get("stop_reason") or to["stop_reason"]
        to["entries"] += (part.get("logprobs") or {}).get("content") or []
        to["ids"] += part.get("token_ids") or []
        for tool in delta.get("tool_calls") or []:
            call = to["tools"].setdefault(tool["index"], {"ids": [], "name": "", "arguments": ""})
            call["ids"] += [tool["id"]] if tool.get("id") else []
            call["name"] += (tool.get("function") or {}).get("name") or ""
            call["arguments"] += (tool.get("function") or {}).get("arguments") or ""
    return folded


def streamed(to, pieces, **fields):
    return assemble(body["chunk"] for body in chunked(to, pieces, **fields))[0]


def calls_of(message):
    """[(name, arguments as an object)] of a message or of an assembled stream."""
    tools = message["tools"].values() if "tools" in message else [t["function"] for t in message.get("tool_calls") or []]
    return [[t["name"], as_json(t["arguments"])] for t in tools]


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return f"not JSON: {text}"


PARIS = ["get_weather", {"city": "Paris"}]


# ---- logprobs

def lp(*entries):
    """Generate logprobs: entries (id, logprob, rank[, alternatives]); without alternatives the sampled token is the only one."""
    content = []
    for token, logprob, rank, *alternatives in entries:
        row = alternatives[0] if alternatives else [(token, logprob, rank)]
        content.append({"token_id": token, "logprob": logprob, "rank": rank,
                        "top_logprobs": [{"token_id": t, "logprob": l, "rank": r} for t, l, r in row]})
    return {"content": content}


def plain_lps(ids, logprob=-0.5):
    return lp(*((i, logprob, 1) for i in ids))


def entry(token, raw, logprob, *alternatives):
    one = lambda t, b, l: {"token": t, "bytes": b, "logprob": l}
    return {**one(token, raw, logprob), "top_logprobs": [one(*a) for a in alternatives]}


E_IDS = B("é")
BASE = lp((195, -0.1, 1, [(195, -0.1, 1), (72, -3.0, 2)]), (169, -0.2, 1, [(169, -0.2, 1), (170, -1.5, 2)]))
DECODED = [entry("", [], -0.1, ("", [], -0.1), ("H", [72], -3.0)),
           entry("é", [195, 169], -0.2, ("é", [195, 169], -0.2), ("ê", [195, 170], -1.5))]
PLACEHOLDERS = [entry("token_id:195", None, -0.1, ("token_id:195", None, -0.1), ("token_id:72", None, -3.0)),
                entry("token_id:169", None, -0.2, ("token_id:169", None, -0.2), ("token_id:170", None, -1.5))]
DECODED_TEXT = {"tokens": ["", "é"], "token_logprobs": [-0.1, -0.2], "text_offset": [0, 0],
                "top_logprobs": [{"": -0.1, "H": -3.0}, {"é": -0.2, "ê": -1.5}]}
PLACEHOLDER_TEXT = {"tokens": ["token_id:195", "token_id:169"], "token_logprobs": [-0.1, -0.2], "text_offset": [0, 12],
                    "top_logprobs": [{"token_id:195": -0.1, "token_id:72": -3.0}, {"token_id:169": -0.2, "token_id:170": -1.5}]}


def lp_request(override=ABSENT, **fields):
    return chat_request(logprobs=True, top_logprobs=2, return_tokens_as_token_ids=override, **fields)


def lp_text_request(override=ABSENT, **fields):
    return {"prompt": "x", "logprobs": 2, "return_tokens_as_token_ids": override, **fields}


def entries(choice):
    return (choice.get("logprobs") or {}).get("content")


def join_text_logprobs(chunks):
    total = {"tokens": [], "token_logprobs": [], "text_offset": [], "top_logprobs": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for key, values in (choice.get("logprobs") or {}).items():
                total[key] += values
    return total


# ---- generate and the scripted engine

GENERATE, ABORT = "/inference/v1/generate", "/inference/v1/abort_requests"


def xargs(script):
    return {"script": json.dumps(script) if VLLM else script}


def step(ids, finish=None, rows=ABSENT, stop_reason=ABSENT, wait=ABSENT):
    return drop({"ids": ids, "finish": finish, "rows": rows, "stop_reason": stop_reason, "wait_ms": wait})


def singles(ids, finish="stop"):
    return [step([i], finish if n == len(ids) - 1 else None) for n, i in enumerate(ids)]


BASE_ROWS = [[[195, -0.1, 1], [72, -3.0, 2]], [[169, -0.2, 1], [170, -1.5, 2]]]
BASE_SCRIPT = [step([195], rows=BASE_ROWS[:1]), step([169], "stop", rows=BASE_ROWS[1:])]


def generate_body(script, sampling=None, **fields):
    return {"token_ids": P1, "sampling_params": {**(sampling or {}), "extra_args": {"script": script}}, **fields}


def generate(to, script, sampling=None, headers={}, **fields):
    return to.post(GENERATE, generate_body(script, sampling, **fields), **headers)


def generate_stream(to, script, sampling=None, headers={}, **fields):
    """The chunks of a generate stream, [DONE] checked and taken off."""
    events = to.events(GENERATE, generate_body(script, sampling, **fields), **headers)
    same("last event", events[-1] if events else None, "[DONE]")
    return [e for e in events if e != "[DONE]"]


def context(override=ABSENT, **fields):
    return drop({"tools": None, "tool_choice": "none", "parallel_tool_calls": True, "include_reasoning": True,
                 "chat_template_kwargs": {}, "history_tool_call_cnt": 0, "return_tokens_as_token_ids": override, **fields})


TOOL_CONTEXT = {"tools": TOOLS, "tool_choice": "auto"}


def chat(to, script, **fields):
    return to.post("/v1/chat/completions", {"model": "m", "messages": HI, "vllm_xargs": xargs(script), **fields})


def chat_events(to, script, **fields):
    events = to.events("/v1/chat/completions", {"model": "m", "messages": HI, "vllm_xargs": xargs(script), **fields})
    same("last event", events[-1] if events else None, "[DONE]")
    return [e for e in events if e != "[DONE]"]


def completion_body(script, **fields):
    return {"model": "m", "prompt": "Hi", "vllm_xargs": xargs(script), **fields}


# ---------------------------------------------------------------------------------------------------- A. Render

def render(to, messages=HI, headers={}, **fields):
    return to.post("/v1/chat/completions/render", {"messages": messages, **fields}, **headers)


def render_text(to, prompt, headers={}, **fields):
    return to.post("/v1/completions/render", {"prompt": prompt, **fields}, **headers)


@case()
def A1():
    body = render(node("R")).ok()
    has("body", body, {"token_ids": P1, "stream": False, "output_mode": "tokens", "features": None, "token_offsets": None, "model": None})
    same("max_tokens", body["sampling_params"].get("max_tokens"), 491)


@case()
def A2():
    ident = lambda **kw: render(node("R"), **kw).ok()["request_id"]
    same("header", ident(headers={"X-Request-Id": "abc"}), "chatcmpl-abc")
    same("body", ident(request_id="r1"), "chatcmpl-r1")
    same("both", ident(request_id="r1", headers={"X-Request-Id": "abc"}), "chatcmpl-abc")
    matches("neither", ident(), "chatcmpl-[0-9a-f]{16}")


@case()
def A3():
    one = render_text(node("R"), "Hi").ok()
    same("count", len(one), 1)
    same("token_ids", one[0]["token_ids"], [72, 105])
    same("max_tokens", one[0]["sampling_params"].get("max_tokens"), ours(16, None))  # 0.32.0 leaves out a 16
    matches("id", one[0]["request_id"], "cmpl-[0-9a-f]{16}")
    two = render_text(node("R"), ["Hi", "Yo"], {"X-Request-Id": "abc"}).ok()
    same("ids", [r["request_id"] for r in two], ["cmpl-abc-0", "cmpl-abc-1"])


@case(NEW)
def A5():
    for label, override in (("absent", ABSENT), ("null", None)):
        got = render(node("R"), return_tokens_as_token_ids=override).ok()["parse_context"]
        same(f"{label}: keys", sorted(got), sorted(["tools", "tool_choice", "parallel_tool_calls", "include_reasoning",
                                                    "chat_template_kwargs", "history_tool_call_cnt"]))
        has(label, got, {"tools": None, "tool_choice": "none", "parallel_tool_calls": True, "include_reasoning": True,
                         "history_tool_call_cnt": 0})


@case(NEW)
def A6():
    for override in (True, False):
        got = render(node("R"), return_tokens_as_token_ids=override).ok()["parse_context"]
        has("parse_context", got, {"return_tokens_as_token_ids": override})


@case(NEW)
def A8():
    tool = lambda i: {"id": i, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    asks = lambda *ids: {"role": "assistant", "content": "", "tool_calls": [tool(i) for i in ids]}
    says = lambda i: {"role": "tool", "tool_call_id": i, "content": "ok"}
    messages = [*HI, asks("a", "b"), says("a"), says("b"), asks("c"), says("c"), *HI]
    same("count", render(node("R"), messages).ok()["parse_context"]["history_tool_call_cnt"], 3)


@case()
def A9():
    body = render(node("RP"), chat_template_kwargs={"open_think": True}).ok()
    has("request kwargs", body, {"token_ids": [*P1, 259, 10], "reasoning_ended": False})
    has("reasoning_parser_kwargs", body["reasoning_parser_kwargs"]["chat_template_kwargs"], {"open_think": True})
    if not VLLM:
        has("parse_context", body["parse_context"]["chat_template_kwargs"], {"open_think": True})


@case()
def A9d():
    """Second half of A9: request over server default."""
    same("server default", render(node("RD")).ok()["token_ids"], [*P1, 259, 10])
    body = render(node("RD"), chat_template_kwargs={"open_think": False}).ok()
    same("request wins", body["token_ids"], P1)
    has("reasoning_parser_kwargs", body["reasoning_parser_kwargs"]["chat_template_kwargs"], {"open_think": False})
    if not VLLM:
        has("parse_context", body["parse_context"]["chat_template_kwargs"], {"open_think": False})


@case()
def A10():
    answer = render(node("R"), stream=True, stream_options={"include_usage": True})
    true("content-type", answer.headers["content-type"].startswith("application/json"), answer.headers["content-type"])
    same("stream", answer.ok()["stream"], True)
    same("include_usage", answer.body["stream_options"]["include_usage"], True)
    render(node("R"), stream_options={"include_usage": True}).refused("options without stream", param="stream_options")


@case()
def A11():
    got = lambda body: body["sampling_params"].get("logprobs")
    same("top 3", got(render(node("R"), logprobs=True, top_logprobs=3).ok()), 3)
    same("true", got(render(node("R"), logprobs=True).ok()), 0)
    same("absent", got(render(node("R")).ok()), None)
    render(node("R"), top_logprobs=3).refused("top_logprobs alone", param="top_logprobs")
    same("completions", got(render_text(node("R"), "Hi", logprobs=2).ok()[0]), 2)


@case()
def A12():
    got = render(node("R"), temperature=0.123, top_p=0.456, frequency_penalty=1.1, stop="X").ok()["sampling_params"]
    has("sampling_params", got, {"temperature": 0.123, "top_p": 0.456, "frequency_penalty": 1.1, "stop": ["X"]})
    same("underscore keys", [k for k in got if k.startswith("_")], [])


@case()
def A13():
    body = render_text(node("R"), "Hé", return_token_offsets=True).ok()[0]
    has("completion", body, {"token_ids": [72, 195, 169], "token_offsets": [[0, 1], [1, 2], [1, 2]]})
    body = render(node("R"), return_token_offsets=True).ok()
    same("chat", (body["token_offsets"] or [])[:4], [[0, 12], [12, 13], [13, 14], [14, 15]])


@case()
def A15():
    r = node("R")
    render(r, model="nope").refused("unknown model", 404, type="NotFoundError", param="model")
    render(r, use_beam_search=True).refused("use_beam_search")
    r.post("/v1/chat/completions/render", {"messages": HI}, content_type="text/plain").refused("content-type")
    r.post("/v1/chat/completions/render", [1]).refused("list body")
    render_text(r, [65] * 600).refused("prompt of 600")
    render(r, tools=[]).refused("tools []", param="tools")
    render(r, tool_choice="required").refused("tool_choice without tools")


@case()
def A17():
    body = {"model": "m", "input": "Hi", "previous_response_id": "resp_1"}
    node("R").post("/v1/responses/render", body).refused("previous", type="invalid_request_error", param="previous_response_id")


@case()
def A18():
    got = lambda choice: render(node("RP"), tools=TOOLS, tool_choice=choice).ok()["sampling_params"].get("skip_special_tokens", True)
    same("auto", got("auto"), False)
    same("none", got("none"), True)


# ---------------------------------------------------------------------------------------------------- B. Derender chat

MESSAGE_KEYS = ["annotations", "audio", "content", "function_call", "reasoning", "refusal", "role"]


@case()
def B1():
    body = derender(node("R"), B("Hi é")).ok()
    has("body", body, {"id": "r", "object": "chat.completion", "model": "m"})
    has("usage", body["usage"], {"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 5})
    has("choice", body["choices"][0], {"index": 0, "finish_reason": "stop"})
    has("message", body["choices"][0]["message"], {"role": "assistant", "content": "Hi é"})


@case()
def B2():
    choice = derender(node("R"), B("Hi é")).choice()
    same("message keys", sorted(choice["message"]), MESSAGE_KEYS)
    has("choice", choice, {"logprobs": None, "stop_reason": None, "token_ids": None})


@case()
def B3():
    usage = derender(node("R"), B("Hi é"), prompt_tokens=10).ok()["usage"]
    has("usage", usage, {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    two = response(generated(B("abc")), generated(B("abcd"), index=1))
    same("n=2", node("R").post(CHAT, {"generate_response": two}).ok()["usage"]["completion_tokens"], 7)


@case()
def B4():
    text = lambda **kw: derender(node("R2"), [268, 276], **kw).choice()["message"]["content"]
    same("no prompt", text(), "Hello there")
    same("prompt", text(prompt_token_ids=[1, 268, 299]), " Hello there")


@case()
def B5():
    answer = response(generated([268, 276]), prompt_token_ids=[1, 268, 299])
    text = lambda **kw: node("R2").post(CHAT, {"generate_response": answer, **kw}).choice()["message"]["content"]
    same("from the response", text(), " Hello there")
    same("request wins", text(prompt_token_ids=[1]), "Hello there")


@case()
def B7():
    text = lambda **kw: derender(node("R"), [72, 105, 258], **kw).choice()["message"]["content"]
    same("skipped", text(), "Hi")
    same("kept", text(request=chat_request(skip_special_tokens=False)), "Hi<|im_end|>")


@case()
def B8():
    body = derender(node("R"), [72, 240, 159, 152]).ok()
    same("content", body["choices"][0]["message"]["content"], "H")
    same("completion tokens", body["usage"]["completion_tokens"], 4)


@case()
def B9():
    same("content", derender(node("R"), [128, 65]).choice()["message"]["content"], "\ufffdA")


@case()
def B11():
    for ids in ([], None, [-1, 72]):
        derender(node("R"), ids).refused(f"token_ids {ids}")
    same("no choices", node("R").post(CHAT, {"generate_response": response()}).ok()["choices"], [])


@case()
def B12():
    for mode, fine in (("text", False), ("derender", False), ("tokens", True), (ABSENT, True)):
        choice = generated([72, 105], text="Hi" if mode == "text" else ABSENT)
        answer = node("R").post(CHAT, {"generate_response": response(choice, output_mode=mode)})
        answer.ok() if fine else answer.refused(f"output_mode {mode}")


@case()
def B13():
    r = node("R")
    derender(r, [97] * 513).refused("513 ids", says="max_model_len")
    derender(r, [97] * 512).ok()
    derender(r, [97], prompt_token_ids=[97] * 513).refused("prompt of 513", says="max_model_len")
    many = response(*(generated([97], index=i) for i in range(16385)))
    r.post(CHAT, {"generate_response": many}).refused("16385 choices", says="choices count")
    wide = lp((65, -1.0, 1, [(65 + i, -1.0 - i, i + 1) for i in range(25)]))
    derender(r, [65], wide).refused("25 alternatives", says=("top_logprobs count", "max_logprobs"))


@case()
def B16():
    same("absent", derender(node("R"), [72]).ok()["model"], "m")
    derender(node("R"), [72], model="nope").refused("unknown", 404, type="NotFoundError", param="model")
    derender(node("R"), [72], foo=1).ok()


@case()
def B17():
    ids = lambda wanted: derender(node("R"), [72, 105], request=chat_request(return_token_ids=wanted)).choice()["token_ids"]
    same("true", ids(True), [72, 105])
    same("false", ids(False), None)


@case()
def B18():
    derender(node("RP"), [72]).refused("no chat_request", says="chat_request")


@case()
def B20():
    off = node("NS")
    derender(off, [72]).refused("derender", 403, type="PermissionDeniedError")
    render(off).refused("render", 403, type="PermissionDeniedError")
    generate(off, []).refused("generate", 403, type="PermissionDeniedError")
    off.post(ABORT, {"request_ids": ["x"]}).refused("abort", 403, type="PermissionDeniedError")


# ---------------------------------------------------------------------------------------------------- C. Logprobs, override

@case()
def C1():
    same("entries", entries(derender(node("R"), E_IDS, BASE).choice()), DECODED)


@case()
def C2():
    for label, to, override, placeholders in derender_matrix():
        choice = derender(to, E_IDS, BASE, lp_request(override)).choice()
        same(label, entries(choice), PLACEHOLDERS if placeholders else DECODED)
        same(f"{label}: content", choice["message"]["content"], "é")


@case()
def C3():
    same("R", entries(derender(node("R"), E_IDS, BASE).choice()), DECODED)
    same("R!", entries(derender(node("R!"), E_IDS, BASE).choice()), ours(PLACEHOLDERS, DECODED))


@case()
def C4():
    for label, to, override, placeholders in derender_matrix():
        choice = derender_text(to, E_IDS, BASE, lp_text_request(override)).choice()
        same(label, choice["logprobs"], PLACEHOLDER_TEXT if placeholders else DECODED_TEXT)
        same(f"{label}: text", choice["text"], "é")


@case()
def C5():
    for label, to, override, placeholders in derender_matrix():
        bodies = chunked(to, pieces_of(E_IDS, 1), BASE, request=lp_request(override))
        got = [entries(b["chunk"]["choices"][0]) for b in bodies]
        same(label, got, [[e] for e in (PLACEHOLDERS if placeholders else DECODED)])
        same(f"{label}: state", bodies[0]["stream_state"]["logprob_context_token_ids"], [195])


@case()
def C9():
    for label, to, override, placeholders in derender_matrix():
        for e in entries(derender(to, E_IDS, BASE, lp_request(override)).choice()):
            for one in [e, *e["top_logprobs"]]:
                true(f"{label}: bytes key", "bytes" in one, one)
                same(f"{label}: bytes null", one["bytes"] is None, placeholders)


SMILE = B("😀")
SMILE_ENTRIES = [["", []], ["", []], ["", []], ["😀", SMILE]]


def token_bytes(list_of_entries):
    return [[e["token"], e["bytes"]] for e in list_of_entries]


@case()
def C10():
    same("entries", token_bytes(entries(derender(node("R"), SMILE, plain_lps(SMILE)).choice())), SMILE_ENTRIES)


@case()
def C13():
    choice = derender(node("R"), [128, 65], plain_lps([128, 65])).choice()
    same("entries", token_bytes(entries(choice)), [["", []], ["A", [65]]])
    same("text", choice["message"]["content"], "\ufffdA")


TRUE_LPS = lp((280, -0.1, 1, [(280, -0.1, 1), (294, -0.2, 2)]))


@case()
def C14():
    got = entries(derender(node("R2"), [280], TRUE_LPS).choice())[0]
    same("sampled", [got["token"], got["bytes"]], [" true", B(" true")])
    same("alternatives", [t["token"] for t in got["top_logprobs"]], [" true", "true"])
    same("completion", derender_text(node("R2"), [280], TRUE_LPS).choice()["logprobs"]["top_logprobs"], [{" true": -0.1, "true": -0.2}])


@case()
def C15():
    got = lambda **kw: token_bytes(entries(derender(node("R"), [9999], plain_lps([9999]), **kw).choice()))
    same("decoded", got(), [["", None]])
    same("placeholder", got(request=lp_request(True)), [[ours("token_id:9999", ""), None]])


@case()
def C16():
    choice = derender(node("R"), [104, 258], plain_lps([104, 258])).choice()
    same("text", choice["message"]["content"], "h")
    same("entries", token_bytes(entries(choice)), [["h", [104]], ["<|im_end|>", B("<|im_end|>")]])


OUTSIDE = lp((65, -4.0, 7, [(65, -4.0, 7), (66, -0.5, 1), (67, -1.0, 2)]))  # sampled outside the top 2
CHAT_CUTS = ((2, 2), (1, 1), (0, 0), (-1, 3))                               # top_logprobs asked, alternatives kept
TEXT_CUTS = ((2, 3), (1, 2), (0, 1), (-1, 3))                               # 0.32.0 cuts nothing here


@case()
def C17():
    tops = lambda **kw: [t["token"] for t in entries(derender(node("R"), [65], OUTSIDE, **kw).choice())[0]["top_logprobs"]]
    for asked, kept in CHAT_CUTS:
        same(f"top_logprobs {asked}", tops(request=chat_request(logprobs=True, top_logprobs=asked)), ["A", "B", "C"][:ours(kept, 3)])
    same("no chat_request", tops(), ["A", "B", "C"])


@case()
def C18():
    tops = lambda **kw: list(derender_text(node("R"), [65], OUTSIDE, **kw).choice()["logprobs"]["top_logprobs"][0])
    for asked, kept in TEXT_CUTS:
        same(f"logprobs {asked}", tops(request={"prompt": "x", "logprobs": asked}), ["A", "B", "C"][:ours(kept, 3)])
    same("no completion_request", tops(), ["A", "B", "C"])


@case()
def C21():
    choice = {**generated([65]), "logprobs": None}
    same("null", node("R").post(CHAT, {"generate_response": response(choice)}).choice()["logprobs"], None)
    got = derender(node("R"), [65], {"content": None}).choice()["logprobs"]
    same("content null", got, {"content": None})


HIDDEN_IDS = [*B("a"), 260, *B("b")]


def hidden_request(override=ABSENT, **fields):
    return lp_request(override, include_reasoning=False, return_token_ids=True, **fields)


@case(OURS)
def C22():
    for override in (True, False):
        choice = derender(node("RP"), HIDDEN_IDS, plain_lps(HIDDEN_IDS), hidden_request(override), prompt_token_ids=P1).choice()
        has("message", choice["message"], {"reasoning": None, "content": "b"})
        has("choice", choice, {"logprobs": None, "token_ids": None})


@case()
def C23():
    for override in (True, False):
        bodies = chunked(node("RP"), pieces_of(HIDDEN_IDS, 1), plain_lps(HIDDEN_IDS), request=hidden_request(override), prompt_token_ids=P1)
        for body in bodies:
            has("choice", body["chunk"]["choices"][0], {"logprobs": None, "token_ids": None})
        has("assembled", assemble(b["chunk"] for b in bodies)[0], {"content": "b", "reasoning": ""})


OFFSET_IDS = B("aé b")


@case()
def C25():
    got = derender_text(node("R"), OFFSET_IDS, plain_lps(OFFSET_IDS)).choice()["logprobs"]
    has("logprobs", got, {"tokens": ["a", "", "é", " ", "b"], "text_offset": [0, 1, 1, 2, 3]})


@case(NEW)
def C26():
    ids = [104, 105, 258]
    got = derender_text(node("R"), ids, plain_lps(ids), lp_text_request(True)).choice()["logprobs"]
    same("text_offset", got["text_offset"], [0, 12, 24])


@case()
def C28():
    legacy = {"content": [{"token": "token_id:72", "logprob": -1, "bytes": None, "top_logprobs": []}]}
    answer = derender(node("R"), [72], legacy)
    if answer.status == 200:
        same("decoded", entries(answer.choice())[0]["token"], "H")
    else:
        answer.refused("legacy strings")


# ---------------------------------------------------------------------------------------------------- D. Derender stream

def delta(body):
    return body["chunk"]["choices"][0]["delta"]


@case()
def D1():
    first, second = chunked(node("R"), [[72], [105]])
    has("delta 1", delta(first), {"role": "assistant", "content": "H"})
    has("delta 2", delta(second), {"role": None, "content": "i"})


@case()
def D2():
    bodies = chunked(node("R"), [[72], [195], [169, 33]], prompt_token_ids=P1)
    same("contents", [delta(b)["content"] for b in bodies], ["H", None, "é!"])
    states = [b["stream_state"] for b in bodies]
    same("prev_tokens", [s["prev_tokens"] for s in states], [["H"], ["H", "Ã"], ["!"]])
    same("read_offset", [s["read_offset"] for s in states], [1, 1, 1])
    same("prefix_offset", [s["prefix_offset"] for s in states], [0, 0, 0])
    same("role_sent", [s["role_sent"] for s in states], [True, True, True])


@case()
def D3():
    text = "Hi 日本 😀!"
    same("batch", derender(node("R"), B(text)).choice()["message"]["content"], text)
    for label, pieces in chunkings(B(text)).items():
        same(label, streamed(node("R"), pieces)["content"], text)


USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


@case()
def D4():
    first = chunk_call(node("R"), None, chunk=response(usage=USAGE)).ok()
    same("choices", first["chunk"]["choices"], [])
    has("usage", first["chunk"]["usage"], USAGE)
    same("role_sent", first["stream_state"]["role_sent"], False)
    second = chunk_call(node("R"), [72], first["stream_state"]).ok()
    has("next delta", delta(second), {"role": "assistant", "content": "H"})


@case()
def D5():
    usage = lambda **kw: chunk_call(node("R"), [72], usage=USAGE, **kw).ok()["chunk"]["usage"]
    has("request", usage(prompt_tokens=7), {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9})
    has("chunk", usage(), USAGE)
    same("none", chunk_call(node("R"), [72]).ok()["chunk"]["usage"], None)


@case()
def D6():
    body = chunk_call(node("R"), [], finish="length").ok()
    same("content", delta(body)["content"], None)
    same("finish", body["chunk"]["choices"][0]["finish_reason"], "length")


@case()
def D7():
    two = response(generated([72], finish=None), generated([105], index=1, finish=None))
    for path in (CHAT, TEXT):
        chunk_call(node("R"), None, chunk=two, path=path).refused(path, says="at most one choice")


@case()
def D8():
    states, chunks = {0: None, 1: None}, []
    for a, b in zip(B("abc"), B("xyz")):
        for index, token in ((0, a), (1, b)):
            body = chunk_call(node("R"), [token], states[index], index=index).ok()
            states[index] = body["stream_state"]
            chunks.append(body["chunk"])
    got = assemble(chunks)
    same("texts", [got[0]["content"], got[1]["content"]], ["abc", "xyz"])
    same("roles", [got[0]["roles"], got[1]["roles"]], [1, 1])


STATE = {"prev_tokens": ["a"], "prefix_offset": 0, "read_offset": 1, "role_sent": True}


@case()
def D10():
    bad = {"prefix_offset -1": {"prefix_offset": -1}, "read_offset -1": {"read_offset": -1}, "1025 pieces": {"prev_tokens": ["a"] * 1025},
           "5 context ids": {"logprob_context_token_ids": [1] * 5}, "sum": {"output_token_ids": [1, 2, 3], "output_chunk_lens": [2]},
           "zero": {"output_token_ids": [1, 2], "output_chunk_lens": [0, 2]}}
    for label, fields in bad.items():
        chunk_call(node("R"), [72], {**STATE, **fields}).refused(label)
    chunk_call(node("R"), [72], {**STATE, "prev_tokens": ["a"] * 1024}).ok("1024 pieces")


@case()
def D12():
    r = node("R")
    r.post(CHAT, {"stream": True}).refused("no chunk")
    r.post(CHAT, [1]).refused("list")
    r.post(CHAT, {"stream": True, "generate_response": response(generated([72]))}).refused("stream with generate_response")
    chunk_call(r, None, chunk=response(generated([72], text="H"), output_mode="text")).refused("text chunk")


@case()
def D13():
    state = {"role_sent": True, "output_token_ids": [97] * 200, "output_chunk_lens": [200]}
    ask = lambda n: chunk_call(node("RP"), [97] * n, state, request=chat_request(), prompt_token_ids=[97] * 300)
    ask(13).refused("513", says="max_model_len")
    ask(12).ok("512")


@case()
def D14():
    chunk_call(node("RP"), [97], prompt_token_ids=P1).refused("no chat_request", says="chat_request")
    chunk_call(node("RP"), [97], request=chat_request()).refused("no prompt_token_ids", says="prompt_token_ids")


def tool_stream(to, pieces, ids=P1, finish="stop", **fields):
    return streamed(to, pieces, finish=finish, request=tool_request(**fields), prompt_token_ids=ids)


def summary(folded):
    return [folded["reasoning"], folded["content"], calls_of(folded), folded["finish"]]


@case()
def D17():
    first = chunk_call(node("R2"), [268], prompt_token_ids=[1, 268, 299]).ok()
    second = chunk_call(node("R2"), [276], first["stream_state"]).ok()
    same("contents", [delta(first)["content"], delta(second)["content"]], [" Hello", " there"])


@case()
def D20():
    bodies = chunked(node("R"), [[72], [105, 33]], request=chat_request(return_token_ids=True))
    same("token_ids", [b["chunk"]["choices"][0]["token_ids"] for b in bodies], [[72], [105, 33]])


# ---------------------------------------------------------------------------------------------------- E. Parsers

def parsed(ids, to="RP", finish="stop", prompt=P1, **fields):
    return derender(node(to), ids, request=tool_request(**fields), finish=finish, prompt_token_ids=prompt).choice()


TOOL_ID = r"chatcmpl-tool-[0-9a-f]{16}"


@case()
def E1():
    choice = parsed([259, *B("ab"), 260, *B("ok")])
    has("message", choice["message"], {"reasoning": "ab", "content": "ok"})
    same("finish", choice["finish_reason"], "stop")


@case()
def E2():
    has("message", parsed(B("plain"))["message"], {"reasoning": "plain", "content": None})


@case()
def E3():
    has("message", parsed([*B("x"), 260])["message"], {"reasoning": "x", "content": None})


@case()
def E4():
    choice = parsed(E4_IDS)
    has("message", choice["message"], {"reasoning": "r", "content": None})
    same("calls", calls_of(choice["message"]), [PARIS])
    call = choice["message"]["tool_calls"][0]
    same("type", call["type"], "function")
    matches("id", call["id"], ours(TOOL_ID, r"[0-9a-f]{16}"))  # 0.32.0: bare hex, and finish_reason is not rewritten
    same("finish", choice["finish_reason"], ours("tool_calls", "stop"))


@case()
def E5():
    for label, pieces in chunkings(E4_IDS).items():
        same(label, summary(tool_stream(node("RP"), pieces)), ["r", "", [PARIS], "tool_calls"])


@case()
def E6():
    bodies = chunked(node("RP"), pieces_of(E4_IDS, 1), request=tool_request(), prompt_token_ids=P1)
    final = assemble(b["chunk"] for b in bodies)[0]["tools"][0]["arguments"]
    for count in range(1, len(bodies) + 1):
        so_far = assemble(b["chunk"] for b in bodies[:count])[0]["tools"].get(0, {}).get("arguments", "")
        true(f"call {count} is a prefix", final.startswith(so_far), so_far)
    same("valid JSON", as_json(final), {"city": "Paris"})


@case()
def E7():
    bodies = chunked(node("RP"), pieces_of(E4_IDS, 1), request=tool_request(), prompt_token_ids=P1)
    ids = assemble(b["chunk"] for b in bodies)[0]["tools"][0]["ids"]
    same("ids sent", len(ids), 1)
    matches("id", ids[0], TOOL_ID)
    states = [b["stream_state"]["last_tool_call_ids"] for b in bodies]
    first = states.index(ids) if ids in states else len(states)
    same("states", states, [[]] * first + [ids] * (len(states) - first))
    true("pinned before the end", first < len(states) - 1, first)


@case()
def E8():
    message = parsed([260, *B("Sure. "), *W])["message"]
    same("content", message["content"], "Sure. ")
    same("calls", calls_of(message), [PARIS])
    same("blank", parsed([260, *B(" \n"), *W])["message"]["content"], None)


@case()
def E10():
    choice = parsed([260, 261, *B("{not json"), 262])
    same("content", choice["message"]["content"], "<tool_call>{not json</tool_call>")
    same("calls", calls_of(choice["message"]), [])
    same("finish", choice["finish_reason"], "stop")


@case()
def E12():
    whole = [*B("r"), 260, 261, *B('\n{"name": "get_weather", "arguments": {"city": "Pa')]
    for label, pieces in chunkings(whole).items():
        same(label, tool_stream(node("RP"), pieces, finish="length")["finish"], ours("length", "tool_calls"))


@case()
def E14():
    choice = parsed([260, *W], tool_choice=NAMED)
    same("batch", [calls_of(choice["message"]), choice["message"]["content"], choice["finish_reason"]], [[PARIS], "", "stop"])
    for label, pieces in chunkings([260, *W]).items():
        same(label, summary(tool_stream(node("RP"), pieces, tool_choice=NAMED)), ["", "", [PARIS], "stop"])
    bare = [260, *B('{"city": "Paris"}')]
    choice = parsed(bare, tool_choice=NAMED)
    same("bare arguments", [calls_of(choice["message"]), choice["message"]["content"]], [[], '{"city": "Paris"}'])
    for label, pieces in chunkings(bare).items():
        same(f"bare arguments, {label}", summary(tool_stream(node("RP"), pieces, tool_choice=NAMED)), ["", '{"city": "Paris"}', [], "stop"])


@case()
def E15():
    choice = parsed([260, *W], tool_choice="required")
    same("batch", [calls_of(choice["message"]), choice["message"]["content"], choice["finish_reason"]],
         [[PARIS], "", ours("tool_calls", "stop")])
    for label, pieces in chunkings([260, *W]).items():
        same(label, summary(tool_stream(node("RP"), pieces, tool_choice="required")), ["", "", [PARIS], "tool_calls"])
    choice = parsed([260, *B("nothing like that")], tool_choice="required")
    same("no call", [calls_of(choice["message"]), choice["message"]["content"]], [[], "nothing like that"])


@case()
def E16():
    choice = parsed(E4_IDS, tool_choice="none")
    true("markup in content", "<tool_call>" in (choice["message"]["content"] or ""), choice["message"])
    same("calls", calls_of(choice["message"]), [])
    same("finish", choice["finish_reason"], "stop")


@case()
def E17():
    folded = tool_stream(node("RP"), [[260, *B("a <tool")], B("box> b")])
    same("content", [folded["content"], calls_of(folded)], ["a <toolbox> b", []])


@case()
def E19():
    opened = tool_stream(node("RP"), pieces_of([*B("x"), 260, *B("y")], 1), [*P1, 259, 10])
    same("open", [opened["reasoning"], opened["content"]], ["x", "y"])
    closed = tool_stream(node("RP"), [B("y")], [*P1, 259, 260])
    same("closed", [closed["reasoning"], closed["content"]], ["", "y"])


@case()
def E21():
    ids = [259, *B("思考"), 260, *B("你好😀")]
    bodies = chunked(node("RP"), pieces_of(ids, 1), request=tool_request(), prompt_token_ids=P1)
    true("no U+FFFD", "\ufffd" not in json.dumps([b["chunk"] for b in bodies], ensure_ascii=False))
    folded = assemble(b["chunk"] for b in bodies)[0]
    same("assembled", [folded["reasoning"], folded["content"]], ["思考", "你好😀"])


@case()
def E22():
    message = parsed(E4_IDS, include_reasoning=False)["message"]
    same("batch", [message["reasoning"], calls_of(message)], [None, [PARIS]])
    folded = tool_stream(node("RP"), pieces_of(E4_IDS, 1), include_reasoning=False)
    same("stream", [folded["reasoning"], calls_of(folded)], ["", [PARIS]])


@case()
def E23():
    ids = [260, 261, *B('\n{"name": "get_weather", "arguments": {"x": "é"}}\n'), 262]
    arguments = parsed(ids)["message"]["tool_calls"][0]["function"]["arguments"]
    same("arguments", as_json(arguments), {"x": "é"})
    true("kept as é", "é" in arguments, arguments)


@case()
def E24():
    same("trailing chunk", summary(tool_stream(node("RP"), [*pieces_of(E4_IDS, 1), []])), summary(tool_stream(node("RP"), pieces_of(E4_IDS, 1))))


@case()
def E25():
    one = B('{"name":"get_weather","parameters":{"city":"Paris"}}')
    message = parsed([265, *one], "L3")["message"]
    same("one", [calls_of(message), message["content"]], [[PARIS], None])
    message = parsed(B('{"a":1}'), "L3")["message"]
    same("other JSON", [calls_of(message), message["content"]], [[], '{"a":1}'])
    message = parsed([265, *one, *B("; "), *one], "L3")["message"]
    same("two", calls_of(message), [PARIS, PARIS])


@case()
def E27():
    call = [261, *B("\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"), 262]
    same("calls", calls_of(parsed([260, *call], "QX")["message"]), [PARIS])
    message = parsed([*B("r"), *call], "QX")["message"]
    same("implicit end", [message["reasoning"], calls_of(message)], ["r", [PARIS]])


# ---------------------------------------------------------------------------------------------------- F. Generate

HI_SCRIPT = [step([104, 105], "stop")]


@case(SCRIPTED)
def F1():
    body = generate(node("G"), HI_SCRIPT, headers={"X-Request-Id": "42"}).ok()
    has("body", body, {"request_id": "generate-tokens-42", "output_mode": "tokens", "prompt_token_ids": None})
    has("choice", body["choices"][0], {"index": 0, "token_ids": [104, 105], "finish_reason": "stop", "stop_reason": None, "logprobs": None})
    same("text keys", [k for k in ("text", "message", "delta") if k in body["choices"][0]], [])
    has("usage", body["usage"], {"prompt_tokens": 21, "completion_tokens": 2, "total_tokens": 23})


@case(SCRIPTED)
def F2():
    for mode in ("tokens", "text", "derender")[:ours(3, 2)]:
        same(mode, generate(node("G"), HI_SCRIPT, output_mode=mode).ok()["output_mode"], mode)
        chunks = generate_stream(node("G"), HI_SCRIPT, output_mode=mode, stream_options={"include_usage": True})
        same(f"{mode}: chunks", [c.get("output_mode") for c in chunks], [mode] * len(chunks))
        same(f"{mode}: usage chunk", chunks[-1]["choices"], [])


@case()
def F3():
    g, gt = node("G"), node("GT")
    generate(g, HI_SCRIPT, output_mode="foo").refused("foo")
    for mode in ("text", "derender"):
        generate(g, HI_SCRIPT, {"detokenize": False}, output_mode=mode).refused(f"{mode} with detokenize false")
        generate(gt, HI_SCRIPT, output_mode=mode).refused(f"{mode} on GT")
    generate(gt, HI_SCRIPT).ok("tokens on GT")


@case()
def F4():
    generate(node("GT"), HI_SCRIPT, {"stop": ["x"]}).refused("stop")
    generate(node("GT"), HI_SCRIPT, {"stop_token_ids": [104]}).ok("stop_token_ids")


@case(SCRIPTED)
def F5():
    endless = [step([97])]
    for sampling, count in (({}, 491), ({"max_tokens": 16}, 16)):
        choice = generate(node("G"), endless, sampling).choice()
        same(f"{sampling}", [len(choice["token_ids"]), choice["finish_reason"]], [count, "length"])


@case()
def F6():
    g = node("G")
    for label, ids in (("[]", []), ("[-1]", [-1]), ("missing", ABSENT)):
        generate(g, HI_SCRIPT, token_ids=ids).refused(f"token_ids {label}")
    g.post(GENERATE, {"token_ids": P1}).refused("no sampling_params")
    generate(g, HI_SCRIPT, {"temperature": 3}).refused("temperature 3")
    generate(g, HI_SCRIPT, cache_salt="a/b").refused("cache_salt")
    generate(g, HI_SCRIPT, foo=1).ok("unknown key")


@case(SCRIPTED)
def F7():
    choice = generate(node("G"), [step(B("Hi é"), "stop")], output_mode="text").choice()
    has("choice", choice, {"text": "Hi é", "token_ids": B("Hi é")})


@case(SCRIPTED)
def F8():
    script = singles(B("hello wo"))
    choice = generate(node("G"), script, {"stop": ["lo"]}, output_mode="text").choice()
    has("choice", choice, {"text": "hel", "token_ids": B("hello"), "finish_reason": "stop", "stop_reason": "lo"})
    kept = generate(node("G"), script, {"stop": ["lo"], "include_stop_str_in_output": True}, output_mode="text").choice()
    same("included", kept["text"], "hello")
    same("derender", derender_text(node("R"), choice["token_ids"]).choice()["text"], "hello")


@case(SCRIPTED)
def F9():
    ids = B("xxlo!!")
    rows = [[[i, -0.5, 1]] for i in ids]
    choice = generate(node("G"), [step(ids, "stop", rows)], {"stop": ["lo"], "logprobs": 1}, output_mode="text").choice()
    has("choice", choice, {"text": "xx", "token_ids": B("xxlo"), "stop_reason": "lo"})
    same("entries", len(entries(choice) or []), 4)


@case(SCRIPTED)
def F12():
    row = [[65, -4.0, 7], [66, -0.5, 1], [67, -1.0, 2]]
    got = entries(generate(node("G"), [step([65], "stop", [row])], {"logprobs": 2}).choice())[0]
    want = row[:ours(3, 2)]  # 0.32.0 cuts to k
    same("outside", [got["token_id"], got["rank"], [[t["token_id"], t["logprob"], t["rank"]] for t in got["top_logprobs"]]], [65, 7, want])
    same("string keys", [k for e in [got, *got["top_logprobs"]] for k in ("token", "bytes") if k in e], [])
    got = entries(generate(node("G"), [step([66], "stop", [row[1:]])], {"logprobs": 2}).choice())[0]
    same("inside", [t["token_id"] for t in got["top_logprobs"]], [66, 67])
    got = entries(generate(node("G"), [step([66], "stop", [row[1:2]])], {"logprobs": 0}).choice())[0]
    same("k = 0", len(got["top_logprobs"]), 1)


@case(SCRIPTED)
def F13():
    if VLLM:
        raise Skip("NaN row in vLLM")
    script = [step([65], "stop", [[[65, "NaN", 0], [66, "-Infinity", 2]]])]
    got = entries(generate(node("G"), script, {"logprobs": 2}).choice())[0]
    same("sampled", [got["logprob"], got["rank"]], [-9999.0, None])
    same("alternatives", [[t["token_id"], t["logprob"], t["rank"]] for t in got["top_logprobs"]], [[65, -9999.0, None], [66, -9999.0, 2]])


@case(SCRIPTED)
def F14():
    for name, override, want in (("G", ABSENT, DECODED), ("G!", ABSENT, PLACEHOLDERS), ("G", True, DECODED), ("G!", False, PLACEHOLDERS)):
        fields = {} if override is ABSENT else {"parse_context": context(override)}
        choice = generate(node(name), BASE_SCRIPT, {"logprobs": 2}, output_mode="text", **fields).choice()
        same(f"{name} {override if isinstance(override, bool) else 'absent'}", entries(choice), want)


@case(NEW, SCRIPTED)
def F15():
    for label, to, override, placeholders in matrix("G", "G!"):
        choice = generate(to, BASE_SCRIPT, {"logprobs": 2}, output_mode="derender", parse_context=context(override)).choice()
        same(label, entries(choice), PLACEHOLDERS if placeholders else DECODED)
        same(f"{label}: content", choice["message"]["content"], "é")


@case(SCRIPTED)
def F17():
    bodies = []
    for _, to, override, _ in matrix("G", "G!"):
        body = generate(to, BASE_SCRIPT, {"logprobs": 2}, parse_context=context(override), request_id="x").ok()
        bodies.append({**body, "created": 0})
    for body in bodies[1:]:
        same("body", body, bodies[0])
    same("token ids", [e["token_id"] for e in entries(bodies[0]["choices"][0])], E_IDS)


@case()
def F18():
    for value in (1, None):
        bad = {**context(), "foo": value}
        if not VLLM:
            generate(node("G"), HI_SCRIPT, output_mode="derender", parse_context=bad).refused(f"foo {value}", says="foo")
        for mode in ("tokens", "text"):
            generate(node("G"), HI_SCRIPT, output_mode=mode, parse_context=bad).ok(mode)


@case(NEW, SCRIPTED)
def F19():
    generate(node("GP"), HI_SCRIPT, output_mode="derender", parse_context=None).refused("GP")
    same("G", generate(node("G"), HI_SCRIPT, output_mode="derender", parse_context=None).choice()["message"]["content"], "hi")


def is_hidden(label, choice):
    same(f"{label}: logprobs", choice["logprobs"], None)
    same(f"{label}: reasoning", (choice.get("message") or choice.get("delta") or {}).get("reasoning"), None)


@case(NEW, SCRIPTED)
def F21():
    choice = generate(node("GP"), singles(E4_IDS), {"skip_special_tokens": False}, output_mode="derender",
                      parse_context=context(**TOOL_CONTEXT)).choice()
    has("message", choice["message"], {"role": "assistant", "reasoning": "r", "content": None})
    same("calls", calls_of(choice["message"]), [PARIS])
    matches("id", choice["message"]["tool_calls"][0]["id"], TOOL_ID)
    has("choice", choice, {"token_ids": E4_IDS, "finish_reason": "tool_calls"})


@case(SCRIPTED)
def F23():
    script = singles([10, 20, 30])
    ask = lambda **options: generate_stream(node("G"), script, stream_options=options)
    last = ask(include_usage=True)[-1]
    same("choices", last["choices"], [])
    has("usage", last["usage"], {"prompt_tokens": 21, "completion_tokens": 3, "total_tokens": 24})
    true("no nulls", None not in last["usage"].values() and None not in last.values(), last)
    running = ask(include_usage=True, continuous_usage_stats=True)[:-1]
    same("continuous", [c["usage"]["completion_tokens"] for c in running], [1, 2, 3])
    same("ignored alone", [c["usage"] for c in ask(continuous_usage_stats=True)], [None] * 3)


@case(SCRIPTED)
def F24():
    script = {"choices": [singles([10]), singles([20, 21]), singles([30, 31, 32])]}
    choices = generate(node("G"), script, {"n": 3}).ok()["choices"]
    same("choices", sorted([c["index"], c["token_ids"]] for c in choices), [[0, [10]], [1, [20, 21]], [2, [30, 31, 32]]])
    chunks = generate_stream(node("G"), script, {"n": 3}, stream_options={"include_usage": True})
    same("one choice per event", {len(c["choices"]) for c in chunks[:-1]} == {1}, True)
    same("streamed ids", {i: c["ids"] for i, c in sorted(assemble(chunks).items())}, {0: [10], 1: [20, 21], 2: [30, 31, 32]})
    same("usage", chunks[-1]["usage"]["completion_tokens"], 6)


@case(SCRIPTED)
def F25():
    same("batch", generate(node("G"), HI_SCRIPT, return_token_ids=True).ok()["prompt_token_ids"], P1)
    chunks = generate_stream(node("G"), singles([10, 20]), return_token_ids=True)
    same("stream", [c.get("prompt_token_ids", "<absent>") for c in chunks], [P1, "<absent>"])


@case(SCRIPTED)
def F26():
    if VLLM:
        raise Skip("empty steps in vLLM")
    ends = lambda *script: [[c["choices"][0]["token_ids"], c["choices"][0]["finish_reason"]] for c in generate_stream(node("G"), list(script))]
    same("empty step", ends(step([10]), step([]), step([20], "stop")), [[[10], None], [[20], "stop"]])
    same("finish only", ends(step([10]), step([], "length")), [[[10], None], [[], "length"]])


@case(SCRIPTED)
def F27():
    for ids in ours(([], [20]), ([20],)):
        script = [step([10]), step(ids, "error")]
        events = node("G").events(GENERATE, generate_body(script))
        same("end", events[-1], "[DONE]")
        error = events[-2].get("error") or {}
        has("error", error, {"type": "InternalServerError", "code": 500})
        true("message", "Internal server error" in error.get("message", ""), error)
        same("status", generate(node("G"), script).status, 500)


@case()
def F29():
    generate(node("G"), HI_SCRIPT, {"n": 16385}).refused("n 16385")


# ---------------------------------------------------------------------------------------------------- G. Coupled endpoints

def strings(list_of_entries):
    return [[e["token"], [t["token"] for t in e["top_logprobs"]]] for e in list_of_entries]


def coupled_bytes(placeholders):
    """What coupled chat writes: sampled bytes of the decoded token, alternatives' bytes of the string shown."""
    shown = PLACEHOLDERS if placeholders else DECODED
    return [[d["bytes"], [B(t["token"]) for t in s["top_logprobs"]]] for d, s in zip(DECODED, shown)]


@case(SCRIPTED)
def G1():
    for label, to, override, placeholders in matrix("C", "C!"):
        choice = chat(to, BASE_SCRIPT, logprobs=True, top_logprobs=2, return_tokens_as_token_ids=override).choice()
        got = entries(choice) or []
        same(label, strings(got), strings(PLACEHOLDERS if placeholders else DECODED))
        same(f"{label}: bytes", [[e["bytes"], [t["bytes"] for t in e["top_logprobs"]]] for e in got], coupled_bytes(placeholders))
        same(f"{label}: content", choice["message"]["content"], "é")


@case(SCRIPTED)
def G3():
    for label, to, override, placeholders in matrix("C", "C!"):
        want = PLACEHOLDER_TEXT if placeholders else DECODED_TEXT
        body = completion_body(BASE_SCRIPT, logprobs=2, return_tokens_as_token_ids=override)
        same(label, to.post("/v1/completions", body).choice()["logprobs"], want)
        chunks = [e for e in to.events("/v1/completions", body) if e != "[DONE]"]
        same(f"{label}: stream", join_text_logprobs(chunks), want)


def three_ways(to, generator, coupled, script, **fields):
    """One chat request answered by the coupled endpoint, by render -> generate -> derender, and by generate in derender mode."""
    request = {"messages": HI, "vllm_xargs": xargs(script), **fields}
    direct = coupled.post("/v1/chat/completions", request).ok("coupled")
    rendered = to.post("/v1/chat/completions/render", request).ok("render")
    tokens = generator.post(GENERATE, rendered).ok("generate")
    prompt = rendered["token_ids"]
    piped = to.post(CHAT, {"generate_response": tokens, "chat_request": request, "prompt_token_ids": prompt, "prompt_tokens": len(prompt)}).ok("derender")
    if VLLM:
        return {"coupled": direct, "piped": piped}
    whole = generator.post(GENERATE, {**rendered, "output_mode": "derender"}).ok("derender mode")
    return {"coupled": direct, "piped": piped, "derender mode": whole}


def comparable(body):
    """What parity compares: tool ids by form, bytes of placeholders blanked, logprobs to 1e-3."""
    out = []
    for choice in body["choices"]:
        message = {k: v for k, v in choice["message"].items() if k in ("role", "content", "reasoning")}
        message["tool_calls"] = [[re.sub("[0-9a-f]{16}$", "<hex>", c["id"]), c["function"]] for c in choice["message"].get("tool_calls") or []]
        rows = [[blank(e), [blank(t) for t in e["top_logprobs"]]] for e in entries(choice) or []]
        out.append([choice["index"], message, choice["finish_reason"], choice["stop_reason"], rows])
    usage = {k: body["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return [out, usage]


def blank(one):
    placeholder = one["token"].startswith("token_id:")
    return [one["token"], None if placeholder else one["bytes"], round(one["logprob"], 3)]


def parity(label, names, script, **fields):
    to, generator, coupled = map(node, names)
    answers = {way: comparable(body) for way, body in three_ways(to, generator, coupled, script, **fields).items()}
    for way in answers:
        same(f"{label}: {way} = coupled", answers[way], answers["coupled"])
    return answers["coupled"]


HI_E = [step([i], "stop" if n == 4 else None, [[[i, -0.5, 1], [72, -2.0, 2]]]) for n, i in enumerate(B("Hi é"))]


@case(SCRIPTED)
def G4():
    got = parity("default", ("R", "G", "C"), HI_E, logprobs=True, top_logprobs=2)
    same("content", got[0][0][1]["content"], "Hi é")


@case(NEW, SCRIPTED)
def G5():
    for names in (("R", "G", "C"), ("R!", "G!", "C!")):
        for override in (True, False):
            parity(f"{names[0]} {override}", names, HI_E, logprobs=True, top_logprobs=2, return_tokens_as_token_ids=override)


PARITY_SCRIPTS = {
    "E4": (E4_IDS, {}), "E9": ([260, *call_ids("Paris"), *call_ids("Rome")], {}),
    "E9 one": ([260, *call_ids("Paris"), *call_ids("Rome")], {"parallel_tool_calls": False}),
    "E14": ([260, *W], {"tool_choice": NAMED}), "E15": ([260, *W], {"tool_choice": "required"}),
    "E22": (E4_IDS, {"include_reasoning": False})}


@case(SCRIPTED)
def G7():
    for n in (1, 2):
        chunks = chat_events(node("C"), singles(B("Hi")), n=n)
        same(f"n={n}: first", [c["choices"][0]["delta"] for c in chunks[:n]], [{"role": "assistant", "content": ""}] * n)
        same(f"n={n}: roles", {i: c["roles"] for i, c in assemble(chunks).items()}, {i: 1 for i in range(n)})


@case(SCRIPTED)
def G9():
    chunks = chat_events(node("CP"), singles(E4_IDS), tools=TOOLS, logprobs=True, top_logprobs=1)
    same("entries", len(assemble(chunks)[0]["entries"]), len(E4_IDS))


# ---------------------------------------------------------------------------------------------------- H. Upgrade, tenancy, abort

@case(NEW, SCRIPTED)
def H1():
    old = node("GO")
    for override, fine in ((ABSENT, True), (True, False), (False, False)):
        rendered = render(node("R"), return_tokens_as_token_ids=override, vllm_xargs=xargs(HI_SCRIPT)).ok()
        answer = old.post(GENERATE, {**rendered, "output_mode": "derender"})
        answer.ok("default") if fine else answer.refused(f"override {override}")
        old.post(GENERATE, rendered).ok("tokens mode")


SLOW = [step([97], wait=50)] * 400


def abort(to, ident):
    return to.post(ABORT, {"request_ids": [ident]})


@case(SCRIPTED)
def H4():
    g, begun = node("G"), time.monotonic()
    with g.open(GENERATE, generate_body(SLOW)) as response_:
        events = sse(response_)
        ident = next(events)["request_id"]
        answer = abort(g, ident)
        same("abort", [answer.status, answer.text], [200, ""])
        rest = list(events)
    same("end", rest[-1], "[DONE]")
    has("last chunk", rest[-2]["choices"][0], {"finish_reason": "abort", "token_ids": []})
    true("at once", time.monotonic() - begun < 5)
    g.post(ABORT, {}).refused("missing key")
    g.post(ABORT, "{").refused("bad JSON")
    same("unknown id", abort(g, "nope").status, 200)


@case(SCRIPTED)
def H5():
    g = node("G")
    script = [step([97]), step([98]), step([120], "stop", wait=20000)]
    with g.open(GENERATE, generate_body(script, {"stop": ["abc"]}, output_mode="text")) as response_:
        events = sse(response_)
        first, second = next(events), next(events)
        same("held back", [first["choices"][0]["text"], second["choices"][0]["text"]], ["", ""])
        abort(g, first["request_id"])
        rest = list(events)
    has("last chunk", rest[-2]["choices"][0], {"finish_reason": "abort", "text": "ab"})


@case(OURS)
def H7():
    state = chunk_call(node("R"), [72, 195]).ok()["stream_state"]
    same("content", delta(chunk_call(node("RB"), [169], state).ok())["content"], "é")


@case(OURS)
def H8():
    for name, default in (("RT", True), ("RT!", False)):
        for label, override in OVERRIDES.items():
            placeholders = override if isinstance(override, bool) else default
            choice = derender(node(name), E_IDS, BASE, lp_request(override)).choice()
            same(f"{name} override {label}", entries(choice), PLACEHOLDERS if placeholders else DECODED)


# ---------------------------------------------------------------------------------------------------- run

def run(name, function, marks):
    """'passed', 'failed' or 'skipped'; failures are printed."""
    problems.clear()
    not_there = marks & ({NEW, OURS} if SCRIPTED_VLLM else {NEW, OURS, SCRIPTED})
    if VLLM and not_there:
        return "skipped", "not with vLLM 0.32.0: " + ", ".join(sorted(not_there))
    try:
        function()
    except Skip as missing:
        return "skipped", f"no {missing}"
    except Exception as exc:  # one broken case must not stop the others
        problems.append(str(exc) if isinstance(exc, AssertionError) else f"{type(exc).__name__}: {exc}")
    return ("failed", "") if problems else ("passed", "")


def main():
    global VLLM, SCRIPTED_VLLM
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="TARGET=URL[,KEY]")
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--scripted-vllm", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="every difference of a failing case; skipped cases by name")
    args = parser.parse_args()
    VLLM, SCRIPTED_VLLM = args.vllm or args.scripted_vllm, args.scripted_vllm
    for target in args.targets:
        name, _, address = target.partition("=")
        url, _, key = address.partition(",")
        TARGETS[name] = Node(url, key or None)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, (function, marks) in CASES.items():
        if not fnmatch.fnmatch(name, args.only):
            continue
        result, why = run(name, function, marks)
        counts[result] += 1
        if result == "failed":
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 and not args.verbose else ""
            print(f"FAIL {name}  {problems[0]}{more}")
            for problem in problems[1:] if args.verbose else ():
                print(f"     {name}  {problem}")
        elif result == "skipped" and args.verbose:
            print(f"skip {name}  {why}")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

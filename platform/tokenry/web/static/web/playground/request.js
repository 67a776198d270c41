// From the settings to the request that results, and the three ways to write it down.

const FLAG_STATES = { yes: true, no: false };
const WHOLE = new Set(["top_k", "max_tokens", "seed"]);
// What the openai package's method takes by name; everything else is this platform's, and travels in extra_body.
const OPENAI = new Set([
    "model", "messages", "stream", "logprobs", "top_logprobs", "temperature", "top_p", "presence_penalty", "frequency_penalty",
    "max_tokens", "seed", "stop", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "n", "response_format", "user",
    "reasoning_effort", "max_completion_tokens", "logit_bias", "service_tier", "store", "metadata", "functions", "function_call",
]);

export class Unusable extends Error {
    constructor(field, message) {
        super(`${field}: ${message}`);
        this.field = field;
    }
}

// Only what is set: a field that inherits is not in the request at all. Throws Unusable.
export function build(settings, messages) {
    const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
    const request = { model: settings.model, messages: [...system, ...messages], stream: true };
    if (settings.logprobs) {
        Object.assign(request, { logprobs: true, top_logprobs: number("top_logprobs", settings.top) });
    }
    for (const [name, state] of Object.entries(settings.flags)) {
        if (state in FLAG_STATES) {
            put(request, name, FLAG_STATES[state]);
        }
    }
    for (const [name, text] of Object.entries(settings.values)) {
        if (text.trim() !== "") {
            request[name] = name === "stop" ? stops(text) : number(name, text);
        }
    }
    putJSON(request, "chat_template_kwargs", settings.kwargs, isObject, "must be a JSON object");
    putJSON(request, "tools", settings.tools, Array.isArray, "must be a JSON list");
    return Object.assign(request, parsed("other fields", settings.extra, isObject, "must be a JSON object"));
}

export const asJSON = (request) => JSON.stringify(request, null, 2);

export function asCurl(request) {
    const body = asJSON(request).replaceAll("'", "'\\''");
    return [
        `curl ${location.origin}/v1/chat/completions \\`,
        '  -H "Authorization: Bearer $TOKENRY_KEY" \\',
        '  -H "Content-Type: application/json" \\',
        `  -d '${body}'`,
    ].join("\n");
}

export function asPython(request) {
    const entries = Object.entries(request);
    const known = entries.filter(([name]) => OPENAI.has(name)).map(([name, value]) => `    ${name}=${python(value, 4)},`);
    const others = entries.filter(([name]) => !OPENAI.has(name));
    const extra = others.length ? [`    extra_body=${python(Object.fromEntries(others), 4)},`] : [];
    return [
        "import os", "", "from openai import OpenAI", "",
        `client = OpenAI(base_url="${location.origin}/v1", api_key=os.environ["TOKENRY_KEY"])`,
        "stream = client.chat.completions.create(", ...known, ...extra, ")",
        "for chunk in stream:", "    if chunk.choices:", '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
    ].join("\n");
}

export function python(value, indent = 0) {
    const pad = " ".repeat(indent + 4);
    const end = " ".repeat(indent);
    if (value === null) {
        return "None";
    }
    if (typeof value === "boolean") {
        return value ? "True" : "False";
    }
    if (Array.isArray(value)) {
        return value.length ? `[\n${value.map((item) => `${pad}${python(item, indent + 4)},\n`).join("")}${end}]` : "[]";
    }
    if (typeof value === "object") {
        const items = Object.entries(value).map(([name, item]) => `${pad}${JSON.stringify(name)}: ${python(item, indent + 4)},\n`);
        return items.length ? `{\n${items.join("")}${end}}` : "{}";
    }
    return JSON.stringify(value); // numbers, and strings: JSON's escapes are Python's too
}

function put(request, dotted, value) {
    const [name, leaf] = dotted.split(".");
    if (leaf) {
        request[name] = { ...request[name], [leaf]: value };
    } else {
        request[name] = value;
    }
}

function number(name, text) {
    const value = Number(text);
    if (text.trim() === "" || !Number.isFinite(value)) {
        throw new Unusable(name, "must be a number");
    }
    if (WHOLE.has(name) && !Number.isSafeInteger(value)) {
        throw new Unusable(name, "must be a whole number (up to 2^53: a browser holds no larger one)");
    }
    return value;
}

// A list in JSON, or one string as it stands.
function stops(text) {
    return text.trim().startsWith("[") ? parsed("stop", text, Array.isArray, "must be a JSON list or one string") : [text];
}

function putJSON(request, name, text, fits, words) {
    if (text.trim() !== "") {
        request[name] = parsed(name, text, fits, words);
    }
}

function parsed(name, text, fits, words) {
    if (text.trim() === "") {
        return {};
    }
    let value;
    try {
        value = JSON.parse(text);
    } catch {
        throw new Unusable(name, `${words}; this is not JSON yet`);
    }
    if (!fits(value)) {
        throw new Unusable(name, words);
    }
    return value;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

#!/usr/bin/env python3
"""Replay recorded vLLM request/response pairs against running servers and report what differs.

    replay.py [--fixtures DIR] [--only GLOB] [--differences FILE] [-v] TARGET=URL[,KEY] ...

TARGET is the role that a fixture's `server` names: render, render-tools, render-auth, tokens-only, coupled, coupled-ids,
coupled-tools, plain. A fixture whose target is not given is skipped and counted. KEY, if given, is sent as a bearer token.
DIFFERENCES is a JSON list of {"case": glob, "at": glob, "reason": text}: differences that are there on purpose; each must still
occur, or it is reported as stale. Compared: status, shape, keys, ids, token strings, bytes exactly; logprobs to 1e-3; streams
after assembling their chunks; created, generated ids and tool call ids by form; error texts not at all. Needs httpx.
Exit status 0 when nothing unexplained differs.
"""
import argparse
import fnmatch
import json
import math
import re
import sys
from pathlib import Path

import httpx

LOGPROB_TOLERANCE = 1e-3
IGNORED = {"created", "system_fingerprint", "permission", "root", "parent", "metrics", "version", "server_load", "max_model_len_note"}
ID_KEYS = {"id", "request_id"}
SAMPLING_DEFAULTS = {
    "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0,
    "top_k": 0, "min_p": 0.0, "seed": None, "stop": [], "stop_token_ids": [], "bad_words": [], "ignore_eos": False,
    "max_tokens": 16, "min_tokens": 0, "logprobs": None, "prompt_logprobs": None, "detokenize": True, "skip_special_tokens": True,
    "spaces_between_special_tokens": True, "include_stop_str_in_output": False, "logit_bias": None, "allowed_token_ids": None,
    "structured_outputs": None, "extra_args": None, "logprob_token_ids": None, "stream_interval": None, "prompt_logprob_token_ids": None,
}
SAMPLING_IGNORED = {"output_kind", "skip_clone", "skip_reading_prefix_cache"}  # vLLM's own bookkeeping


def target_of(server: str) -> str:
    if "launch render" in server:
        return "render-auth" if "--api-key" in server else "render-tools" if "--tool-call-parser" in server else "render"
    if "--tokens-only" in server:
        return "tokens-only"
    if "--enable-scale-out" not in server:
        return "plain"
    if "--return-tokens-as-token-ids" in server:
        return "coupled-ids"
    return "coupled-tools" if "--tool-call-parser" in server else "coupled"


def id_form(value):
    """The readable part of a generated id: 'chatcmpl-3f..' and 'chatcmpl-77..' have the same form."""
    return re.sub(r"[0-9a-f]{16,32}", "<hex>", value) if isinstance(value, str) else value


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def differences(want, got, at="$", key=None):
    """Yield (path, wanted, got) for everything that differs."""
    if key in IGNORED:
        return
    if key in ID_KEYS or (key or "").endswith("tool_call_id") or (key == "id" and isinstance(want, str)):
        if id_form(want) != id_form(got):
            yield at, want, got
        return
    if isinstance(want, dict) and isinstance(got, dict):
        if key == "sampling_params":
            want = {**SAMPLING_DEFAULTS, **{k: v for k, v in want.items() if k not in SAMPLING_IGNORED}}
            got = {**SAMPLING_DEFAULTS, **{k: v for k, v in got.items() if k not in SAMPLING_IGNORED}}
            for params in (want, got):  # greedy: nucleus settings do not matter
                if params["temperature"] == 0:
                    params.update(top_p=1.0, min_p=0.0, top_k=0)
                for name in ("stop", "stop_token_ids", "bad_words"):
                    params[name] = params[name] or []
        for name in want:
            if name in IGNORED:
                continue
            if name not in got:
                yield f"{at}.{name}", want[name], "<missing>"
            else:
                yield from differences(want[name], got[name], f"{at}.{name}", name)
        for name in got:
            if name not in want and name not in IGNORED:
                yield f"{at}.{name}", "<absent>", got[name]
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{at}.length", len(want), len(got)
        for index, (a, b) in enumerate(zip(want, got)):
            yield from differences(a, b, f"{at}[{index}]", key)
    elif number(want) and number(got):
        close = math.isclose(want, got, abs_tol=LOGPROB_TOLERANCE, rel_tol=0) if "logprob" in at else want == got
        if not close:
            yield at, want, got
    elif want != got or type(want) is not type(got):
        yield at, want, got


def assemble(lines):
    """Fold an SSE stream into one object: per choice the joined text, ids, logprobs and endings; usage; the last line."""
    choices, usage, errors, ended = {}, None, [], False
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            ended = True
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            errors.append({k: chunk["error"].get(k) for k in ("type", "code")})
            continue
        if chunk.get("usage") and not chunk.get("choices"):
            usage = {k: v for k, v in chunk["usage"].items() if v is not None}
        for part in chunk.get("choices", []):
            choice = choices.setdefault(part["index"], {"text": "", "roles": 0, "ids": [], "logprobs": [], "reasoning": "", "tools": {}})
            delta = part.get("delta") or {}
            choice["text"] += part.get("text") or delta.get("content") or ""
            choice["reasoning"] += delta.get("reasoning") or ""
            choice["roles"] += 1 if delta.get("role") else 0
            for call in delta.get("tool_calls") or []:
                tool = choice["tools"].setdefault(str(call["index"]), {"name": "", "arguments": ""})
                function = call.get("function") or {}
                tool["name"] += function.get("name") or ""
                tool["arguments"] += function.get("arguments") or ""
            choice["ids"] += part.get("token_ids") or []
            logprobs = part.get("logprobs")
            if logprobs and "content" in logprobs:
                choice["logprobs"] += logprobs["content"] or []
            elif logprobs:
                choice["logprobs"].append(logprobs)
            for name in ("finish_reason", "stop_reason"):
                if part.get(name) is not None:
                    choice[name] = part[name]
    return {"choices": [choices[i] for i in sorted(choices)], "usage": usage, "errors": errors, "done": ended}


def judge(status, body, sse, recorded):
    """Differences between one recorded answer and one of ours."""
    if status != recorded["status"]:
        yield "$.status", recorded["status"], f"{status} {str(body)[:160]}"
        return
    want = recorded["response"]
    if status >= 400:
        want_error = want.get("error") if isinstance(want, dict) else None
        got_error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(want_error, dict) or not isinstance(got_error, dict):
            if type(want_error) is not type(got_error):
                yield "$.error", want_error, got_error
            return
        for name in ("type", "param", "code"):
            a, b = want_error.get(name), got_error.get(name)
            if name == "param" and isinstance(a, str) and isinstance(b, str):  # last part of the path: parsers name the rest differently
                a, b = a.split(".")[-1], b.split(".")[-1]
            if a != b:
                yield f"$.error.{name}", a, b
        return
    if recorded.get("sse"):
        if not sse:
            yield "$.sse", True, False
            return
        want, body = assemble(want), assemble(body)
    yield from differences(want, body)


def send(client, base, key, exchange, path):
    headers = dict(exchange.get("request_headers") or {})
    if key and "authorization" not in {h.lower() for h in headers}:
        headers["Authorization"] = f"Bearer {key}"
    body = exchange.get("request")
    if isinstance(body, dict) and "_raw" in body:
        raw = body["_raw"]
        content = raw.encode("latin-1")  # recorded byte by byte
        headers.setdefault("content-type", "application/json")
    elif body is None:
        content = None
    else:
        content = json.dumps(body).encode()
        headers.setdefault("content-type", "application/json")
    request = (exchange.get("method", "POST"), base + path)
    try:
        answer = client.request(*request, content=content, headers=headers)
    except httpx.ReadError:  # a kept-alive connection that the server had just closed
        answer = client.request(*request, content=content, headers=headers)
    if "text/event-stream" in answer.headers.get("content-type", ""):
        return answer.status_code, [line for line in answer.text.split("\n") if line], True
    try:
        return answer.status_code, answer.json(), False
    except ValueError:
        return answer.status_code, answer.text, False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures", type=Path, default=Path(__file__).resolve().parent / "vllm")
    parser.add_argument("--only", default="*")
    parser.add_argument("--differences", type=Path)
    parser.add_argument("-v", action="store_true", help="print every unexplained difference, not the first three of a case")
    parser.add_argument("targets", nargs="+")
    options = parser.parse_args()
    targets = {name: (url.split(",") + [None])[:2] for name, url in (t.split("=", 1) for t in options.targets)}
    on_purpose = json.loads(options.differences.read_text()) if options.differences else []
    hits = [0] * len(on_purpose)
    same = explained = skipped = 0
    failed = []
    with httpx.Client(timeout=120) as client:
        for file in sorted(options.fixtures.rglob("*.json")):
            case = str(file.relative_to(options.fixtures))[:-5]
            recording = json.loads(file.read_text())
            if not fnmatch.fnmatch(case, options.only) or "path" not in recording or "abort_real" in case:
                continue
            found, missing = [], False
            for step, exchange in enumerate(recording.get("exchanges") or [recording]):
                target = target_of(exchange.get("server") or recording.get("server") or "")
                if target not in targets:
                    missing = True
                    continue
                base, key = targets[target]
                try:
                    status, body, sse = send(client, base, key, exchange, exchange.get("path") or recording["path"])
                except (httpx.HTTPError, UnicodeError) as error:
                    found.append((f"$[{step}]", "an answer", repr(error)))
                    continue
                found += [(at if "exchanges" not in recording else f"#{step}{at}", a, b) for at, a, b in judge(status, body, sse, exchange)]
            if missing and not found:
                skipped += 1
                continue
            unexplained = []
            for at, want, got in found:
                reasons = [i for i, d in enumerate(on_purpose) if fnmatch.fnmatch(case, d["case"]) and fnmatch.fnmatch(at, d["at"])]
                for i in reasons:
                    hits[i] += 1
                if not reasons:
                    unexplained.append((at, want, got))
            if unexplained:
                failed.append(case)
                print(f"DIFFERS {case}")
                for at, want, got in unexplained if options.v else unexplained[:3]:
                    print(f"    {at}: recorded {str(want)[:110]!r}, ours {str(got)[:110]!r}")
                if not options.v and len(unexplained) > 3:
                    print(f"    ... and {len(unexplained) - 3} more")
            elif found:
                explained += 1
            else:
                same += 1
    stale = [d for d, n in zip(on_purpose, hits) if not n]
    for d in stale:
        print(f"STALE   {d['case']} {d['at']}: {d['reason']}")
    print(f"{same} same, {explained} differ on purpose, {len(failed)} differ, {skipped} skipped (no such target)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the text side's tests share: the models, the case list's prompts and rows, and one call per step of the pipeline.

R and R! are byte level (T1), R2 is SentencePiece-like (T2), RP is T1 with a tool and a reasoning parser; the others have real tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from inference import derender
from inference.model import ServedModel, load_model
from inference.protocol import codec
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.completions import CompletionRequest
from inference.protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
)
from inference.protocol.generate import GenerateChunk, GenerateChunkChoice
from inference.render import COMPLETION_BUILT_IN, chat_settings, completion_settings, render_chat, render_completion
from inference.rendered import Rendered
from inference.resolve import BUILT_IN, Layer, resolve
from tests.inference.families import FAMILIES, tokenizer_folder

FIXTURES = Path(__file__).parents[1] / "fixtures"
HI = [{"role": "user", "content": "Hi"}]
INSTRUCTION = "{{ bos_token }}[INST] {{ messages[-1]['content'] }} [/INST]"  # for families whose files bring no template
ABSENT: Any = object()
OVERRIDES = {"absent": ABSENT, "null": None, "true": True, "false": False}


def b(text: str) -> list[int]:
    """T1's ids of a text: its bytes."""
    return list(text.encode())


P1 = [257, *b("user\nHi"), 258, 10, 257, *b("assistant\n")]


@cache
def model(name: str = "R") -> ServedModel:
    """Raises Missing: a family's tokenizer cannot be had here."""
    fields: dict[str, Any] = {}
    if name == "RP":
        fields = {"tool_call_parser": "hermes", "reasoning_parser": "deepseek_r1", "enable_auto_tool_choice": True}
    if name in ("llama2", "tekken"):
        fields = {"chat_template": INSTRUCTION}
    return load_model(folder(name), names=("m",), max_model_len=512, return_tokens_as_token_ids=True if name == "R!" else None, **fields)


def folder(name: str) -> Path:
    if name in FAMILIES:
        return tokenizer_folder(name)
    return {"R2": FIXTURES / "tokenizers" / "t2", "smollm2": FIXTURES / "smollm2"}.get(name, FIXTURES / "tokenizers" / "t1")


def matrix() -> list[tuple[str, Any, bool]]:
    """(model, override, whether placeholders come out): the truth table of pipeline.md 9."""
    rows = [(name, override, flag) for name, flag in (("R", False), ("R!", True)) for override in OVERRIDES.values()]
    return [(name, override, override if isinstance(override, bool) else flag) for name, override, flag in rows]


def given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not ABSENT}


def chat_render(to: ServedModel, layers: Sequence[Layer] = (), request_id: str = "chatcmpl-1", **fields: Any) -> Rendered:
    request = codec.convert(ChatCompletionRequest, given({"messages": HI, **fields}))
    return render_chat(request, resolve(chat_settings(request), (*layers, *to.layers)), to, request_id)


def completion_render(
    to: ServedModel, prompt: Any, layers: Sequence[Layer] = (), request_id: str = "cmpl-1", **fields: Any
) -> list[Rendered]:
    request = codec.convert(CompletionRequest, given({"prompt": prompt, **fields}))
    effective = resolve(completion_settings(request), (*layers, *to.layers), COMPLETION_BUILT_IN)
    return render_completion(request, effective, to, request_id)


# ---- derender, through JSON and back, as a client sees it

def response(ids: Any, lps: Any = None, finish: str | None = "stop", index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"request_id": "r", "choices": [{"index": index, "token_ids": ids, "logprobs": lps, "finish_reason": finish}], **fields}


def derendered(to: ServedModel, body: dict[str, Any], kind: str = "chat", layers: Sequence[Layer] = ()) -> dict[str, Any]:
    """One /derender call: `kind` chat or completion, `stream` in the body as a client writes it."""
    shapes: dict[tuple[str, bool], tuple[Any, Any]] = {
        ("chat", False): (DerenderChatRequest, derender.derender_chat),
        ("chat", True): (DerenderChatStreamRequest, derender.derender_chat_chunk),
        ("completion", False): (DerenderCompletionRequest, derender.derender_completion),
        ("completion", True): (DerenderCompletionStreamRequest, derender.derender_completion_chunk),
    }
    shape, call = shapes[kind, body.get("stream") is True]
    asked = codec.decode(shape, json.dumps(given(body)).encode())
    original = getattr(asked, f"{kind}_request")
    settings = {} if original is None else (chat_settings if kind == "chat" else completion_settings)(original)
    effective = resolve(settings, (*layers, *to.layers), BUILT_IN if kind == "chat" else COMPLETION_BUILT_IN)
    answer: dict[str, Any] = json.loads(codec.encode(call(asked, to, effective)))
    return answer


def whole_chat(to: ServedModel, ids: Any, lps: Any = None, request: Any = ABSENT, **fields: Any) -> dict[str, Any]:
    return derendered(to, {"generate_response": response(ids, lps), "chat_request": chat_request(request), **fields})


def whole_text(to: ServedModel, ids: Any, lps: Any = None, request: Any = ABSENT, **fields: Any) -> dict[str, Any]:
    return derendered(to, {"generate_responses": [response(ids, lps)], "completion_request": text_request(request), **fields}, "completion")


def chunk_call(to: ServedModel, ids: Any, state: Any = None, lps: Any = None, finish: str | None = None, kind: str = "chat",
               index: int = 0, **fields: Any) -> dict[str, Any]:
    body = {"stream": True, "generate_chunk": response(ids, lps, finish, index), "stream_state": state, **fields}
    return derendered(to, body, kind)


def chunked(to: ServedModel, pieces: Sequence[Sequence[int]], lps: Any = None, kind: str = "chat", **fields: Any) -> list[dict[str, Any]]:
    """All calls of one stream; the last carries the end."""
    state, bodies, at = None, [], 0
    for number, ids in enumerate(pieces):
        part = None if lps is None else {"content": lps["content"][at : at + len(ids)]}
        finish = "stop" if number == len(pieces) - 1 else None
        bodies.append(chunk_call(to, list(ids), state, part, finish, kind, **fields))
        state, at = bodies[-1]["stream_state"], at + len(ids)
    return bodies


def chat_request(fields: Any) -> Any:
    return fields if fields is ABSENT else given({"messages": HI, **fields})


def text_request(fields: Any) -> Any:
    return fields if fields is ABSENT else given({"prompt": "x", **fields})


# ---- coupled answers over a node's chunks

def coupled(
    to: ServedModel, chunks: Sequence[dict[str, Any]], layers: Sequence[Layer] = (), **fields: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """(answer, chunks shown): a chat request answered by these choices of a node, one after another."""
    request = codec.convert(ChatCompletionRequest, given({"messages": HI, **fields}))
    effective = resolve(chat_settings(request), (*layers, *to.layers))
    rendered = render_chat(request, effective, to, "chatcmpl-1")
    answer = derender.ChatAnswer(request, effective, to, rendered, request_id="chatcmpl-1", created=1)
    return answer, run(answer, chunks)


def coupled_text(
    to: ServedModel, chunks: Sequence[dict[str, Any]], prompt: Any = "Hi", prompt_logprobs: Any = None, **fields: Any
) -> tuple[Any, list[dict[str, Any]]]:
    request = codec.convert(CompletionRequest, given({"prompt": prompt, **fields}))
    effective = resolve(completion_settings(request), to.layers, COMPLETION_BUILT_IN)
    rendered = render_completion(request, effective, to, "cmpl-1")
    answer = derender.CompletionAnswer(request, effective, to, rendered, request_id="cmpl-1", created=1)
    return answer, run(answer, chunks, prompt_logprobs)


def run(answer: derender.Answer, chunks: Sequence[dict[str, Any]], prompt_logprobs: Any = None) -> list[dict[str, Any]]:
    shown = list(answer.start())
    for number, choice in enumerate(chunks):
        fed = dict(choice)
        chunk = GenerateChunk(request_id="x", choices=[])
        prompt = fed.pop("prompt", 0)
        chunk.choices.append(GenerateChunkChoice(**{"index": 0, **fed}))
        if number == 0 and prompt_logprobs is not None:
            chunk.prompt_logprobs = prompt_logprobs
        shown += answer.feed(prompt, chunk)
    return [json.loads(codec.encode(each)) for each in shown + answer.finish()]


def whole(answer: derender.Answer) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(codec.encode(answer.whole()))
    return made


def singles(ids: Sequence[int], lps: Any = None, size: int = 1, finish: str = "stop", **fields: Any) -> list[dict[str, Any]]:
    """A node's choices, `size` tokens each."""
    cuts = range(0, len(ids), size)
    return [
        {
            "token_ids": list(ids[i : i + size]),
            "logprobs": None if lps is None else {"content": lps["content"][i : i + size]},
            "finish_reason": finish if i == cuts[-1] else None,
            **fields,
        }
        for i in cuts
    ]


# ---- logprobs of the case list

def lp(*entries: tuple[Any, ...]) -> dict[str, Any]:
    """Entries (id, logprob, rank[, candidates]); without candidates the sampled token is the only one."""
    content = []
    for token, logprob, rank, *more in entries:
        row = more[0] if more else [(token, logprob, rank)]
        tops = [{"token_id": i, "logprob": value, "rank": place} for i, value, place in row]
        content.append({"token_id": token, "logprob": logprob, "rank": rank, "top_logprobs": tops})
    return {"content": content}


def plain_lps(ids: Sequence[int]) -> dict[str, Any]:
    return lp(*((i, -0.5, 1) for i in ids))


def entry(token: str, raw: Any, logprob: float, *tops: tuple[str, Any, float]) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": raw, "top_logprobs": [{"token": t, "logprob": p, "bytes": r} for t, r, p in tops]}


E_IDS = b("é")
BASE = lp((195, -0.1, 1, [(195, -0.1, 1), (72, -3.0, 2)]), (169, -0.2, 1, [(169, -0.2, 1), (170, -1.5, 2)]))
DECODED = [
    entry("", [], -0.1, ("", [], -0.1), ("H", [72], -3.0)),
    entry("é", [195, 169], -0.2, ("é", [195, 169], -0.2), ("ê", [195, 170], -1.5)),
]
PLACEHOLDERS = [
    entry("token_id:195", None, -0.1, ("token_id:195", None, -0.1), ("token_id:72", None, -3.0)),
    entry("token_id:169", None, -0.2, ("token_id:169", None, -0.2), ("token_id:170", None, -1.5)),
]
DECODED_TEXT = {
    "tokens": ["", "é"],
    "token_logprobs": [-0.1, -0.2],
    "top_logprobs": [{"": -0.1, "H": -3.0}, {"é": -0.2, "ê": -1.5}],
    "text_offset": [0, 0],
}
PLACEHOLDER_TEXT = {
    "tokens": ["token_id:195", "token_id:169"],
    "token_logprobs": [-0.1, -0.2],
    "top_logprobs": [{"token_id:195": -0.1, "token_id:72": -3.0}, {"token_id:169": -0.2, "token_id:170": -1.5}],
    "text_offset": [0, 12],
}

"""However a node cuts its tokens, and whichever way they come out: the same text, the same names, the same offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inference.derender import Session, open_session, text_writer
from inference.detokenize import Detokenizer
from inference.protocol import codec
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.derender import OpenSession, StreamState
from inference.protocol.generate import GenerateChoice, GenerateChunkChoice, GenerateRequest, TokensChunk
from inference.render import chat_settings
from inference.resolve import resolve
from inference.sampling import engine_sampling
from tests.inference.random_ids import cut_ids, ids_of, lps_of, quick
from tests.inference.samples import (
    HI,
    chunked,
    coupled,
    coupled_text,
    derendered,
    model,
    response,
    whole,
    whole_chat,
    whole_text,
)


def parts_of(pieces: Sequence[Sequence[int]], lps: dict[str, Any]) -> list[dict[str, Any]]:
    """A node's choices for these pieces; the end comes by itself, so that it hides no token."""
    at, parts = 0, []
    for ids in pieces:
        parts.append({"token_ids": list(ids), "logprobs": {"content": lps["content"][at : at + len(ids)]}})
        at += len(ids)
    return [*parts, {"token_ids": [], "finish_reason": "length"}]


def prompts(name: str) -> st.SearchStrategy[list[int] | None]:
    return st.one_of(st.none(), ids_of(name))


@quick
@given(data=st.data(), skip=st.booleans())
def test_text(name: str, data: st.DataObject, skip: bool) -> None:
    """A window that travels between calls gives what one that stays gives, and never grows with the output."""
    ids, pieces = data.draw(cut_ids(name))
    prompt = data.draw(prompts(name))
    stays = Detokenizer(model(name).tokenizer, skip_special_tokens=skip)
    stays.seed(prompt)
    state, text = StreamState(), ""
    for piece in pieces:
        call = Detokenizer(model(name).tokenizer, skip_special_tokens=skip)
        if state.prev_tokens:
            call.restore(state)
        else:
            call.seed(prompt)
        text += call.feed(piece)
        call.save(state, fed=bool(piece))
    assert text == stays.feed(ids)


@quick
@given(data=st.data(), as_ids=st.booleans(), skip=st.booleans())
def test_chat_chunks_add_up_to_the_whole(name: str, data: st.DataObject, as_ids: bool, skip: bool) -> None:
    ids, pieces = data.draw(cut_ids(name))
    while not pieces[-1]:  # the end comes with its token: of one that was told before, nobody knew that it was the end
        pieces.pop()
    lps = lps_of(ids, model(name).vocab_size)
    shown = {"return_tokens_as_token_ids": as_ids, "skip_special_tokens": skip, "return_output_offsets": True}
    request = {"messages": HI, "logprobs": True, "top_logprobs": 2, **shown}
    shared = {"prompt_token_ids": data.draw(prompts(name))}
    want = derendered(model(name), {"generate_response": response(ids, lps), "chat_request": request, **shared})["choices"][0]
    calls = [body["chunk"]["choices"][0] for body in chunked(model(name), pieces, lps, chat_request=request, **shared)]
    assert "".join(call["delta"]["content"] for call in calls if call["delta"]["content"] is not None) == want["message"]["content"]
    assert [entry for call in calls for entry in call["logprobs"]["content"]] == want["logprobs"]["content"]
    assert [offset for call in calls for offset in call["output_offsets"]] == want["output_offsets"]


@quick
@given(data=st.data(), bare=st.booleans(), skip=st.booleans())
def test_a_session_says_what_the_calls_say(name: str, data: st.DataObject, bare: bool, skip: bool) -> None:
    """Also one that goes on with another's state. `bare`: chunks of nothing but ids, for which there are shorter ways."""
    ids, pieces = data.draw(cut_ids(name))
    lps = None if bare else lps_of(ids, model(name).vocab_size)
    request = {"messages": HI, "logprobs": not bare, "skip_special_tokens": skip}
    asked = {"chat_request": request, "prompt_token_ids": data.draw(prompts(name))}
    calls = chunked(model(name), pieces, lps, **asked)
    change = data.draw(st.integers(0, len(pieces)))
    first = opened(name, asked)
    shown = in_session(first, pieces[:change], lps)
    assert first.states.get(0, StreamState()).prev_tokens == (calls[change - 1]["stream_state"]["prev_tokens"] if change else [])
    second = opened(name, {**asked, "stream_state": codec.decode(dict, codec.encode(first.states[0])) if change else None})
    shown += in_session(second, pieces[change:], lps, sum(map(len, pieces[:change])))
    deltas = [call["chunk"]["choices"][0] for call in calls]
    assert [choice["delta"] for choice in shown] == [choice["delta"] for choice in deltas]
    assert [choice["logprobs"] for choice in shown] == [choice["logprobs"] for choice in deltas]


def opened(name: str, asked: dict[str, Any]) -> Session:
    effective = resolve(chat_settings(codec.convert(ChatCompletionRequest, asked["chat_request"])), model(name).layers)
    return open_session(codec.convert(OpenSession, asked), model(name), effective)


def in_session(session: Session, pieces: Sequence[Sequence[int]], lps: dict[str, Any] | None, at: int = 0) -> list[dict[str, Any]]:
    """The choices shown for these pieces, of which the first is the token number `at`."""
    shown = []
    for ids in pieces:
        part = None if lps is None else {"content": lps["content"][at : at + len(ids)]}
        chunk = codec.convert(TokensChunk, response(list(ids), part, finish=None))
        shown += codec.decode(dict, codec.encode(session.feed(chunk)))["choices"]
        at += len(ids)
    return shown


@quick
@given(data=st.data(), as_ids=st.booleans(), skip=st.booleans())
def test_completion_chunks_add_up_to_the_whole(name: str, data: st.DataObject, as_ids: bool, skip: bool) -> None:
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    prompt = data.draw(prompts(name))
    request = {"prompt": "x", "logprobs": 1, "return_tokens_as_token_ids": as_ids, "skip_special_tokens": skip}
    body = {"generate_responses": [response(ids, lps)], "completion_request": request, "prompt_token_ids": [prompt]}
    want = derendered(model(name), body, "completion")["choices"][0]
    shared = {"completion_request": request, "prompt_token_ids": prompt}
    calls = [made["chunk"]["choices"][0] for made in chunked(model(name), pieces, lps, "completion", **shared)]
    assert "".join(call["text"] for call in calls) == want["text"]
    for key, values in want["logprobs"].items():
        assert [value for call in calls for value in call["logprobs"][key]] == values


@quick
@given(data=st.data(), as_ids=st.booleans(), skip=st.booleans())
def test_coupled_derendered_and_generated_chats_agree(name: str, data: st.DataObject, as_ids: bool, skip: bool) -> None:
    """Streamed, whole, through /derender, and as a node writes it; a placeholder's bytes are the one thing that differs."""
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": as_ids, "skip_special_tokens": skip}
    answer, _ = coupled(model(name), parts_of(pieces, lps), **fields)
    _, chunks = coupled(model(name), parts_of(pieces, lps), stream=True, **fields)
    choice = whole(answer)["choices"][0]
    prompt = answer.rendered.token_ids
    derender = whole_chat(model(name), ids, lps, fields, prompt_token_ids=prompt)["choices"][0]
    node = generated(name, "derender", prompt, parts_of(pieces, lps), as_ids=as_ids, skip=skip)
    streamed = [part for chunk in chunks for part in chunk["choices"]]
    text = choice["message"]["content"]
    assert text == derender["message"]["content"] == node["message"]["content"] == "".join(part["delta"]["content"] for part in streamed)
    shown = [entry for part in streamed if part["logprobs"] is not None for entry in part["logprobs"]["content"]]
    assert choice["logprobs"]["content"] == shown
    assert blanked(shown, as_ids) == blanked(derender["logprobs"]["content"], as_ids)
    assert derender["logprobs"] == node["logprobs"]


@quick
@given(data=st.data(), as_ids=st.booleans(), skip=st.booleans())
def test_coupled_derendered_and_generated_texts_agree(name: str, data: st.DataObject, as_ids: bool, skip: bool) -> None:
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    prompt = data.draw(ids_of(name).map(lambda found: [i for i in found if i < model(name).vocab_size]).filter(bool))
    fields = {"logprobs": 1, "return_tokens_as_token_ids": as_ids, "skip_special_tokens": skip}
    coupled_choice = whole(coupled_text(model(name), parts_of(pieces, lps), prompt=prompt, **fields)[0])["choices"][0]
    derender = whole_text(model(name), ids, lps, fields, prompt_token_ids=[prompt])["choices"][0]
    node = generated(name, "text", prompt, parts_of(pieces, lps), as_ids=as_ids, skip=skip)
    assert coupled_choice["text"] == derender["text"] == node["text"]
    assert coupled_choice["logprobs"] == derender["logprobs"]
    names = derender["logprobs"]["tokens"]
    assert derender["logprobs"]["text_offset"] == list(accumulate(map(len, names[:-1]), initial=0))
    assert names == [entry["token"] for entry in node["logprobs"]["content"]]


def generated(name: str, mode: str, prompt: list[int], parts: list[dict[str, Any]], *, as_ids: bool, skip: bool) -> dict[str, Any]:
    """A node's whole choice. In mode text the override is the node's default; in mode derender it is the request's."""
    context = {"return_tokens_as_token_ids": as_ids} if mode == "derender" else None
    sampling = {"logprobs": 2, "skip_special_tokens": skip}
    body = {"token_ids": prompt, "output_mode": mode, "sampling_params": sampling, "parse_context": context}
    request = codec.convert(GenerateRequest, body)
    full = engine_sampling(request.sampling_params, prompt_token_ids=prompt, model=model(name), scripted=True)
    writer = text_writer(request, full, model(name), as_ids=as_ids if mode == "text" else False)
    assert writer is not None
    made = [writer.feed(GenerateChunkChoice(index=0, **part)) for part in parts]
    ids = [i for part in made if part is not None for i in part.token_ids or ()]
    return codec.decode(dict, codec.encode(writer.dress_whole(GenerateChoice(index=0, token_ids=ids, finish_reason="length"))))


def blanked(entries: list[dict[str, Any]], blank: bool) -> list[Any]:
    if not blank:
        return entries
    return [[entry["token"], entry["logprob"], [[top["token"], top["logprob"]] for top in entry["top_logprobs"]]] for entry in entries]


@quick
@given(data=st.data(), stops=st.lists(st.sampled_from(["e", "the", "本", " t", "\n", "😀", "é"]), min_size=1, max_size=3))
def test_stop_strings_end_the_same_text_at_the_same_place(name: str, data: st.DataObject, stops: list[str]) -> None:
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    cut, _ = coupled_text(model(name), parts_of(pieces, lps), stop=stops, logprobs=1, return_token_ids=True)
    single, _ = coupled_text(model(name), parts_of([[i] for i in ids], lps), stop=stops, logprobs=1, return_token_ids=True)
    free, _ = coupled_text(model(name), parts_of(pieces, lps))
    made = whole(cut)
    assert made["choices"] == whole(single)["choices"]
    assert made["usage"] == whole(single)["usage"]
    choice, full = made["choices"][0], whole(free)["choices"][0]["text"]
    assert full.startswith(choice["text"])
    assert not any(stop in choice["text"] for stop in stops)
    assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"]) == made["usage"]["completion_tokens"]
    if choice["stop_reason"] is not None:
        assert full.startswith(choice["text"] + choice["stop_reason"])

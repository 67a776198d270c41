"""Logprobs in every shape that goes out (pipeline.md 8). The strings are made here, once, from token ids; they are never parsed back.

Shapes: `generate_logprobs` (ids, from engine rows), `TokenNamer.chat` and `TokenNamer.completion` (strings, or `token_id:N` placeholders),
`named_prompt_logprobs` (per prompt token, by id).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference.protocol.chat import ChatLogprob, ChatLogprobs, TopLogprob
from inference.protocol.codec import convert
from inference.protocol.completions import CompletionLogprobs
from inference.protocol.derender import MAX_CONTEXT_IDS
from inference.protocol.engine import Row
from inference.protocol.generate import Candidate, GenerateLogprobs, TokenLogprobs
from inference.tokenizer import NO_TOKEN, REPLACEMENT, Tokenizer, TokenText

LOWEST = -9999.0
PromptLogprobs = list[dict[str, Any] | None]
BEGINNING = TokenText("", ())  # a token that holds part of a character, and not its end


class TokenNamer:
    """Names the tokens of one choice, in order. `context` (the last sampled ids) and `text_offset` carry on from chunk to chunk.

    Args:
        as_ids: `token_id:N` instead of the decoded text.
        keep: how many candidates of each token to show; None for all.
        coupled: as the coupled endpoints write it, where that differs: a placeholder's bytes, and a token without an engine entry.
    """

    __slots__ = ("_as_ids", "_coupled", "_keep", "_tokenizer", "context", "text_offset")

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool, keep: int | None, coupled: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids
        self._keep = keep
        self._coupled = coupled
        self.context: list[int] = []
        self.text_offset = 0

    def pass_by(self, token_ids: Sequence[int]) -> None:
        """Sampled ids count as context whether or not they came with logprobs."""
        context = self.context
        context += token_ids
        if len(context) > MAX_CONTEXT_IDS:
            del context[:-MAX_CONTEXT_IDS]

    def chat(self, entries: Sequence[TokenLogprobs]) -> ChatLogprobs:
        named = self._placeholder_entry if self._as_ids else self._decoded_entry
        ids, start = self._sampled(entries), len(self.context)
        return ChatLogprobs(content=[named(entry, ids, at) for at, entry in enumerate(entries, start)])

    def completion(self, entries: Sequence[TokenLogprobs | None], first_id: int | None = None) -> CompletionLogprobs:
        """None stands for a prompt's first token (`first_id`), which nothing predicts."""
        shown = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        present = [TokenLogprobs(token_id=-1 if first_id is None else first_id, logprob=0.0) if e is None else e for e in entries]
        ids, start = self._sampled(present), len(self.context)
        for at, (original, entry) in enumerate(zip(entries, present, strict=True), start):
            name = self._name(entry.token_id, ids, at)
            shown.tokens.append(name)
            shown.token_logprobs.append(None if original is None or self._lacks_entry(entry) else clamp(entry.logprob))
            tops: dict[str, float | None] = {self._name(c.token_id, ids, at): clamp(c.logprob) for c in entry.top_logprobs[: self._keep]}
            shown.top_logprobs.append(tops if entry.top_logprobs else None)
            shown.text_offset.append(self.text_offset)
            self.text_offset += len(name)
        return shown

    def _lacks_entry(self, entry: TokenLogprobs) -> bool:
        return self._coupled and not entry.top_logprobs

    def _decoded_entry(self, entry: TokenLogprobs, ids: list[int], at: int) -> ChatLogprob:
        """Candidates come by the thousand, so what `_decoded` and `clamp` do for one is written out for them."""
        texts, size, tops = self._tokenizer.texts, self._tokenizer.vocab_size, []
        for candidate in entry.top_logprobs[: self._keep]:
            token_id, logprob = candidate.token_id, candidate.logprob
            token = texts[token_id] if 0 <= token_id < size else NO_TOKEN
            if token.broken:
                token = self._decoded(token_id, ids, at)
            tops.append(TopLogprob(token=token.text, logprob=logprob if logprob > LOWEST else LOWEST, bytes=token.bytes))
        token = self._decoded(entry.token_id, ids, at)
        return ChatLogprob(token=token.text, logprob=clamp(entry.logprob), bytes=token.bytes, top_logprobs=tops)

    def _placeholder_entry(self, entry: TokenLogprobs, ids: list[int], at: int) -> ChatLogprob:
        """On derender paths a placeholder has no bytes. Coupled answers have: the decoded token's, and for candidates the placeholder's."""
        name = placeholder(entry.token_id)
        own: tuple[int, ...] | None = None
        if self._coupled:
            own = self._decoded(entry.token_id, ids, at).bytes if entry.top_logprobs else tuple(name.encode())
        tops = []
        for candidate in entry.top_logprobs[: self._keep]:
            top = placeholder(candidate.token_id)
            tops.append(TopLogprob(token=top, logprob=clamp(candidate.logprob), bytes=tuple(top.encode()) if self._coupled else None))
        return ChatLogprob(token=name, logprob=clamp(entry.logprob), bytes=own, top_logprobs=tops)

    def _name(self, token_id: int, ids: list[int], at: int) -> str:
        return placeholder(token_id) if self._as_ids else self._decoded(token_id, ids, at).text

    def _decoded(self, token_id: int, ids: list[int], at: int) -> TokenText:
        """After the ids before `at`. Candidates share those: they are alternatives, they never follow one another."""
        token = self._tokenizer.text(token_id)
        return decoded(self._tokenizer, token_id, ids[max(at - MAX_CONTEXT_IDS, 0) : at]) if token.broken else token

    def _sampled(self, entries: Sequence[TokenLogprobs]) -> list[int]:
        """All ids known to have been sampled; those of the entries begin after the context."""
        return [*self.context, *[entry.token_id for entry in entries]]


def decoded(tokenizer: Tokenizer, token_id: int, context: Sequence[int]) -> TokenText:
    """A token's text; one that completes a character gets the whole character, and those that began it get nothing (pipeline.md 8.3)."""
    token = tokenizer.text(token_id)
    if not token.broken:
        return token
    return completed(tokenizer, token_id, context) if token.completes and ends_open(tokenizer, context) else BEGINNING


def ends_open(tokenizer: Tokenizer, context: Sequence[int]) -> bool:
    """Whether the context may end within a character; behind a whole one there is nothing to complete. Ids without a text say nothing."""
    if not context:
        return False
    last = tokenizer.text(context[-1])
    return last.broken or not last.text


def completed(tokenizer: Tokenizer, token_id: int, context: Sequence[int]) -> TokenText:
    for count in range(1, min(len(context), MAX_CONTEXT_IDS) + 1):
        before = list(context[-count:])
        whole = tokenizer.decode([*before, token_id])
        if whole.endswith(REPLACEMENT):
            continue
        while before and tokenizer.text(before[-1]).broken:
            before.pop()
        text = without_prefix(whole, tokenizer.decode(before))
        return TokenText(text, tuple(text.encode()))
    return BEGINNING


def without_prefix(whole: str, prefix: str) -> str:
    """What `whole` has beyond the context's text; a decoder may join the two differently, then beyond what they share."""
    shared = 0
    while shared < min(len(prefix), len(whole)) and prefix[shared] == whole[shared]:
        shared += 1
    return whole[shared:]


def placeholder(token_id: int) -> str:
    return f"token_id:{token_id}"


def clamp(logprob: float) -> float:
    """JSON has neither -inf nor NaN, which compares false with everything."""
    return logprob if logprob > LOWEST else LOWEST


def entries_of(logprobs: Any, path: str) -> list[TokenLogprobs] | None:
    """The entries of a generate answer's logprobs, which is plain JSON still because other modes put other shapes there.

    Raises:
        SchemaError: not the generate shape; `param` is the path below `path`.
    """
    if logprobs is None or isinstance(logprobs, GenerateLogprobs):
        return None if logprobs is None else logprobs.content
    return convert(GenerateLogprobs, logprobs, root=path).content


def generate_logprobs(token_ids: Sequence[int], rows: Sequence[Row]) -> GenerateLogprobs:
    """From the engine's rows: every candidate, in engine order."""
    return GenerateLogprobs(content=[token_logprobs(token_id, row) for token_id, row in zip(token_ids, rows, strict=True)])


def token_logprobs(token_id: int, row: Row) -> TokenLogprobs:
    tops = [Candidate(token_id=i, logprob=clamp(logprob), rank=known_rank(logprob, rank)) for i, logprob, rank in row]
    own = next((top for top in tops if top.token_id == token_id), None)
    if own is None:
        return TokenLogprobs(token_id=token_id, logprob=LOWEST, rank=None, top_logprobs=[])
    return TokenLogprobs(token_id=token_id, logprob=own.logprob, rank=own.rank, top_logprobs=tops)


def known_rank(logprob: float, rank: int | None) -> int | None:
    """Ranks start at 1; the engine writes 0, or NaN beside it, where it could not rank."""
    return None if rank == 0 or logprob != logprob else rank


def prompt_logprobs(rows: Sequence[Row | None]) -> PromptLogprobs:
    """The wire's prompt_logprobs; names are filled in by whoever has a tokenizer."""
    return [None if row is None else {str(i): prompt_candidate(logprob, rank) for i, logprob, rank in row} for row in rows]


def prompt_candidate(logprob: float, rank: int | None) -> dict[str, Any]:
    return {"logprob": clamp(logprob), "rank": known_rank(logprob, rank), "decoded_token": None}


def named_prompt_logprobs(prompt_logprobs: PromptLogprobs, prompt_ids: Sequence[int], tokenizer: Tokenizer) -> PromptLogprobs:
    """With `decoded_token`, each in the light of the prompt before it."""
    named: PromptLogprobs = []
    for position, row in enumerate(prompt_logprobs):
        context = prompt_ids[max(position - MAX_CONTEXT_IDS, 0) : position]
        named.append(None if row is None else {key: with_name(entry, int(key), context, tokenizer) for key, entry in row.items()})
    return named


def with_name(entry: dict[str, Any], token_id: int, context: Sequence[int], tokenizer: Tokenizer) -> dict[str, Any]:
    return {**entry, "logprob": clamp(entry["logprob"]), "decoded_token": decoded(tokenizer, token_id, context).text}


def prompt_entries(prompt_logprobs: PromptLogprobs, prompt_ids: Sequence[int]) -> list[TokenLogprobs | None]:
    """Prompt logprobs as entries, for an echo: one per prompt token, None for the first."""
    return [None if row is None else prompt_entry(row, token_id) for row, token_id in zip(prompt_logprobs, prompt_ids, strict=False)]


def prompt_entry(row: dict[str, Any], token_id: int) -> TokenLogprobs:
    tops = [Candidate(token_id=int(key), logprob=entry["logprob"], rank=entry.get("rank")) for key, entry in row.items()]
    own = next((top for top in tops if top.token_id == token_id), None)
    logprob = LOWEST if own is None else own.logprob
    return TokenLogprobs(token_id=token_id, logprob=logprob, rank=None if own is None else own.rank, top_logprobs=tops)

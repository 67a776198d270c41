"""Token-exact conversations: the ids so far stay as they are, and only what is new is rendered, behind them.

Rendering a whole conversation again need not give the ids that were generated: a text has many tokenizations, templates drop reasoning and
trim answers. Whoever trains on the ids, or wants the prefix cache, needs the very same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inference.errors import BadRequest, Conflict
from inference.limits import refuse_outside_vocabulary
from inference.model import ServedModel
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.generate import PrefixMatch
from inference.tokenizer import Tokenizer

PARAM = "required_prefix_token_ids"
Render = Callable[[list[dict[str, Any]]], str]
MARK = "\ue000prefix\ue000"  # private use: no template writes it, and no template trims it
LONGEST_END = 16  # tokens with which a template may end a turn


@dataclass(frozen=True)
class Splice:
    """The prompt's ids. `first_difference`: where the rendering first departs from the required ids; None if nowhere."""

    token_ids: list[int]
    match: PrefixMatch
    first_difference: int | None


def spliced(
    request: ChatCompletionRequest, messages: list[dict[str, Any]], text: str, render: Render, model: ServedModel
) -> Splice:
    """The required ids, and behind them what is new.

    Args:
        text: the rendering of all messages. `render` renders others in the same way.

    Raises:
        BadRequest: nothing can be put behind these ids. Conflict: they are not what the messages render to, and the request is strict.
    """
    prefix = checked_prefix(request, model)
    tokenizer = model.tokenizer
    rendered = tokenizer.encode(text, add_special_tokens=request.add_special_tokens is True)
    if rendered[: len(prefix)] == prefix:
        return Splice(rendered, "exact", None)
    at = first_difference(prefix, rendered)
    so_far = tokenizer.decode(prefix)
    if text.startswith(so_far):
        return Splice([*prefix, *encoded_behind(prefix, text[len(so_far) :], tokenizer)], "spliced", at)
    if request.strict is True:
        raise Conflict(f"{PARAM} is not what the messages render to: they differ from position {at} on.", PARAM)
    return Splice([*prefix, *after_last_answer(prefix, messages, render, tokenizer)], "drifted", at)


def checked_prefix(request: ChatCompletionRequest, model: ServedModel) -> list[int]:
    prefix = [] if request.required_prefix_token_ids is None else request.required_prefix_token_ids
    for name in ("truncate_prompt_tokens", "return_token_offsets"):
        if getattr(request, name):
            raise BadRequest(f"{name} cannot be combined with {PARAM}.", name)
    if not prefix:
        raise BadRequest(f"{PARAM} must not be empty.", PARAM)
    refuse_outside_vocabulary(prefix, model, PARAM)
    return prefix


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def encoded_behind(prefix: Sequence[int], text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text that goes on. Where a special token stands before it, it is encoded with it: some tokenizers begin a text with a
    space of their own."""
    if prefix[-1] in tokenizer.special_ids:
        ids = tokenizer.encode(tokenizer.decode([prefix[-1]]) + text, add_special_tokens=False)
        if ids[:1] == [prefix[-1]]:
            return ids[1:]
    return tokenizer.encode(text, add_special_tokens=False)


def after_last_answer(
    prefix: Sequence[int], messages: list[dict[str, Any]], render: Render, tokenizer: Tokenizer
) -> list[int]:
    """What the template writes behind the last answer, less the end of its turn that the prefix has already."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=None)
    if last is None:
        raise BadRequest(f"{PARAM} is not what the messages render to, and there is no answer behind which to go on.", PARAM)
    marked = render([*messages[:last], {"role": "assistant", "content": MARK}, *messages[last + 1 :]])
    _, found, rest = marked.rpartition(MARK)
    if not found:
        raise BadRequest(f"{PARAM} cannot be gone on from: the chat template does not show where an answer ends.", PARAM)
    ids = tokenizer.encode(rest, add_special_tokens=False)
    shared = next((n for n in range(min(LONGEST_END, len(ids), len(prefix)), 0, -1) if list(prefix[-n:]) == ids[:n]), 0)
    return ids[shared:]

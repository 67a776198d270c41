"""Whether two servers of one pipeline read tokens alike, and what a server can do, so that upgrades can roll."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from inference.errors import Conflict, brief
from inference.model import ServedModel
from inference.parsers import REASONING_PARSERS, TOOL_PARSERS
from inference.protocol.generate import ParseContext

MODES = ("tokens", "text", "derender")


class Capabilities(Struct, kw_only=True):
    """Modes, `parse_context` keys and parsers of a server: what a render or derender tier may count on."""

    object: str = "scale_out.capabilities"
    model: str
    output_modes: list[str]
    parse_context_keys: list[str]
    reasoning_parsers: list[str]
    tool_call_parsers: list[str]
    reasoning_parser: str | None
    tool_call_parser: str | None
    render_fingerprint: str | None
    max_model_len: int
    max_logprobs: int


def capabilities(model: ServedModel) -> Capabilities:
    has_text = model.loaded_tokenizer is not None
    return Capabilities(
        model=model.name,
        output_modes=list(MODES if has_text else MODES[:1]),
        parse_context_keys=list(ParseContext.__struct_fields__),
        reasoning_parsers=sorted(REASONING_PARSERS),
        tool_call_parsers=sorted(TOOL_PARSERS),
        reasoning_parser=model.reasoning_parser,
        tool_call_parser=model.tool_call_parser,
        render_fingerprint=model.fingerprint if has_text else None,
        max_model_len=model.max_model_len,
        max_logprobs=model.max_logprobs,
    )


def fingerprint_warning(given: str | None | UnsetType, model: ServedModel, *, strict: bool | None) -> str | None:
    """What to warn of where a request was rendered by a server with another tokenizer, template or parser; None where all is well.

    Raises:
        Conflict: the same, and the request is strict.
    """
    if given is UNSET or given is None or model.loaded_tokenizer is None or given == model.fingerprint:
        return None
    message = f"render_fingerprint {brief(given)!r} is not this server's {model.fingerprint!r}: tokenizer, template or parsers differ."
    if strict is True:
        raise Conflict(message, "render_fingerprint")
    return message

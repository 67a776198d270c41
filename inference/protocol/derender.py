"""The wire of `/derender`: whole answers, one streaming call per generate chunk, and the state that the client carries between calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from inference.protocol.chat import ChatChunk, ChatCompletionRequest
from inference.protocol.completions import CompletionChunk, CompletionRequest
from inference.protocol.generate import TokenId, TokensChunk, TokensResponse

NonNegative = Annotated[int, Meta(ge=0)]
MAX_PREV_TOKENS = 1024
MAX_CONTEXT_IDS = 4


class StreamState(Struct, kw_only=True):
    """Opaque to clients, one per choice. A malformed one is the client's error: nothing in it is looked up or trusted."""

    prev_tokens: Annotated[list[str], Meta(max_length=MAX_PREV_TOKENS)] = []
    prefix_offset: NonNegative = 0
    read_offset: NonNegative = 0
    role_sent: bool = False
    logprob_context_token_ids: Annotated[list[int], Meta(max_length=MAX_CONTEXT_IDS)] = []
    logprob_text_offset: NonNegative = 0
    output_token_ids: list[int] = []
    output_chunk_lens: list[Annotated[int, Meta(gt=0)]] = []
    tools_streamed: bool = False
    last_tool_call_ids: list[str] = []
    output_offset: NonNegative | UnsetType = UNSET  # characters so far, where output offsets are asked for


class DerenderChatRequest(Struct, kw_only=True):
    generate_response: TokensResponse
    model: str | None = None
    prompt_tokens: NonNegative | None = None
    prompt_token_ids: list[TokenId] | None = None
    chat_request: ChatCompletionRequest | None = None
    strict: bool | None = None
    stream: Literal[False] = False


class DerenderChatStreamRequest(Struct, kw_only=True):
    stream: bool
    generate_chunk: TokensChunk
    stream_state: StreamState | None = None
    model: str | None = None
    prompt_tokens: NonNegative | None = None
    prompt_token_ids: list[TokenId] | None = None
    chat_request: ChatCompletionRequest | None = None
    strict: bool | None = None


class DerenderCompletionRequest(Struct, kw_only=True):
    generate_responses: Annotated[list[TokensResponse], Meta(min_length=1)]
    model: str | None = None
    prompt_tokens: list[NonNegative] | None = None
    prompt_token_ids: list[list[TokenId] | None] | None = None
    completion_request: CompletionRequest | None = None
    strict: bool | None = None
    stream: Literal[False] = False


class DerenderCompletionStreamRequest(Struct, kw_only=True):
    stream: bool
    generate_chunk: TokensChunk
    stream_state: StreamState | None = None
    model: str | None = None
    prompt_tokens: NonNegative | None = None
    prompt_token_ids: list[TokenId] | None = None
    completion_request: CompletionRequest | None = None
    strict: bool | None = None


class OpenSession(Struct, kw_only=True):
    """What a session is opened with: what the stateless calls carry each time. `stream_states` by choice index; `stream_state` is 0's."""

    chat_request: ChatCompletionRequest | None = None
    completion_request: CompletionRequest | None = None
    model: str | None = None
    prompt_tokens: NonNegative | None = None
    prompt_token_ids: list[TokenId] | None = None
    stream_state: StreamState | None = None
    stream_states: dict[NonNegative, StreamState] | None = None

    @property
    def history(self) -> int:
        """Ids that must be read again to go on."""
        states = [*({} if self.stream_states is None else self.stream_states).values(), self.stream_state]
        return sum(len(state.output_token_ids) for state in states if state is not None)


class DerenderedChatChunk(Struct, kw_only=True):
    chunk: ChatChunk
    stream_state: StreamState


class DerenderedCompletionChunk(Struct, kw_only=True):
    chunk: CompletionChunk
    stream_state: StreamState


DerenderedChunk = DerenderedChatChunk | DerenderedCompletionChunk | dict[str, Any]

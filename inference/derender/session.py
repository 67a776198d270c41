"""A derender session: the streaming /derender calls with everything kept alive between them, so that a chunk costs the size of its delta.

What a session answers is what the stateless endpoint would, chunk by chunk; its states are those that travel there, one per choice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from inference.derender.bounds import check_chunk, check_length
from inference.derender.chunk import ChatStream, carried_state, chat_chunk, parser_context, prompt_ids, text_chunk, text_part
from inference.errors import BadRequest, SchemaError
from inference.model import ServedModel
from inference.protocol.chat import ChatChunk
from inference.protocol.completions import CompletionChunk
from inference.protocol.derender import OpenSession, StreamState
from inference.protocol.generate import GenerateChunk, GenerateChunkChoice
from inference.resolve import Effective


def open_session(asked: OpenSession, model: ServedModel, effective: Effective) -> Session:
    """`effective` is what applies to the chat_request or completion_request.

    Raises:
        ApiError: neither or both are given, or a state is none; `param` names the place.
    """
    if (asked.chat_request is None) == (asked.completion_request is None):
        raise BadRequest("A session needs either chat_request or completion_request.", "chat_request")
    return ChatSession(asked, model, effective) if asked.completion_request is None else TextSession(asked, model, effective)


class Session(ABC):
    """`states` by choice index."""

    def __init__(self, asked: OpenSession, model: ServedModel, effective: Effective) -> None:
        self.name = model.answering_to(asked.model)
        self.asked = asked
        self.model = model
        self.effective = effective
        self.prompt = asked.prompt_token_ids
        check_length("prompt_token_ids", self.prompt, model, "prompt_token_ids")
        given = {**({} if asked.stream_states is None else asked.stream_states)}
        if asked.stream_state is not None:
            given[0] = asked.stream_state
        for index in given:
            self.check_index(index)
        self.states: dict[int, StreamState] = {index: carried_state(state) for index, state in given.items()}

    def feed(self, chunk: GenerateChunk) -> ChatChunk | CompletionChunk:
        """One derendered chunk for each.

        Raises:
            ApiError: as the stateless endpoint; the session stays where it was.
        """
        check_chunk(chunk)
        for part in chunk.choices:
            self.check_index(part.index)
        if self.prompt is None:
            self.prompt = prompt_ids(None, chunk.prompt_token_ids)
        return self.chunk(chunk, [self.part(part) for part in chunk.choices])

    def check_index(self, index: int) -> None:
        if not 0 <= index < self.model.max_num_seqs:
            raise SchemaError(f"index must be at least 0 and below max_num_seqs ({self.model.max_num_seqs}), got {index}.", "index")

    @abstractmethod
    def part(self, part: GenerateChunkChoice) -> Any: ...

    @abstractmethod
    def chunk(self, chunk: GenerateChunk, shown: list[Any]) -> ChatChunk | CompletionChunk: ...


class ChatSession(Session):
    def __init__(self, asked: OpenSession, model: ServedModel, effective: Effective) -> None:
        super().__init__(asked, model, effective)
        self.context = parser_context(asked.chat_request, asked.prompt_token_ids, model, effective)
        self.streams = {index: self.stream(index) for index in self.states}

    def stream(self, index: int) -> ChatStream:
        """A choice's parser and detokenizer, from where its state left them."""
        state = self.states.setdefault(index, StreamState())
        return ChatStream(self.context, self.asked.chat_request, self.model, self.effective, self.prompt, state)

    def part(self, part: GenerateChunkChoice) -> Any:
        if part.index not in self.streams:
            self.streams[part.index] = self.stream(part.index)
        return self.streams[part.index].feed(part)

    def chunk(self, chunk: GenerateChunk, shown: list[Any]) -> ChatChunk:
        return chat_chunk(chunk, shown, self.name, self.asked.prompt_tokens)


class TextSession(Session):
    """No parser runs, so a choice's state, a few pieces of text, is all there is of it."""

    def part(self, part: GenerateChunkChoice) -> Any:
        state = self.states.setdefault(part.index, StreamState())
        return text_part(part, self.asked.completion_request, state, self.model, self.effective, self.prompt)

    def chunk(self, chunk: GenerateChunk, shown: list[Any]) -> CompletionChunk:
        return text_chunk(chunk, shown, self.name, self.asked.prompt_tokens)

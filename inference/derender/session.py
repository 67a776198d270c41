"""A derender session: the streaming /derender calls with everything kept alive between them, so that a chunk costs the size of its delta.

What a session answers is what the stateless endpoint would, chunk by chunk; its states are those that travel there, one per choice.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from inference.derender.bounds import check_chunk, check_length
from inference.derender.chunk import ChatStream, carried_state, chat_chunk, parser_context, prompt_ids, text_chunk, text_part
from inference.errors import BadRequest, SchemaError
from inference.model import ServedModel
from inference.protocol.chat import ChatChunk
from inference.protocol.completions import CompletionChunk, CompletionChunkChoice
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
    """Its chunks carry one `created`, as those of one stream do."""

    def __init__(self, asked: OpenSession, model: ServedModel, effective: Effective) -> None:
        self.name = model.answering_to(asked.model)
        self.created = int(time.time())
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
        self.carried: dict[int, StreamState] = {index: carried_state(state) for index, state in given.items()}

    @property
    @abstractmethod
    def states(self) -> dict[int, StreamState]:
        """By choice index: what another session, or the stateless endpoint, needs to go on."""

    @abstractmethod
    def feed(self, chunk: GenerateChunk) -> ChatChunk | CompletionChunk:
        """One derendered chunk for each.

        Raises:
            ApiError: as the stateless endpoint; the session stays where it was.
        """

    def check_index(self, index: int) -> None:
        if not 0 <= index < self.model.max_num_seqs:
            raise SchemaError(f"index must be at least 0 and below max_num_seqs ({self.model.max_num_seqs}), got {index}.", "index")


class ChatSession(Session):
    def __init__(self, asked: OpenSession, model: ServedModel, effective: Effective) -> None:
        super().__init__(asked, model, effective)
        self.context = parser_context(asked.chat_request, asked.prompt_token_ids, model, effective)
        self.streams = {index: self.stream(state) for index, state in self.carried.items()}

    @property
    def states(self) -> dict[int, StreamState]:
        return {index: stream.state() for index, stream in self.streams.items()}

    def feed(self, chunk: GenerateChunk) -> ChatChunk:
        check_chunk(chunk)
        if self.prompt is None:
            self.prompt = prompt_ids(None, chunk.prompt_token_ids)
        shown = []
        for part in chunk.choices:
            stream = self.streams.get(part.index)
            shown.append((self.begun(part.index) if stream is None else stream).feed(part))
        return chat_chunk(chunk, shown, self.name, self.created, self.asked.prompt_tokens)

    def begun(self, index: int) -> ChatStream:
        self.check_index(index)
        self.streams[index] = self.stream(StreamState())
        return self.streams[index]

    def stream(self, state: StreamState) -> ChatStream:
        """A choice's parser and detokenizer, from where its state left them."""
        return ChatStream(self.context, self.asked.chat_request, self.model, self.effective, self.prompt, state)


class TextSession(Session):
    """No parser runs, so a choice's state, a few pieces of text, is all there is of it."""

    @property
    def states(self) -> dict[int, StreamState]:
        return self.carried

    def feed(self, chunk: GenerateChunk) -> CompletionChunk:
        check_chunk(chunk)
        if self.prompt is None:
            self.prompt = prompt_ids(None, chunk.prompt_token_ids)
        return text_chunk(chunk, [self.part(part) for part in chunk.choices], self.name, self.created, self.asked.prompt_tokens)

    def part(self, part: GenerateChunkChoice) -> CompletionChunkChoice:
        self.check_index(part.index)
        state = self.carried.setdefault(part.index, StreamState())
        return text_part(part, self.asked.completion_request, state, self.model, self.effective, self.prompt)

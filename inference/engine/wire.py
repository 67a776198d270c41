"""Between the engine's process and the node: msgpack frames behind a length, over one socket. All of a step's outputs are one frame."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
from msgspec import Struct

from inference.engine.config import EngineConfig, EngineInfo
from inference.protocol.engine import EngineOutput, EngineRequest

HEADER = struct.Struct("<I")


class Start(Struct, tag="start"):
    config: EngineConfig


class Add(Struct, tag="add"):
    requests: list[EngineRequest]


class Abort(Struct, tag="abort"):
    ids: list[str]


class Ready(Struct, tag="ready"):
    info: EngineInfo


class Failed(Struct, tag="failed"):
    """The engine could not start; why, in a sentence."""

    reason: str


class News(Struct, tag="news"):
    """Outputs of a step. An empty one is a sign of life. `stats` comes a few times a second."""

    outputs: list[EngineOutput]
    stats: dict[str, float] | None = None


class Unreadable(Struct):
    """Requests that are not of the shape of requests. Never sent: what the engine reads in their place."""

    ids: list[str]
    reason: str


ToEngine = Start | Add | Abort
FromEngine = Ready | Failed | News

encoder = msgspec.msgpack.Encoder()
to_engine = msgspec.msgpack.Decoder(ToEngine)
from_engine = msgspec.msgpack.Decoder(FromEngine)


def frame(message: Any) -> bytes:
    payload = encoder.encode(message)
    return HEADER.pack(len(payload)) + payload


def read_by_engine(payload: bytes) -> ToEngine | Unreadable:
    """A message. A request with a value of the wrong type must not end the process, so it is read as what it is: unreadable."""
    try:
        return to_engine.decode(payload)
    except msgspec.ValidationError as exc:
        requests = msgspec.msgpack.decode(payload).get("requests", [])
        return Unreadable([request["id"] for request in requests], str(exc))


class Unframer:
    """Collects bytes and gives back whole payloads."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            end = start + HEADER.size + HEADER.unpack_from(buffer, start)[0]
            if len(buffer) < end:
                break
            payloads.append(bytes(buffer[start + HEADER.size : end]))
            start = end
        if start:
            del buffer[:start]
        return payloads

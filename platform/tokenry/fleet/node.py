"""One generate node, ours or vLLM's, as the platform sees it: a URL that takes token ids and streams token ids."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import msgspec

from inference import errors
from inference.derender import as_chunks
from inference.errors import ApiError, InternalError, Unavailable
from inference.protocol.codec import encode
from inference.protocol.generate import GenerateChunk, GenerateRequest, GenerateResponse
from tokenry.fleet.chunks import decode_chunk, merge
from tokenry.sse import EventReader

logger = logging.getLogger("tokenry.fleet")

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
CAPABILITIES = "/v1/scale_out/capabilities"  # ours alone have it
NO_NODE_RETRY = 2.0
REFUSALS: dict[int, type[ApiError]] = {400: errors.BadRequest, 409: errors.Conflict, 413: errors.BadRequest, 501: errors.NotSupported}


class Node:
    """Opens generation streams on one node and knows whether it is up. The session is shared by all nodes of the process."""

    def __init__(self, url: str, secret: str | None) -> None:
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self.healthy = False
        self.takes_bad_words = False  # as token ids, which only ours know; a vLLM node without a tokenizer ignores them in silence
        self.running = 0
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """Made on first use, because it belongs to the running event loop. No limit on connections: admission is not the client's job."""
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self.headers, read_bufsize=2**18)
        return self._session

    async def generate(self, request: GenerateRequest, headers: dict[str, str]) -> NodeStream:
        """Post a tokens-mode request. One that does not stream comes as a stream all the same: of one piece.

        Raises:
            ApiError: the node refused the request; BadRequest with its field, Unavailable when its queue is full.
            Unavailable: the node cannot be reached (`no_node`), and is taken for down until its health is seen again.
        """
        try:
            response = await self.session.post(
                self.url + GENERATE, data=encode(request), headers={"Content-Type": "application/json", **headers})
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            self.healthy = False
            logger.warning("node %s cannot be reached: %s", self.url, exc)
            raise Unavailable("No node can take the request now.", code="no_node", retry_after=NO_NODE_RETRY) from None
        if response.status != 200:
            raise await refusal(response)
        return NodeStream(self, response) if request.stream else NodeAnswer(self, response)

    async def abort(self, request_ids: list[str]) -> None:
        """Ask for the end of requests by the node's ids; whoever is not there is ignored."""
        try:
            async with self.session.post(self.url + ABORT, json={"request_ids": request_ids}) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            logger.warning("node %s did not take an abort: %s", self.url, exc)

    async def check(self) -> bool:
        """One look at the node's health; True when it is ready for work. One that comes up is asked what it is."""
        up = await self.answers("/health")
        if up and not self.healthy:
            self.takes_bad_words = await self.answers(CAPABILITIES)
        self.healthy = up
        return up

    async def answers(self, path: str) -> bool:
        try:
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(total=2)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class NodeStream:
    """The chunks of one request. Closing it before its end is how the platform aborts: the node notices the lost connection."""

    def __init__(self, node: Node, response: aiohttp.ClientResponse) -> None:
        self.node = node
        self.response = response
        self.ended = False
        self.waited = 0.0
        node.running += 1

    async def __aiter__(self) -> AsyncGenerator[GenerateChunk]:
        """Chunks as they come; those that came while nobody read are merged, so that a slow reader gets fewer and larger ones.

        Raises:
            ApiError: the node reported an error, or broke off before the end.
        """
        reader = EventReader()
        while not self.ended:
            data = await self.read()
            if not data:
                raise Unavailable("The node broke off before the answer was complete.", code="no_node", retry_after=NO_NODE_RETRY)
            chunks = []
            for event in reader.feed(data):
                if event == b"[DONE]":
                    self.ended = True
                    break
                chunks.append(chunk_of(event))
            for chunk in merge(chunks):
                yield chunk

    async def read(self) -> bytes:
        begun = time.perf_counter()
        try:
            return await self.response.content.readany()
        except (aiohttp.ClientError, OSError) as exc:
            logger.warning("node %s broke off: %s", self.node.url, exc)
            return b""
        finally:
            self.waited += time.perf_counter() - begun

    def close(self) -> None:
        """Give the connection back when the stream has ended, cut it when it has not."""
        self.node.running -= 1
        if self.ended and self.response.content.at_eof():
            self.response.release()
        elif self.ended:
            release = asyncio.ensure_future(finish(self.response))
            release.add_done_callback(lambda _: None)
        else:
            self.response.close()


class NodeAnswer(NodeStream):
    """A whole answer, for what nodes give only in whole ones: a vLLM node drops the prompt's logprobs from its streams."""

    async def __aiter__(self) -> AsyncGenerator[GenerateChunk]:
        parts = []
        while data := await self.read():
            parts.append(data)
        try:
            whole = msgspec.json.decode(b"".join(parts), type=GenerateResponse)
        except msgspec.DecodeError:
            raise Unavailable("The node broke off before the answer was complete.", code="no_node", retry_after=NO_NODE_RETRY) from None
        self.ended = True
        for chunk in as_chunks(whole):
            yield chunk


async def finish(response: aiohttp.ClientResponse) -> None:
    """Read the few bytes that end a chunked answer, so that the connection can serve again."""
    try:
        async with asyncio.timeout(1):
            await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError):
        response.close()


def chunk_of(event: bytes) -> GenerateChunk:
    try:
        return decode_chunk(event)
    except msgspec.DecodeError:
        raise reported(event) from None


def reported(event: bytes) -> ApiError:
    """The error that a node put into its stream; an engine's failure is an internal error, whatever its text."""
    try:
        error: dict[str, Any] = msgspec.json.decode(event)["error"]
        code = int(error.get("code", 500))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        logger.error("a node sent what is no chunk: %r", event[:200])
        return InternalError()
    if code == 503:
        return Unavailable(str(error.get("message")), code="no_node", retry_after=NO_NODE_RETRY)
    return REFUSALS[code](str(error.get("message")), error.get("param")) if code in REFUSALS else InternalError()


async def refusal(response: aiohttp.ClientResponse) -> ApiError:
    """A node's answer other than 200, as the platform's own."""
    async with response:
        raw = await response.read()
    try:
        error: dict[str, Any] = msgspec.json.decode(raw)["error"]
        message, param = str(error["message"]), error.get("param")
    except (msgspec.DecodeError, KeyError, TypeError):
        message, param = f"The node answered {response.status}.", None
    if response.status in REFUSALS:
        return REFUSALS[response.status](message, param)
    if response.status in (429, 503):
        return Unavailable(message, retry_after=float(response.headers.get("Retry-After", "1")))
    logger.error("node %s answered %s: %s", response.url, response.status, message)
    return InternalError() if response.status >= 500 else Unavailable("No node can take the request now.", code="no_node")

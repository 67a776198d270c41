"""The life of a completion: resolve, render, admit, generate, derender, settle. One path for JSON, SSE and WebSocket.

Authentication comes before (tokenry.auth), framing after (tokenry.consumers).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from msgspec import UNSET

from inference.derender import Answer, ChatAnswer, CompletionAnswer
from inference.errors import BadRequest, Unavailable
from inference.limits import check_limits, check_prompt
from inference.model import ServedModel
from inference.parsing import reasoning_end_ids
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.codec import decode
from inference.protocol.completions import CompletionRequest
from inference.protocol.generate import GenerateChunk, GenerateRequest, StreamOptions
from inference.render import (
    COMPLETION_BUILT_IN,
    Rendered,
    chat_settings,
    completion_settings,
    render_chat,
    render_completion,
)
from inference.resolve import BUILT_IN, Effective, Layer, resolve
from inference.sampling import for_node
from inference.structure import STRUCTURED_OUTPUTS, place_of_structure
from tenants.accounting import Accounting, Admitted
from tenants.caller import Caller
from tenants.models import Status
from tokenry.fleet.node import Node, NodeStream
from tokenry.fleet.registry import Fleet

THREAD_FROM_BYTES = 32 * 1024  # larger bodies are rendered in a thread, so that a long prompt holds up nobody else


@dataclass(frozen=True)
class Endpoint:
    """What chat and completions do differently."""

    name: str
    prefix: str
    shape: type[Any]
    settings: Callable[[Any], dict[str, Any]]
    built_in: Mapping[str, Any]
    render: Callable[[Any, Effective, ServedModel, str], list[Rendered]]
    answer: Callable[..., Answer]


CHAT = Endpoint(
    "chat", "chatcmpl-", ChatCompletionRequest, chat_settings, BUILT_IN, lambda *given: [render_chat(*given)],
    lambda request, effective, model, rendered, **more: ChatAnswer(request, effective, model, rendered[0], **more),
)
COMPLETIONS = Endpoint(
    "completions", "cmpl-", CompletionRequest, completion_settings, COMPLETION_BUILT_IN, render_completion, CompletionAnswer
)


@dataclass
class Completion:
    """One request on its way: what was asked, what applies, what goes to the node, and what builds the answer."""

    endpoint: Endpoint
    caller: Caller
    fleet: Fleet
    model: ServedModel
    request: Any
    effective: Effective
    rendered: Sequence[Rendered]
    answer: Answer
    admitted: Admitted = field(init=False)
    streams: list[NodeStream] = field(default_factory=list)
    node_seconds: float = 0.0

    @property
    def streaming(self) -> bool:
        return self.request.stream is True


async def prepare(
    endpoint: Endpoint, caller: Caller, fleet: Fleet, body: bytes, base: str | None, *, streaming: bool | None = None
) -> Completion:
    """A body, checked, resolved and rendered. `base` is the caller's request id, where a header gave one; `streaming`, where the
    transport settles it, takes the place of the request's own `stream`.

    Raises:
        ApiError: the request is refused; nothing has been sent anywhere.
    """
    if len(body) > THREAD_FROM_BYTES:
        return await asyncio.to_thread(build, endpoint, caller, fleet, body, base, streaming)
    return build(endpoint, caller, fleet, body, base, streaming)


def build(endpoint: Endpoint, caller: Caller, fleet: Fleet, body: bytes, base: str | None, streaming: bool | None) -> Completion:
    request = decode(endpoint.shape, body)
    if streaming is not None:
        request.stream = streaming
    model = fleet.model(request.model, caller.models)
    effective = effective_for(endpoint, caller, model, request)
    request_id, rendered = render(endpoint, model, request, effective, base)
    check_for_nodes(rendered, model)
    answer = endpoint.answer(request, effective, model, rendered, request_id=request_id, created=int(time.time()))
    return Completion(endpoint, caller, fleet, model, request, effective, rendered, answer)


def check_for_nodes(rendered: Sequence[Rendered], model: ServedModel) -> None:
    """What our own nodes would refuse, others might not: an id outside the vocabulary ends a vLLM server that runs with --tokens-only."""
    check_limits(rendered[0].generate.sampling_params, model)
    for prompt in rendered:
        if prompt.prompt_text is None:
            check_prompt(prompt.token_ids, model)


def effective_for(endpoint: Endpoint, caller: Caller, model: ServedModel, request: Any) -> Effective:
    """The override rule. `request` None: one that sets nothing."""
    given = {} if request is None else endpoint.settings(request)
    return resolve(given, layers_of(caller, model), endpoint.built_in)


def layers_of(caller: Caller, model: ServedModel) -> tuple[Layer, ...]:
    """All defaults under a request: the tenant's, then the model's and the server's."""
    return (*caller.layers(*model.names), *model.layers)


def render(endpoint: Endpoint, model: ServedModel, request: Any, effective: Effective, base: str | None) -> tuple[str, list[Rendered]]:
    """The request's id and its prompts, ready for a node."""
    request_id = endpoint.prefix + request_base(base, request.request_id)
    return request_id, endpoint.render(request, effective, model, request_id)


async def stream(completion: Completion) -> AsyncIterator[list[Any]]:
    """The chunks of the answer, in lists of what became ready together. For use inside `running`, after `open_streams`.

    The request is settled before its last chunk, so that the caller's next one finds the slot free.
    """
    answer, admitted = completion.answer, completion.admitted
    yield answer.start()
    async for prompt, chunk in generate(completion):
        chunks = answer.feed(prompt, chunk)
        admitted.progress(completion_tokens(answer))
        yield chunks
    await admitted.settle(Status.COMPLETED, completion_tokens=completion_tokens(answer), cached_tokens=answer.cached_tokens)
    yield answer.finish()


def completion_tokens(answer: Answer) -> int:
    return answer.usage.completion_tokens or 0


async def whole(completion: Completion) -> Any:
    """The answer in one piece: the stream, fed and then assembled."""
    async for _ in stream(completion):
        pass
    return completion.answer.whole()


@asynccontextmanager
async def running(completion: Completion, accounting: Accounting) -> AsyncIterator[Admitted]:
    """The time in which a request holds something: its share of its key's and tenant's limits, and slots on nodes. Whatever happens
    inside, on the way out it holds nothing, and its row in the ledger is settled.

    Raises:
        RateLimited, QuotaExceeded: a limit is reached; nothing was taken.
    """
    admitted = completion.admitted = await accounting.admit(
        completion.caller,
        model=completion.model.name,
        endpoint=completion.endpoint.name,
        request_id=completion.answer.id,
        prompt_tokens=sum(len(rendered.token_ids) for rendered in completion.rendered),
        max_tokens=completion.effective["max_tokens"],
        choices=completion.answer.n * len(completion.rendered),
        effective=completion.effective.differing(),
    )
    async with admitted:
        try:
            yield admitted
        finally:
            close_streams(completion)


async def open_streams(completion: Completion) -> None:
    """Post every prompt to a node. After this a node and the ledger have the request, and nothing of the answer has been sent.

    Raises:
        ApiError: a node refused it, or none can be reached.
    """
    begun = time.perf_counter()
    try:
        for rendered in completion.rendered:
            ends = reasoning_end_ids(rendered.generate, completion.model)
            request = scoped(for_node(rendered.generate, completion.model.tokenizer, reasoning_end_ids=ends), completion.caller)
            completion.streams.append(await open_stream(completion.fleet, completion.model, request, completion.caller))
        await completion.admitted.written()
    except BadRequest as exc:
        if exc.param == STRUCTURED_OUTPUTS:  # the node's name for it, whatever field it came from
            exc.param = place_of_structure(completion.request)
        raise
    finally:
        completion.node_seconds += time.perf_counter() - begun


async def open_stream(fleet: Fleet, model: ServedModel, request: GenerateRequest, caller: Caller) -> NodeStream:
    """On the least busy node; on the next one where a node turns out to be gone."""
    headers = {"X-Tokenry-Tenant": caller.tenant_id, "X-Tokenry-Weight": f"{caller.weight:g}"}
    nodes: list[Node] = able(fleet.candidates(model), request)
    for node in nodes[:-1]:
        with suppress(Unavailable):
            return await node.generate(request, headers)
    return await nodes[-1].generate(request, headers)


def able(nodes: list[Node], request: GenerateRequest) -> list[Node]:
    """Those that honour all of the request.

    Raises:
        BadRequest: none does.
    """
    if not request.sampling_params.bad_words:
        return nodes
    fit = [node for node in nodes if node.takes_bad_words]
    if not fit:
        raise BadRequest("bad_words is not supported by the nodes of this model.", "bad_words")
    return fit


def scoped(request: GenerateRequest, caller: Caller) -> GenerateRequest:
    """The request as it may travel to a shared node: its id within the tenant, its cache apart from every other tenant's."""
    request.request_id = scoped_id(caller, str(request.request_id))
    request.cache_salt = cache_salt(caller, request.cache_salt)
    request.stream = request.sampling_params.prompt_logprobs is None  # nodes give these only in whole answers
    request.stream_options = StreamOptions(include_usage=True) if request.stream else None  # it says what the prefix cache gave
    request.render_fingerprint = request.strict = UNSET  # between the tenant and this platform
    return request


def scoped_id(caller: Caller, request_id: str) -> str:
    return f"{caller.tenant_id}.{request_id}"


def cache_salt(caller: Caller, client_salt: str | None) -> str:
    """base64(HMAC-SHA256(server secret, length-prefixed(tenant, client's salt))): a client's salt can only narrow what is shared."""
    parts = (caller.tenant_id.encode(), b"" if client_salt is None else b"+" + client_salt.encode())
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    digest = hmac.digest(settings.SECRET_KEY.encode(), message, hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode()


async def generate(completion: Completion) -> AsyncIterator[tuple[int, GenerateChunk]]:
    """(prompt index, chunk) from all nodes at work for this request, until every choice has ended."""
    if len(completion.streams) == 1:
        async for chunk in prompt_chunks(completion, 0):
            yield 0, chunk
        return
    queue: asyncio.Queue[tuple[int, GenerateChunk] | BaseException | None] = asyncio.Queue(maxsize=len(completion.streams))
    tasks = [asyncio.create_task(pump(completion, prompt, queue)) for prompt in range(len(completion.streams))]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pump(completion: Completion, prompt: int, queue: asyncio.Queue[Any]) -> None:
    try:
        async for chunk in prompt_chunks(completion, prompt):
            await queue.put((prompt, chunk))
        await queue.put(None)
    except Exception as exc:
        await queue.put(exc)


async def prompt_chunks(completion: Completion, prompt: int) -> AsyncIterator[GenerateChunk]:
    stream, answer = completion.streams[prompt], completion.answer
    try:
        async with aclosing(until_finished(stream, answer.n, lambda: answer.finished(prompt))) as chunks:
            async for chunk in chunks:
                yield chunk
    finally:
        completion.node_seconds += stream.waited


async def until_finished(stream: NodeStream, n: int, finished: Callable[[], bool]) -> AsyncGenerator[GenerateChunk]:
    """A node's chunks up to the end of the last of n choices. A stop string may end the answer before the node would; where the node
    itself has ended, what is left of its stream is read, so that the connection can serve again."""
    running = n
    async with aclosing(aiter(stream)) as chunks:
        async for chunk in chunks:
            yield chunk
            running -= sum(choice.finish_reason is not None for choice in chunk.choices)
            if running > 0 and finished():
                return


def close_streams(completion: Completion) -> None:
    for stream in completion.streams:
        stream.close()
    completion.streams.clear()


def request_base(header: str | None, body: str | None) -> str:
    """The readable part of a request's id: the header's, else the body's, else 16 hexadecimal digits."""
    if header is not None:
        return header
    return body if body is not None else secrets.token_hex(8)


def explained(effective: Effective) -> str:
    """The value of `x-tokenry-effective`: one line of ASCII JSON."""
    return json.dumps(effective.explain(), separators=(",", ":"))

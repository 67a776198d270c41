"""A generate node's own endpoints: token ids in, token ids out (and text, where the node has a tokenizer). No database, no tenants."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from prometheus_client import CONTENT_TYPE_LATEST

from inference.compatibility import capabilities, fingerprint_warning
from inference.derender import text_writer
from inference.engine.client import Outputs
from inference.engine.metrics import exposition
from inference.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable
from inference.generated import GenerateAnswer
from inference.parsing import reasoning_end_ids
from inference.protocol.codec import decode
from inference.protocol.engine import EngineRequest
from inference.protocol.generate import GenerateChunk, GenerateRequest
from inference.protocol.openai import ModelCard, ModelList
from inference.sampling import check_generate_request, engine_sampling
from tokenry import sse
from tokenry.application import NodeState, node_state
from tokenry.auth import require_node_secret
from tokenry.consumers.abort import AbortRequest
from tokenry.consumers.base import ApiConsumer
from tokenry.guard import header
from tokenry.pipeline import request_base

ID_PREFIX = "generate-tokens-"


class NodeConsumer(ApiConsumer):
    """Behind the node secret, where the node has one."""

    @property
    def node(self) -> NodeState:
        return node_state()

    def check(self) -> None:
        require_node_secret(self.scope, self.node.secret)
        super().check()


class NodeGenerate(NodeConsumer):
    """`/inference/v1/generate`: decode, check, run on the engine, answer."""

    async def handle(self, body: bytes) -> None:
        if self.node.options.no_scale_out:
            raise PermissionDenied("The scale-out endpoints are disabled on this server (--no-scale-out).")
        request = decode(GenerateRequest, body)
        work = self.engine_request(request)
        warning = fingerprint_warning(request.render_fingerprint, self.node.model, strict=request.strict is True)
        if warning is not None:
            self.extra["x-tokenry-warning"] = warning
        base = request_base(self.request_id if header(self.scope, b"x-request-id") else None, request.request_id)
        writer = text_writer(request, work.sampling, self.node.model, as_ids=self.node.options.return_tokens_as_token_ids)
        answer = GenerateAnswer(request, self.node.model, ID_PREFIX + base, n=work.sampling.n, writer=writer)
        outputs = self.node.engine.generate(work)
        if work.sampling.constraint is not None:
            await outputs.accepted()
        with self.listed(answer.request_id, work.id):
            if request.stream is True:
                await self.stream(events(answer, outputs))
            else:
                async for _ in chunks(answer, outputs):
                    pass
                await self.reply(answer.whole())

    def engine_request(self, request: GenerateRequest) -> EngineRequest:
        """The request as the engine takes it: every value full, the id its own.

        Raises:
            ApiError: something in it cannot be honoured here; `param` names it.
        """
        check_generate_request(request, self.node.model)
        sampling = engine_sampling(
            request.sampling_params, prompt_token_ids=request.token_ids, model=self.node.model,
            reasoning_end_ids=reasoning_end_ids(request, self.node.model), scripted=self.node.options.engine == "scripted")
        tenant, weight = self.tenant()
        return EngineRequest(
            id=secrets.token_hex(8), token_ids=request.token_ids, sampling=sampling, tenant=tenant, weight=weight,
            priority=0 if request.priority is None else request.priority, cache_salt=request.cache_salt)

    def tenant(self) -> tuple[str, float]:
        """Whose steps these are, and their share; only the holder of the node secret is believed."""
        if self.node.secret is None:
            return "", 1.0
        weight = header(self.scope, b"x-tokenry-weight")
        try:
            share = 1.0 if weight is None else float(weight)
        except ValueError:
            share = 0.0
        if not 0 < share < float("inf"):  # so put, NaN is refused too
            raise InvalidRequest("X-Tokenry-Weight must be a number above 0.", "x-tokenry-weight")
        tenant = header(self.scope, b"x-tokenry-tenant")
        return "" if tenant is None else tenant, share

    @contextmanager
    def listed(self, request_id: str, engine_id: str) -> Iterator[None]:
        """Findable by an abort for as long as it runs. Callers choose their ids, so several requests may share one."""
        live = self.node.live
        live[request_id].add(engine_id)
        try:
            yield
        finally:
            live[request_id].discard(engine_id)
            if not live[request_id]:
                del live[request_id]


async def chunks(answer: GenerateAnswer, outputs: Outputs) -> AsyncIterator[list[GenerateChunk]]:
    """The answer's chunks, until every choice has ended: a stop string may end it before the engine would."""
    async with outputs:
        async for output in outputs:
            yield answer.feed(output)
            if answer.finished and not output.finished:
                break


async def events(answer: GenerateAnswer, outputs: Outputs) -> AsyncIterator[bytes]:
    async for made in chunks(answer, outputs):
        if made:
            yield b"".join(map(sse.event, made))
    for chunk in answer.finish():
        yield sse.event(chunk)


class NodeAbort(NodeConsumer):
    """Ends every live request that carries one of the ids; unknown ones are ignored. The answer does not wait for the engine."""

    async def handle(self, body: bytes) -> None:
        if self.node.options.no_scale_out:
            raise PermissionDenied("The scale-out endpoints are disabled on this server (--no-scale-out).")
        wanted = decode(AbortRequest, body).ids()
        self.node.engine.abort([engine_id for request_id in wanted for engine_id in self.node.live.get(request_id, ())])
        await self.reply(None, raw=b"")


class NodeHealth(ApiConsumer):
    """200 when the engine takes work, 503 while it loads or is being restarted. Open: it tells nothing else."""

    methods = ("GET",)
    reads_body = False

    async def handle(self, body: bytes) -> None:
        if not node_state().engine.healthy:
            raise Unavailable("The engine is not ready.", retry_after=1)
        await self.reply(None, raw=b"")


class NodeModels(NodeConsumer):
    methods = ("GET",)
    reads_body = False

    async def handle(self, body: bytes) -> None:
        model = self.node.model
        cards = [ModelCard(id=name, created=0, root=model.name, max_model_len=model.max_model_len) for name in model.names]
        await self.reply(ModelList(data=cards))


class NodeCapabilities(NodeConsumer):
    methods = ("GET",)
    reads_body = False

    async def handle(self, body: bytes) -> None:
        await self.reply(capabilities(self.node.model))


class NodeMetrics(NodeConsumer):
    methods = ("GET",)
    reads_body = False

    async def handle(self, body: bytes) -> None:
        await self.reply(None, raw=exposition(self.node.engine.stats()).encode(), headers={"content-type": CONTENT_TYPE_LATEST})


class NodeNotFound(ApiConsumer):
    """Whatever a node does not have: 404 in the one error shape."""

    async def run(self) -> None:
        await self.fail(NotFound(f"No such path: {self.scope['path']}"))

"""`/inference/v1/generate` for tenants: token ids in, and tokens, text or messages out, from any node.

The body is a node's. What differs is whose it is: the tenant's ids, cache salt and policies. Sampling values are taken as they stand,
because render has resolved them already; only what the tenant enforces still applies.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any

from inference.compatibility import fingerprint_warning
from inference.derender import text_writer
from inference.errors import PermissionDenied
from inference.generated import GenerateAnswer
from inference.model import ServedModel
from inference.parsing import reasoning_end_ids
from inference.protocol.codec import decode
from inference.protocol.generate import GenerateChunk, GenerateRequest, SamplingParams
from inference.resolve import BUILT_IN, Effective, Layer, resolve
from inference.sampling import check_generate_request, engine_sampling, for_node
from tenants.accounting import Admitted
from tenants.caller import Caller
from tenants.models import Status
from tokenry import pipeline, sse
from tokenry.application import platform_state
from tokenry.auth import authenticate
from tokenry.consumers.base import ApiConsumer
from tokenry.fleet.node import NodeStream
from tokenry.guard import header

ID_PREFIX = "generate-tokens-"
ANSWERED_HERE = ("return_tokens_as_token_ids",)


class GenerateConsumer(ApiConsumer):
    """Authenticate, check, hold to the tenant's policies, generate on a node, answer."""

    async def handle(self, body: bytes) -> None:
        caller = await authenticate(self.scope)
        state = platform_state()
        if state.options.no_scale_out:
            raise PermissionDenied("The scale-out endpoints are disabled on this server (--no-scale-out).")
        request = decode(GenerateRequest, body)
        model = state.fleet.model(request.model, caller.models)
        answer, effective = self.answer(request, model, caller)
        warning = fingerprint_warning(request.render_fingerprint, model, strict=request.strict is True)
        if warning is not None:
            self.extra["x-tokenry-warning"] = warning
        admitted = await state.accounting.admit(
            caller, model=model.name, endpoint="generate", request_id=answer.request_id, prompt_tokens=len(request.token_ids),
            max_tokens=reserved(request.sampling_params.max_tokens, model), choices=len(answer.choices), effective=effective.differing())
        async with admitted:
            self.extra |= admitted.headers
            begun = time.perf_counter()
            stream = await pipeline.open_stream(state.fleet, model, self.node_request(request, answer, model, caller), caller)
            with closing(stream), state.watch.over(caller, model.names, self.revoke):
                await admitted.written()
                self.node_seconds = time.perf_counter() - begun
                if request.stream is True:
                    await self.stream(events(answer, stream, admitted))
                else:
                    async for _ in chunks(answer, stream, admitted):
                        pass
                    self.node_seconds += stream.waited
                    await self.reply(answer.whole())

    def answer(self, request: GenerateRequest, model: ServedModel, caller: Caller) -> tuple[GenerateAnswer, Effective]:
        """The answer to be and what binds it: the request checked as a node would check it, and held to the tenant's policies."""
        check_generate_request(request, model)
        params = request.sampling_params
        settings = {name: value for name in params.__struct_fields__ if (value := getattr(params, name)) is not None}
        layers = (*(binding(layer) for layer in caller.layers(*model.names)), *(only(layer, ANSWERED_HERE) for layer in model.layers))
        effective = resolve(settings, layers)
        bind(params, effective.values, effective.sources)
        sampling = engine_sampling(
            params, prompt_token_ids=request.token_ids, model=model, reasoning_end_ids=reasoning_end_ids(request, model), scripted=True)
        writer = text_writer(request, sampling, model, as_ids=effective["return_tokens_as_token_ids"])
        base = pipeline.request_base(self.request_id if header(self.scope, b"x-request-id") else None, request.request_id)
        answer = GenerateAnswer(request, model, ID_PREFIX + base, n=sampling.n, writer=writer)
        return answer, effective

    def node_request(self, request: GenerateRequest, answer: GenerateAnswer, model: ServedModel, caller: Caller) -> GenerateRequest:
        """What travels: under the id that the tenant can abort by."""
        sent = for_node(request, model.tokenizer, reasoning_end_ids=reasoning_end_ids(request, model))
        sent.request_id = answer.request_id.removeprefix(ID_PREFIX)
        return pipeline.scoped(sent, caller)


def binding(layer: Layer) -> Layer:
    """Of a tenant's layer what binds a request that is resolved already: enforced values, and what is settled by who answers."""
    enforced = [name for name, policy in layer.policies.items() if policy.kind == "enforced"]
    return only(layer, (*ANSWERED_HERE, *enforced))


def only(layer: Layer, names: tuple[str, ...]) -> Layer:
    return replace(layer, values={name: value for name, value in layer.values.items() if name in names})


def bind(params: SamplingParams, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Write into the parameters what a policy has changed."""
    for name in params.__struct_fields__:
        if name in values and sources[name] not in ("request", "builtin") and name in BUILT_IN:
            setattr(params, name, list(values[name]) if name == "stop" else values[name])


def reserved(max_tokens: int | None, model: ServedModel) -> int | None:
    """What the request may come to: a node clamps what is asked for beyond the context."""
    return None if max_tokens is None else min(max_tokens, model.max_model_len)


async def chunks(answer: GenerateAnswer, stream: NodeStream, admitted: Admitted) -> AsyncIterator[list[GenerateChunk]]:
    """The answer's chunks, until every choice has ended. The request is settled before its last chunk is sent."""
    async with aclosing(pipeline.until_finished(stream, len(answer.choices), lambda: answer.finished)) as news:
        async for chunk in news:
            made = answer.relay(chunk)
            admitted.progress(answer.completion_tokens)
            yield made
    await admitted.settle(Status.COMPLETED, completion_tokens=answer.completion_tokens, cached_tokens=answer.cached_tokens)


async def events(answer: GenerateAnswer, stream: NodeStream, admitted: Admitted) -> AsyncIterator[bytes]:
    async for made in chunks(answer, stream, admitted):
        if made:
            yield b"".join(map(sse.event, made))
    for chunk in answer.finish():
        yield sse.event(chunk)

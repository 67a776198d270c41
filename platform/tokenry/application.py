"""The state of one process: its options, and what its role runs on: a fleet (platform) or an engine (generate).

Made on first use from the environment, which `serve` has filled; started and stopped by the ASGI lifespan.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from inference.engine.client import EngineClient, StartError
from inference.engine.config import EngineConfig
from inference.model import ServedModel, load_model
from inference.parsing import check_parsers
from inference.resolve import Layer
from inference.tokenizer_file import tokenizer_file
from tenants.accounting import Accounting
from tokenry.fleet.node import Node
from tokenry.fleet.registry import Fleet
from tokenry.fleet.supervisor import end_with_parent
from tokenry.model_store import find_model
from tokenry.options import ServeOptions
from tokenry.revocation import Watch

logger = logging.getLogger("tokenry")


@dataclass
class State:
    """What both roles have. Background work is kept here, because a task that nobody holds may be collected before it ends."""

    options: ServeOptions
    tasks: set[asyncio.Future[Any]] = field(default_factory=set, kw_only=True)

    def background(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(report)

    async def stop(self) -> None:
        for task in list(self.tasks):
            task.cancel()


@dataclass
class PlatformState(State):
    """A process that tenants talk to."""

    fleet: Fleet
    accounting: Accounting
    watch: Watch = field(default_factory=Watch)
    sessions: Counter[str] = field(default_factory=Counter)  # open derender sessions, by tenant

    async def start(self) -> None:
        await self.accounting.start()
        self.fleet.start()
        self.background(self.watch.look())

    async def stop(self) -> None:
        await super().stop()
        await self.fleet.stop()
        await self.accounting.stop()


@dataclass
class NodeState(State):
    """A process that generates. `live` finds the engine's requests by the ids that callers chose, which need not be unique."""

    model: ServedModel
    engine: EngineClient
    secret: str | None
    live: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    async def start(self) -> None:
        """The engine loads behind the listening socket: health says 503 until it is there."""
        self.background(self.start_engine())
        self.background(end_with_parent())

    async def start_engine(self) -> None:
        """An engine that cannot be started ends the process: whoever waits for it is told why, and a supervisor may try again."""
        try:
            await self.engine.start()
        except StartError as exc:
            logger.error("The engine cannot be started: %s", exc)
            os.kill(os.getpid(), signal.SIGTERM)

    async def stop(self) -> None:
        await super().stop()
        await self.engine.stop()


def report(task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.error("background work failed: %s", failure)


@cache
def platform_state() -> PlatformState:
    options = ServeOptions.from_env()
    nodes = [Node(url, node_secret()) for url in options.node]
    model = served_model(options)
    model.tokenizer.prepare()
    return PlatformState(options, Fleet([(model, nodes)]), Accounting(os.environ.get("REDIS_URL") or None))


def model_layers(name: str) -> Sequence[Layer]:
    """The layers under a tenant's defaults, for the admin's forms: the named model's, or with "" what all models share."""
    served = platform_state().fleet.models()
    layers = [model.layers for model in served if name in model.names]
    return layers[0] if layers else [layer for model in served[:1] for layer in model.layers if layer.source == "server"]


@cache
def node_state() -> NodeState:
    options = ServeOptions.from_env()
    return NodeState(options, served_model(options), EngineClient(engine_config(options)), node_secret())


def node_secret() -> str | None:
    secret = os.environ.get("TOKENRY_NODE_SECRET", "")
    return secret if secret else None


def served_model(options: ServeOptions) -> ServedModel:
    """Everything that the text side knows of the model, out of the options."""
    tokenizer = tokenizer_folder(options)
    model = load_model(
        model_folder(options),
        names=options.names,
        tokenizer=tokenizer,
        tokens_only=options.tokens_only and options.role == "generate",
        max_model_len=options.max_model_len,
        max_logprobs=options.max_logprobs,
        max_num_seqs=options.max_num_seqs,
        chat_template=None if options.chat_template is None else Path(options.chat_template).read_text(encoding="utf-8"),
        default_chat_template_kwargs=options.default_chat_template_kwargs,
        trust_request_chat_template=options.trust_request_chat_template,
        return_tokens_as_token_ids=True if options.return_tokens_as_token_ids else None,
        tool_call_parser=options.tool_call_parser,
        reasoning_parser=options.reasoning_parser,
        enable_auto_tool_choice=options.enable_auto_tool_choice,
    )
    check_parsers(model)
    return model


def engine_config(options: ServeOptions) -> EngineConfig:
    return EngineConfig(
        engine=options.engine,
        model=None if options.engine == "scripted" else str(model_folder(options)),
        tokenizer=str(tokenizer_folder(options)),
        max_model_len=options.max_model_len,
        dtype=options.dtype,
        device=options.device,
        max_num_seqs=options.max_num_seqs,
        max_queue=options.max_queue,
        max_queue_per_tenant=options.max_queue_per_tenant,
        max_logprobs=options.max_logprobs,
    )


def model_folder(options: ServeOptions) -> Path:
    """Where config.json is; a server that needs no weights may have no more than a tokenizer.

    Raises:
        ModelMissing: with the command that gets it.
    """
    if options.tokenizer is not None and (options.role == "platform" or options.engine == "scripted"):
        return tokenizer_folder(options)
    return find_model(options.model)


def tokenizer_folder(options: ServeOptions) -> Path:
    if options.tokenizer is not None and tokenizer_file(folder := Path(options.tokenizer)) is not None:
        return folder.resolve()
    return find_model(options.model if options.tokenizer is None else options.tokenizer)

"""What this platform serves: models by name, and the nodes that run them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from inference.errors import ModelNotFound, NotFound, Unavailable
from inference.model import ServedModel
from tokenry.fleet.node import NO_NODE_RETRY, Node

logger = logging.getLogger("tokenry.fleet")

CHECK_SECONDS = 0.5


@dataclass
class Fleet:
    """Every model with its nodes. One per process, made when the application starts."""

    served: Sequence[tuple[ServedModel, Sequence[Node]]]
    by_name: dict[str, tuple[ServedModel, Sequence[Node]]] = field(init=False)
    watch: asyncio.Task[None] | None = field(default=None, init=False)
    up: asyncio.Event = field(default_factory=asyncio.Event, init=False)  # set when all models could be served for the first time

    def __post_init__(self) -> None:
        self.by_name = {name: entry for entry in self.served for name in entry[0].names}

    @property
    def nodes(self) -> list[Node]:
        return list(dict.fromkeys(node for _, nodes in self.served for node in nodes))

    def model(self, name: str | None, allowed: frozenset[str] | None = None) -> ServedModel:
        """The model that a request names; none or "" is the first that the caller may use.

        Raises:
            ModelNotFound: unknown, or not for this caller: one and the same text.
        """
        if name is None or name == "":
            usable = self.models(allowed)
            if usable:
                return usable[0]
            raise NotFound("No model is available to this key.", "model")
        entry = self.by_name.get(name)
        if entry is None or not permitted(entry[0], allowed):
            raise ModelNotFound(name)
        return entry[0]

    def models(self, allowed: frozenset[str] | None = None) -> list[ServedModel]:
        return [model for model, _ in self.served if permitted(model, allowed)]

    def candidates(self, model: ServedModel) -> list[Node]:
        """Nodes that are up and run the model, the least busy first.

        Raises:
            Unavailable: none is up.
        """
        nodes = [node for node in self.by_name[model.names[0]][1] if node.healthy]
        if not nodes:
            raise Unavailable("No node can take the request now.", code="no_node", retry_after=NO_NODE_RETRY)
        return sorted(nodes, key=lambda node: node.running)

    def ready(self) -> bool:
        """Every model has a node that is up."""
        return all(any(node.healthy for node in nodes) for _, nodes in self.served)

    async def wait_until_ready(self) -> None:
        await self.up.wait()

    def start(self) -> None:
        if self.watch is None:
            self.watch = asyncio.create_task(self.look())

    async def look(self) -> None:
        """Look at every node's health, for ever; say when one changes."""
        while True:
            await asyncio.gather(*(look_at(node) for node in self.nodes))
            if self.ready():
                self.up.set()
            await asyncio.sleep(CHECK_SECONDS)

    async def stop(self) -> None:
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None
        await asyncio.gather(*(node.close() for node in self.nodes))


async def look_at(node: Node) -> None:
    before = node.healthy
    if await node.check() != before:
        logger.info("node %s is %s", node.url, "up" if node.healthy else "down")


def permitted(model: ServedModel, allowed: frozenset[str] | None) -> bool:
    """None allows every model; otherwise any of the model's names must be listed."""
    return allowed is None or not allowed.isdisjoint(model.names)

"""What is running ends when its key does: revoked, expired, its member or tenant switched off, the model taken off its list.

Requests ask at the door; a stream may run for minutes after. So each process looks at the keys of its open streams twice a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from inference.errors import Unauthorized
from tenants.caller import Caller
from tenants.callers import aholder

logger = logging.getLogger("tokenry.revocation")

LOOK_SECONDS = 0.4


@dataclass(eq=False)
class Running:
    """Something open of a key. `models` are the names of the model in use, none for a socket without work; `end` ends it, at once."""

    models: tuple[str, ...]
    end: Callable[[], None]


@dataclass
class Watch:
    """Everything open in this process, by key."""

    open: dict[str, set[Running]] = field(default_factory=dict)

    @contextmanager
    def over(self, caller: Caller, models: tuple[str, ...], end: Callable[[], None]) -> Iterator[None]:
        """While inside, `end` is called as soon as the caller may not go on."""
        running = Running(models, end)
        self.open.setdefault(caller.key_id, set()).add(running)
        try:
            yield
        finally:
            self.open[caller.key_id].discard(running)
            if not self.open[caller.key_id]:
                del self.open[caller.key_id]

    async def look(self) -> None:
        """For ever. A database that cannot be asked ends nothing."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for key_id in list(self.open):
                try:
                    await self.check(key_id)
                except Exception as exc:
                    logger.warning("the key %s cannot be looked at: %s", key_id, exc)

    async def check(self, key_id: str) -> None:
        try:
            caller: Caller | None = await aholder(key_id)
        except Unauthorized:
            caller = None
        for running in list(self.open.get(key_id, ())):
            if caller is None or (running.models and not any(map(caller.may_use, running.models))):
                running.end()

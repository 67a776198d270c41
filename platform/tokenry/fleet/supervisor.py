"""The local node of role `all`: a process that the platform starts, restarts when it dies, and takes down with itself."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path

logger = logging.getLogger("tokenry.fleet")

FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0
SETTLED_SECONDS = 30.0
STOP_SECONDS = 10.0


class LocalNode:
    """Runs `manage.py serve --role generate` with the given environment for as long as the platform runs."""

    def __init__(self, manage: Path, environment: dict[str, str]) -> None:
        self.manage = manage
        self.environment = environment
        self.process: asyncio.subprocess.Process | None = None
        self.keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.spawn()
        self.keeper = asyncio.create_task(self.keep())

    async def spawn(self) -> None:
        """The child watches for its parent: it ends by itself when the platform is killed and cannot end it."""
        env = {**os.environ, **self.environment, "TOKENRY_PARENT_PID": str(os.getpid())}
        self.process = await asyncio.create_subprocess_exec(sys.executable, str(self.manage), "serve", env=env)

    async def keep(self) -> None:
        """Restart the node when it ends, at once the first time, then with growing pauses while it keeps dying young."""
        wait = FIRST_WAIT
        while self.process is not None:
            begun = time.monotonic()
            code = await self.process.wait()
            wait = FIRST_WAIT if time.monotonic() - begun > SETTLED_SECONDS else min(wait * 2, LONGEST_WAIT)
            logger.warning("the local node ended with code %s; starting it again in %.1f s", code, wait)
            await asyncio.sleep(wait)
            await self.spawn()

    async def stop(self) -> None:
        if self.keeper is not None:
            self.keeper.cancel()
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def end_with_parent() -> None:
    """In the child: leave when the parent is gone, which `kill -9` does not let it say."""
    parent = os.environ.get("TOKENRY_PARENT_PID")
    while parent is not None:
        if os.getppid() != int(parent):
            logger.error("the parent process is gone; ending")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        await asyncio.sleep(0.5)

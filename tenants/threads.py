"""Database work off the event loop, which leaves no connection behind: one kept by each worker thread would be held for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    def work_and_release() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            connections.close_all()

    return await sync_to_async(work_and_release, thread_sensitive=False)()

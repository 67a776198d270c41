"""Credentials by public id, for a moment. A miss asks once, however many requests wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from asgiref.sync import sync_to_async
from django.db import connections

from tenants.caller import Credential

Load = Callable[[str], Credential | None]


@dataclass(frozen=True)
class Entry:
    credential: Credential | None
    until: float


class Shelf:
    """A dict that forgets its oldest entry when it is full."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: dict[str, Entry] = {}
        self.lock = Lock()

    def put(self, public_id: str, entry: Entry) -> None:
        with self.lock:
            self.entries.pop(public_id, None)
            while len(self.entries) >= self.size:
                del self.entries[next(iter(self.entries))]
            self.entries[public_id] = entry


class CallerCache:
    """Unknown ids have a shelf of their own: a flood of guesses must not push out the keys in use."""

    def __init__(self, load: Load, *, seconds: float, size: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self.load = load
        self.seconds = seconds
        self.clock = clock
        self.known = Shelf(size)
        self.unknown = Shelf(size)
        self.loading: dict[str, asyncio.Task[Entry]] = {}

    def find(self, public_id: str, within: float | None = None) -> Credential | None:
        """`within`: the oldest that it may be, where that is less than an entry's usual time."""
        entry = self.fresh(public_id, within)
        return (self.fetch(public_id) if entry is None else entry).credential

    async def afind(self, public_id: str, within: float | None = None) -> Credential | None:
        """Shielded: a caller who leaves must not take the answer from those who wait with it."""
        entry = self.fresh(public_id, within)
        return (await asyncio.shield(self.shared_fetch(public_id)) if entry is None else entry).credential

    def fresh(self, public_id: str, within: float | None = None) -> Entry | None:
        entry = self.known.entries.get(public_id) or self.unknown.entries.get(public_id)
        shorter = 0.0 if within is None else self.seconds - within
        return entry if entry is not None and self.clock() < entry.until - shorter else None

    def fetch(self, public_id: str) -> Entry:
        """The time runs from before the query: what it read may be that old when it arrives."""
        until = self.clock() + self.seconds
        entry = Entry(self.load(public_id), until)
        shelf, other = (self.unknown, self.known) if entry.credential is None else (self.known, self.unknown)
        other.entries.pop(public_id, None)
        shelf.put(public_id, entry)
        return entry

    def shared_fetch(self, public_id: str) -> asyncio.Task[Entry]:
        """The one task that asks for this id now. Tasks of another event loop (one that ended) do not count."""
        task = self.loading.get(public_id)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(self.fetch_in_thread(public_id))
            self.loading[public_id] = task
        return task

    async def fetch_in_thread(self, public_id: str) -> Entry:
        try:
            return await sync_to_async(self.fetch_and_release, thread_sensitive=False)(public_id)
        finally:
            self.loading.pop(public_id, None)

    def fetch_and_release(self, public_id: str) -> Entry:
        """A connection kept by each worker thread would be held for as long as the process lives."""
        try:
            return self.fetch(public_id)
        finally:
            connections.close_all()

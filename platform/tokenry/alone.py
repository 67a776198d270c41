"""Without Redis or Valkey limits are counted in the process, and a process that starts settles what an earlier one left open.

So a second process beside it would let every tenant have twice as much, and call the first one's requests dead. It is refused.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

SERVING, PREPARING = 0x746F6B01, 0x746F6B02  # numbers of locks, which are a database's own
REMEDY = "Several share their counters over Redis or Valkey: set REDIS_URL for all of them."


class NotAlone(RuntimeError):
    """Another platform process is at work, or nobody can tell; the text is for people."""


def stand_alone(home: Path, database_url: str) -> list[Any]:
    """What must stay open for as long as this process lives. PostgreSQL's lock ends with its connection, so with a restart of the server.

    Raises:
        NotAlone
    """
    if os.environ.get("REDIS_URL"):
        return []
    held: list[Any] = [lock_folder(home)]
    if database_url.startswith("postgres"):
        held.append(lock_database(database_url))
    return held


@contextmanager
def one_at_a_time(database_url: str) -> Iterator[None]:
    """While inside, no other process that starts is: two would else migrate at once. A file of SQLite has one process anyway."""
    if not database_url.startswith("postgres"):
        yield
        return
    with connect(database_url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [PREPARING])
        yield


def lock_folder(home: Path) -> Any:
    home.mkdir(parents=True, exist_ok=True)
    lock = (home / "platform.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise NotAlone(f"Another platform process runs on {home}. {REMEDY} For one of its own, set another TOKENRY_HOME.") from None
    return lock


def lock_database(url: str) -> psycopg.Connection:
    connection = connect(url)
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", [SERVING]).fetchone()
    if row is None or not row[0]:
        connection.close()
        raise NotAlone(f"Another platform process runs on the database of DATABASE_URL. {REMEDY}")
    return connection


def connect(url: str) -> psycopg.Connection:
    try:
        return psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as exc:
        raise NotAlone(f"The database of DATABASE_URL cannot be used: {exc}") from None

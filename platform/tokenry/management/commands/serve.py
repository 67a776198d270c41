"""`manage.py serve`: one command starts everything of a role, and says in a sentence what is wrong when it cannot."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import socket
import sys
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from inference.tokenizer_file import tokenizer_file
from tokenry.alone import NotAlone, one_at_a_time, stand_alone
from tokenry.fleet.supervisor import LocalNode
from tokenry.http_protocol import GatheringHttp
from tokenry.model_store import ModelMissing, find_model
from tokenry.options import OptionError, ServeOptions, add_arguments, from_arguments

GC_ALLOCATIONS = 20_000
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Command(BaseCommand):
    help = "Run the platform, a generate node, or both (role all)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **given: Any) -> None:
        try:
            options = from_arguments(given)
            check(options)
        except (OptionError, ModelMissing) as exc:
            raise CommandError(str(exc)) from None
        os.environ.update(options.to_env())
        listener = bind(options)
        if options.role != "generate":
            try:
                self.alone = stand_alone(settings.TOKENRY_HOME, database_url())
                self.prepare_database()
            except NotAlone as exc:
                raise CommandError(str(exc)) from None
        with suppress(KeyboardInterrupt):  # Ctrl-C, after everything was stopped in order
            uvloop.run(run(options, listener, self.welcome))

    def prepare_database(self) -> None:
        from tenants.services import ensure_demo  # the generate role must not touch the tenants' tables

        self.say("Preparing the database ...")
        settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(database_url()):
            call_command("migrate", interactive=False, verbosity=0)
        self.demo = None if database_url() else ensure_demo()  # for a first try; who brings a database of his own is past that

    def welcome(self, options: ServeOptions) -> None:
        """What a newcomer needs: the address, a key, and a line that works when pasted."""
        url, demo = f"http://{options.host}:{options.port}", self.demo
        if demo is None:
            self.say(f"\nTokenry is ready on {url}\n")
            return
        body = '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 32}'
        key = demo.key or "(not known any more: python manage.py create_key demo makes another)"
        password = demo.password or f"(changed; python manage.py changepassword {demo.username} sets another)"
        self.say(
            f"\nTokenry is ready on {url}\n\n"
            f"  key         {key}\n"
            f"  playground  {url}/playground/   user {demo.username}, password {password}\n"
            f"  admin       {url}/admin/   the same login\n"
            f"  docs        {url}/docs/   the API, out of {url}/schema\n\n"
            f"Try it:\n\n"
            f"  curl {url}/v1/chat/completions -H 'Authorization: Bearer {demo.key or 'KEY'}' \\\n"
            f"    -H 'Content-Type: application/json' -d '{body}'\n"
        )

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def check(options: ServeOptions) -> None:
    """What can be known before anything is started.

    Raises:
        OptionError, ModelMissing: with a sentence that says what to do.
    """
    folder = find_model(options.model if options.tokenizer is None else options.tokenizer)
    if options.role != "platform" and options.engine == "torch":
        find_model(options.model)
    if tokenizer_file(folder) is None:
        raise OptionError(f"{folder} has no tokenizer.json or tekken.json. Run: python manage.py pull_model {folder}")
    for name in ("chat_template",):
        path = getattr(options, name)
        if path is not None and not Path(path).is_file():
            raise OptionError(f"--chat-template: there is no file {path}.")
    if options.role == "generate" and options.host not in LOOPBACK and not os.environ.get("TOKENRY_NODE_SECRET"):
        raise OptionError(f"A node on {options.host} needs TOKENRY_NODE_SECRET: without it anyone who reaches the port can use it.")


def database_url() -> str:
    return os.environ.get("DATABASE_URL", "")


def bind(options: ServeOptions) -> socket.socket:
    """The listening socket, taken before anything slow happens, so that a taken port is told at once."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it; without, a small answer waits 44 ms for an ACK
    try:
        listener.bind((options.host, options.port))
        listener.listen(2048)
    except OSError as exc:
        raise CommandError(
            f"Port {options.port} on {options.host} cannot be used: {exc.strerror or exc}. Is Tokenry running already? "
            f"Stop that, or choose another with --port."
        ) from None
    listener.set_inheritable(False)
    return listener


async def run(options: ServeOptions, listener: socket.socket, welcome: Any) -> None:
    """Until a signal: the local node, if the role has one, and the HTTP server of this process."""
    node = None
    if options.role == "all":
        node = local_node(options)
        await node.start()
    from tokenry.asgi import application, built  # reads the options from the environment, which is complete only now

    try:
        built()
    except (ValueError, OSError) as exc:
        raise CommandError(f"The model cannot be served: {exc}") from None
    spare_collector()
    server = uvicorn.Server(config(application, options))
    greeter = asyncio.create_task(greet(options, welcome)) if options.role != "generate" else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if greeter is not None:
            greeter.cancel()
        if node is not None:
            await node.stop()


def spare_collector() -> None:
    """What is loaded lives as long as the process, so the garbage collector need not walk through it; and requests make many objects but
    no cycles, so it may run less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 10, 10)


def config(application: Any, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        loop="none",  # the one that runs already
        http=GatheringHttp,
        ws="websockets-sansio",
        ws_max_size=settings.MAX_FRAME_BYTES,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,
    )


def local_node(options: ServeOptions) -> LocalNode:
    """The same options in the role of a node, on a free port of the loopback, behind a secret that nobody else knows."""
    secret = os.environ.setdefault("TOKENRY_NODE_SECRET", secrets.token_urlsafe(32))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ["TOKENRY_NODE"] = f"http://127.0.0.1:{port}"
    environment = options.to_env() | {
        "TOKENRY_ROLE": "generate", "TOKENRY_HOST": "127.0.0.1", "TOKENRY_PORT": str(port), "TOKENRY_NODE": "",
        "TOKENRY_NODE_SECRET": secret,
    }
    return LocalNode(Path(sys.argv[0]).resolve(), environment)


async def greet(options: ServeOptions, welcome: Any) -> None:
    """Say that all is ready once it is."""
    from tokenry.application import platform_state

    await platform_state().fleet.wait_until_ready()
    welcome(options)

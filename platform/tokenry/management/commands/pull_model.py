"""`manage.py pull_model`: get a model into TOKENRY_HOME, ready to serve."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tokenry.model_pull import pull
from tokenry.model_sources import DEFAULT, PACKAGES, PullError


class Command(BaseCommand):
    help = "Get a model: a known name, a folder or GGUF file on this machine, or a model hub's owner/name."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = ", ".join(PACKAGES)
        parser.add_argument("model", nargs="?", default=DEFAULT, metavar="NAME-OR-PATH", help=f"default: {DEFAULT}; known names: {names}")
        parser.add_argument("--to", type=Path, metavar="DIR", help="the model's folder (default: TOKENRY_HOME/models/NAME)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            pull(options["model"], options["to"], self.say)
        except PullError as exc:
            raise CommandError(str(exc)) from None
        except OSError as exc:
            raise CommandError(f"The model could not be written: {exc}.") from None
        except KeyboardInterrupt:
            raise CommandError("Stopped; nothing half was left behind.", returncode=130) from None

    def say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()  # before what pip and the conversion write

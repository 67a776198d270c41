"""The engines and servers that ours is measured against, each in an environment of its own below .peers/ (`make bench-peers`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.load import GENERATE, Dialect
from harness.server import Command


@dataclass(frozen=True)
class Contestant:
    """A server in a comparison of engines, and how it is asked.

    `at_most` requests of a work are sent to a server that takes one at a time anyway: its throughput is the same, the wait is not.
    """

    command: Command
    dialect: Dialect = GENERATE
    at_most: int | None = None
    skips: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.command.name

"""`manage.py forget [--days N]`: once a day. Old requests and whatever has expired go; sums by day and the audit log stay."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from tenants import usage
from tenants.expired import forget_expired


class Command(BaseCommand):
    help = "Delete old requests from the ledger, and tickets, sessions and secrets that have expired."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--days", type=int, help="how many whole days of single requests to keep; without it, all of them")

    def handle(self, *args: Any, **options: Any) -> None:
        days: int | None = options["days"]
        if days is not None and days < 1:
            raise CommandError(f"--days must be at least 1, got {days}.")
        requests = 0 if days is None else usage.forget(before=datetime.now(UTC).date() - timedelta(days=days))
        expired = forget_expired()
        call_command("clearsessions")
        self.stdout.write(f"Deleted {requests} requests and {expired} expired tickets, calls and secrets.")

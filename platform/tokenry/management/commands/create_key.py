"""`manage.py create_key TENANT [--scope ...] [--json]`: another key of a tenant, shown once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from tenants import keys, selectors, services
from tokenry.management.writing import OPERATOR, print_key, refusals_in_words


class Command(BaseCommand):
    help = "Make a key for a tenant, and print it: it is shown once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug or name")
        parser.add_argument(
            "--scope",
            action="extend",
            nargs="+",
            metavar="SCOPE",
            help=f"what the key may do, one or more of {', '.join(keys.SCOPES)}; default: {' and '.join(keys.DEFAULT_SCOPES)}",
        )
        parser.add_argument("--name", default="command line", help="what the key is called in lists")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        scopes = keys.DEFAULT_SCOPES if options["scope"] is None else list(dict.fromkeys(options["scope"]))
        with refusals_in_words():
            tenant = selectors.tenant_named(options["tenant"])
            _, key = services.create_key(tenant=tenant, name=options["name"], scopes=scopes, actor=OPERATOR)
        print_key(self.stdout, tenant, key, as_json=options["json"])

"""`manage.py create_tenant NAME [--default FIELD=VALUE ...] [--json]`: a tenant and its first key, shown once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from tenants import services
from tenants.defaults import parse
from tenants.models import Tenant
from tokenry.management.writing import OPERATOR, print_key, refusals_in_words


class Command(BaseCommand):
    help = "Make a tenant with one key, and print the key: it is shown once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--default",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            help="a default for every request, as return_tokens_as_token_ids=true; repeatable",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        with refusals_in_words():
            tenant, key = make(options["name"], options["default"])
        print_key(self.stdout, tenant, key, as_json=options["json"])


@services.atomic
def make(name: str, assignments: list[str]) -> tuple[Tenant, str]:
    """Nothing is made where anything is wrong."""
    tenant = services.create_tenant(name=name, actor=OPERATOR)
    for assignment in assignments:
        services.set_defaults(tenant=tenant, values=parse(assignment), actor=OPERATOR)
    return tenant, services.create_key(tenant=tenant, name="first key", actor=OPERATOR)[1]

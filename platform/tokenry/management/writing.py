"""How the management commands speak: a key shown once, and a refusal as a sentence instead of a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from inference.errors import ApiError
from tenants.audit import system_actor
from tenants.models import Tenant

OPERATOR = system_actor("command line")


@contextmanager
def refusals_in_words() -> Iterator[None]:
    """A refused value ends the command with exit status 1 and a sentence that names the field."""
    try:
        yield
    except ApiError as fault:
        raise CommandError(fault.message) from None
    except ValidationError as fault:
        raise CommandError(sentence(fault)) from None


def sentence(fault: ValidationError) -> str:
    if not hasattr(fault, "error_dict"):
        return " ".join(fault.messages)
    return " ".join(
        message if field == "__all__" else f"{field}: {message}" for field, messages in fault.message_dict.items() for message in messages
    )


def print_key(out: TextIO, tenant: Tenant, key: str, *, as_json: bool) -> None:
    if as_json:
        shown = {"id": str(tenant.pk), "name": tenant.name, "slug": tenant.slug}
        out.write(json.dumps({"tenant": shown, "key": key}))
    else:
        out.write(f"Tenant {tenant.name} ({tenant.slug})\nKey    {key}\nKeep the key: it is not shown again.")

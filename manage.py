#!/usr/bin/env python3
"""Django's command line for Tokenry: serve, pull_model, create_tenant, create_key, and Django's own commands."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    # platform/ is a source folder, never a package: a package of that name would shadow the standard library's `platform`.
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tokenry.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed for this Python. `make serve` sets everything up; after it, use .venv/bin/python manage.py.")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as fault:  # a sentence for whoever set it, not a traceback
        sys.exit(str(fault))


if __name__ == "__main__":
    main()

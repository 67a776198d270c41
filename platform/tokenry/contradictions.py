"""Settings that cannot work together, or cannot work at all: each is a sentence that says what to do, and nothing starts with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

SHORTEST_SECRET = 32
DATABASES = ("sqlite", "postgres", "postgresql")
COUNTERS = ("redis", "rediss", "unix")


def refuse_contradictions(env: Mapping[str, str]) -> None:
    """Raises ImproperlyConfigured with the first."""
    for sentence in contradictions({name: value for name, value in env.items() if value}):
        raise ImproperlyConfigured(sentence)


def contradictions(env: Mapping[str, str]) -> Iterator[str]:
    yield from of_stores(env)
    yield from of_secrets(env)
    yield from of_addresses(env)


def of_stores(env: Mapping[str, str]) -> Iterator[str]:
    database, counters = urlsplit(env.get("DATABASE_URL", "sqlite:")).scheme, env.get("REDIS_URL")
    pool = env.get("TOKENRY_DATABASE_POOL", "1")
    if database not in DATABASES:
        yield f"DATABASE_URL must begin with postgres:// or sqlite://, got {database}://."
    if counters is not None and urlsplit(counters).scheme not in COUNTERS:
        yield "REDIS_URL must begin with redis://, rediss:// or unix://."
    if counters is not None and database == "sqlite":
        yield "REDIS_URL is for several platform processes, but the database is SQLite, which is one machine's file: set DATABASE_URL too."
    if counters is not None and "TOKENRY_SECRET_KEY" not in env:
        yield "REDIS_URL is for several platform processes, and each would make a secret of its own and refuse the others' keys: " \
              "set TOKENRY_SECRET_KEY, the same for all."
    if "TOKENRY_DATABASE_POOL" in env and database == "sqlite":
        yield "TOKENRY_DATABASE_POOL is for PostgreSQL, but the database is SQLite: set DATABASE_URL, or leave the pool out."
    if not pool.isdecimal() or int(pool) < 1:
        yield f"TOKENRY_DATABASE_POOL must be a whole number above 0, got {pool!r}."


def of_secrets(env: Mapping[str, str]) -> Iterator[str]:
    secret = env.get("TOKENRY_SECRET_KEY")
    if secret is not None and len(secret) < SHORTEST_SECRET:
        yield f"TOKENRY_SECRET_KEY must have at least {SHORTEST_SECRET} characters. This makes one: " \
              "python -c 'import secrets; print(secrets.token_urlsafe(48))'"
    if secret is not None and env.get("TOKENRY_NODE_SECRET") == secret:
        yield "TOKENRY_NODE_SECRET must differ from TOKENRY_SECRET_KEY: nodes see the one, and nobody may see the other."


def of_addresses(env: Mapping[str, str]) -> Iterator[str]:
    https, origins = env.get("TOKENRY_HTTPS", "0"), env.get("TOKENRY_TRUSTED_ORIGINS", "").split(",")
    schemes = {urlsplit(origin).scheme for origin in origins if origin}
    if https not in ("0", "1"):
        yield f"TOKENRY_HTTPS must be 1 or 0, got {https!r}."
    if https == "1" and "TOKENRY_ALLOWED_HOSTS" not in env:
        yield "TOKENRY_HTTPS=1 is for a public name, but only localhost would be answered: set TOKENRY_ALLOWED_HOSTS to that name."
    if not schemes <= {"http", "https"}:
        yield "TOKENRY_TRUSTED_ORIGINS must be origins such as https://llm.example.com, separated by commas."
    if https == "1" and "http" in schemes:
        yield "TOKENRY_TRUSTED_ORIGINS trusts http://, over which no login can come with TOKENRY_HTTPS=1: make it https://."

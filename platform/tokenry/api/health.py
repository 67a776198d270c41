"""Whether the process lives (`/healthz`, without the database), whether it can serve (`/readyz`), and what it counts (`/metrics`)."""

from __future__ import annotations

from importlib import metadata

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tokenry.application import platform_state


def healthz(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "ok"})


def health(request: HttpRequest) -> HttpResponse:
    """As vLLM's: 200 and nothing else."""
    return HttpResponse(b"")


def version(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"version": metadata.version("tokenry")})


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when the database answers, is migrated, and every model has a node that is up; else 503 with what is missing."""
    checks = {"database": database_ready(), "nodes": platform_state().fleet.ready()}
    ready = all(checks.values())
    return JsonResponse({"status": "ok" if ready else "not ready", "checks": checks}, status=200 if ready else 503)


def database_ready() -> bool:
    try:
        executor = MigrationExecutor(connection)
        return not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return False
    finally:
        connection.close()


def metrics(request: HttpRequest) -> HttpResponse:
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)

"""Settings of the Django project: one flat file, read from the environment, raising on what cannot be."""

from __future__ import annotations

import os
import secrets
import warnings
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from django.urls import reverse_lazy

from tokenry.contradictions import SHORTEST_SECRET, refuse_contradictions

DATABASE_SECONDS = 5  # how long a request waits for a connection before it is a 503
BASE_DIR = Path(__file__).resolve().parent.parent.parent


def number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number, got {text!r}.") from None


def kept_secret(name: str, folder: Path) -> str:
    """From the environment, else made once and kept in TOKENRY_HOME, readable by its owner alone."""
    if value := os.environ.get(name):
        return value
    file = folder / f"{name.lower()}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text().strip()
    except OSError as exc:
        raise ImproperlyConfigured(f"{name} is not set, and it cannot be kept in {folder}: {exc}.") from None
    value = secrets.token_urlsafe(48)
    with os.fdopen(descriptor, "w") as out:
        out.write(value)
    return value


def key_peppers() -> dict[int, bytes]:
    """What keys' digests are made with, by version; new keys get the newest. TOKENRY_KEY_PEPPERS is `VERSION:SECRET,VERSION:SECRET`."""
    text = os.environ.get("TOKENRY_KEY_PEPPERS", "")
    if not text:
        return {1: SECRET_KEY.encode()}
    peppers = {}
    for part in text.split(","):
        version, _, secret = part.strip().partition(":")
        if not version.isdecimal() or len(secret) < SHORTEST_SECRET:
            raise ImproperlyConfigured(
                f"TOKENRY_KEY_PEPPERS must be VERSION:SECRET, separated by commas, with secrets of at least {SHORTEST_SECRET} characters.")
        peppers[int(version)] = secret.encode()
    return peppers


def database() -> dict[str, Any]:
    """PostgreSQL by DATABASE_URL, else one SQLite file. WAL and immediate transactions: without them concurrent writers fail as locked."""
    url = os.environ.get("DATABASE_URL", "")
    config: dict[str, Any] = dict(dj_database_url.parse(url or f"sqlite:///{TOKENRY_HOME}/tokenry.sqlite3", conn_max_age=0))
    if "sqlite" in config["ENGINE"]:
        pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000; PRAGMA foreign_keys=ON;"
        config["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": pragmas}
    else:
        config["CONN_HEALTH_CHECKS"] = True  # the database may have been restarted
        pool = {"min_size": 1, "max_size": int(number("TOKENRY_DATABASE_POOL", 8)), "timeout": DATABASE_SECONDS}
        config["OPTIONS"] = {**config.get("OPTIONS", {}), "pool": pool}
    return config


refuse_contradictions(os.environ)
TOKENRY_HOME = Path(os.environ.get("TOKENRY_HOME") or BASE_DIR / ".tokenry").resolve()
SECRET_KEY = kept_secret("TOKENRY_SECRET_KEY", TOKENRY_HOME)
KEY_PEPPERS = key_peppers()
CALLER_CACHE_SECONDS = 0.5  # a revoked key is dead within a second on every process

DEBUG = False
ALLOWED_HOSTS = [host.strip() for host in os.environ.get("TOKENRY_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")]
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "tokenry",
    "tokenry.web",
    "unfold",
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "tenants",
]
# The admin's and the pages' alone: the API runs on a handler without middleware (tokenry.asgi), which saves it 15 thread hops.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "tokenry.web.security.ContentSecurityPolicy",
]
ROOT_URLCONF = "tokenry.urls"
ASGI_APPLICATION = "tokenry.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": database()}
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/admin/login/"
STATIC_URL = "/static/"
STATIC_ROOT = TOKENRY_HOME / "static"
WHITENOISE_USE_FINDERS = True  # served from the packages themselves: no collectstatic before the first start
# Files come in pieces, which Django reads as a whole, and warns of. They are small.
warnings.filterwarnings("ignore", "StreamingHttpResponse must consume synchronous iterators")

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
HTTPS = os.environ.get("TOKENRY_HTTPS", "") == "1"  # TLS ends in front; the pages then want it, the API takes what the proxy lets through
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]  # HSTS of subdomains and preloading: for the domain's owner to say
CSRF_TRUSTED_ORIGINS = [origin for origin in os.environ.get("TOKENRY_TRUSTED_ORIGINS", "").split(",") if origin]

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_PARSER_CLASSES": ["tokenry.api.codec.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["tokenry.api.codec.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "tokenry.api.codec.AnyAccept",
    "DEFAULT_SCHEMA_CLASS": "tokenry.api.autoschema.BodiesByTable",
    "EXCEPTION_HANDLER": "tokenry.errors.drf_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tokenry",
    "DESCRIPTION": "A multi-tenant LLM API: OpenAI's endpoints, and render, generate and derender as three services.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",  # whose schemas are JSON Schema, as the wire types give it
    "POSTPROCESSING_HOOKS": ["tokenry.api.schema.with_wire_types"],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",  # the docs page asks no other host for anything
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "ENABLE_DJANGO_DEPLOY_CHECK": False,  # it asks for serializers, and bodies here are the strict codec's
}
MODEL_LAYERS = "tokenry.application.model_layers"  # what the tenants' defaults stand on: the model's own values, and the server's
UNFOLD = {
    "SITE_TITLE": "Tokenry",
    "SITE_HEADER": "Tokenry",
    "SITE_SYMBOL": "token",
    "SITE_URL": "/playground/",
    "DASHBOARD_CALLBACK": "tokenry.web.dashboard.dashboard",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("web/icon.svg")}],
    "SCRIPTS": [lambda request: static("web/admin.js")],
    "COLORS": {
        "primary": {
            "50": "#eef2ff", "100": "#e0e7ff", "200": "#c7d2fe", "300": "#a5b4fc", "400": "#939bfa", "500": "#818cf8",
            "600": "#4f46e5", "700": "#4338ca", "800": "#3730a3", "900": "#312e81", "950": "#1e1b4b",
        },
    },
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {
        "show_search": False,
        "navigation": [
            {
                "title": "Look",
                "items": [
                    {"title": "Overview", "icon": "dashboard", "link": reverse_lazy("admin:index")},
                    {"title": "Playground", "icon": "forum", "link": "/playground/"},
                    {"title": "Usage", "icon": "bar_chart", "link": "/usage/"},
                ],
            },
            {
                "title": "Tenants",
                "items": [
                    {"title": "Tenants", "icon": "apartment", "link": reverse_lazy("admin:tenants_tenant_changelist")},
                    {"title": "Members", "icon": "group", "link": reverse_lazy("admin:tenants_member_changelist")},
                    {"title": "Keys", "icon": "key", "link": reverse_lazy("admin:tenants_key_changelist")},
                    {"title": "Defaults", "icon": "tune", "link": reverse_lazy("admin:tenants_defaults_changelist")},
                    {"title": "Limits", "icon": "speed", "link": reverse_lazy("admin:tenants_limit_changelist")},
                    {
                        "title": "Users",
                        "icon": "person",
                        "link": reverse_lazy("admin:auth_user_changelist"),
                        "permission": lambda request: request.user.is_superuser,
                    },
                ],
            },
            {
                "title": "Accounts",
                "items": [
                    {"title": "Requests", "icon": "receipt_long", "link": reverse_lazy("admin:tenants_entry_changelist")},
                    {"title": "Sums by day", "icon": "calendar_month", "link": reverse_lazy("admin:tenants_rollup_changelist")},
                    {
                        "title": "Prices",
                        "icon": "sell",
                        "link": reverse_lazy("admin:tenants_price_changelist"),
                        "permission": lambda request: request.user.is_superuser,
                    },
                    {
                        "title": "Audit log",
                        "icon": "history",
                        "link": reverse_lazy("admin:tenants_auditentry_changelist"),
                        "permission": "tenants.admin.reading.sees_audit",
                    },
                ],
            },
        ],
    },
}

MAX_BODY_BYTES = int(number("TOKENRY_MAX_BODY_BYTES", 16 * 1024 * 1024))
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES  # the guard refuses first, and in JSON
MAX_FRAME_BYTES = int(number("TOKENRY_MAX_FRAME_BYTES", 4 * 1024 * 1024))
MAX_SOCKET_STREAMS = int(number("TOKENRY_MAX_SOCKET_STREAMS", 64))
MAX_TENANT_SESSIONS = int(number("TOKENRY_MAX_TENANT_SESSIONS", 256))  # derender sessions, per process
SESSION_MAX_SECONDS = number("TOKENRY_SESSION_MAX_SECONDS", 3600)
SOCKET_IDLE_SECONDS = number("TOKENRY_SOCKET_IDLE_SECONDS", 600)
SOCKET_MAX_SECONDS = number("TOKENRY_SOCKET_MAX_SECONDS", 4 * 3600)
HEARTBEAT_SECONDS = number("TOKENRY_HEARTBEAT_SECONDS", 10)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "filters": {"faults": {"()": "django.utils.log.CallbackFilter", "callback": lambda record: record.exc_info is not None}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("TOKENRY_LOG_LEVEL", "WARNING")},
    "loggers": {
        "django.request": {"level": "ERROR", "filters": ["faults"]},  # what raised; a 503 of /readyz is an answer, not news
        "tokenry": {"level": os.environ.get("TOKENRY_LOG_LEVEL", "INFO")},
    },
}

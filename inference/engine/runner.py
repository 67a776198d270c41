"""Which forward runs the model: the fused one where it knows the family and proves itself, else Hugging Face's own modules."""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inference.engine.config import EngineConfig
from inference.engine.executor import Runner
from inference.engine.fused import FusedRunner, why_not_fused
from inference.engine.generic import GenericRunner
from inference.engine.selftest import Reference

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(config: EngineConfig) -> torch.device:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no CUDA device; use auto or cpu.")
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def choose_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA; float32 on a CPU, where most are far slower with anything else."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return DTYPES[config.dtype]


def model_length(model: str) -> int:
    """The longest sequence that the model was made for."""
    length = getattr(AutoConfig.from_pretrained(model).get_text_config(), "max_position_embeddings", None)
    if length is None:
        raise ValueError("max_model_len must be given: the model's configuration does not say how long its context is.")
    return int(length)


def load_model(config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Any:
    """The Hugging Face model, in evaluation mode, on the device."""
    model = AutoModelForCausalLM.from_pretrained(str(config.model), dtype=dtype)
    return model.eval().requires_grad_(False).to(device)


def load_runner(config: EngineConfig) -> tuple[Runner, int]:
    """The fastest runner that is right for the model, and the longest sequence that it takes."""
    device = choose_device(config)
    dtype = choose_dtype(config, device)
    declared = model_length(str(config.model))
    max_len = declared if config.max_model_len is None else config.max_model_len
    if max_len > declared:
        raise ValueError(f"max_model_len is {max_len}, but the model was made for at most {declared}.")
    model = load_model(config, device, dtype)
    reference = Reference.of(model)
    reason = "as configured" if config.runner == "generic" else why_not_fused(model.config, max_len)
    if reason is None:
        fused = FusedRunner(model, max_len)
        reason = reference.fault_of(fused)
        if reason is None:
            return fused, max_len
        model = load_model(config, device, dtype)  # the fused runner took the weights out of the first one
    if config.runner == "fused":
        raise ValueError(f"runner is fused, but the fused forward is not for this model: {reason}.")
    log.info("The model runs on its own modules, not on the fused forward: %s", reason)
    if device.type == "cpu":
        packed = GenericRunner(model, max_len, packed=True)
        if reference.fault_of(packed) is None:
            return packed, max_len
        model = load_model(config, device, dtype)
    generic = GenericRunner(model, max_len, packed=False)
    fault = reference.fault_of(generic)
    if fault is not None:
        raise NotImplementedError(f"This model cannot be run: {fault}")
    return generic, max_len

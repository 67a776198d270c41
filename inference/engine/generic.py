"""Any Hugging Face causal model whose attention can be replaced, as it is: its modules run over the packed batch."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from inference.engine.batch import Batch
from inference.engine.kv import KvShape
from inference.engine.linear import Linear

ATTENTION = "tokenry"
current_batch: ContextVar[Batch] = ContextVar("current_batch")


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None = None, **extra: Any
) -> tuple[Tensor, None]:
    """What the model's attention modules call: [1, heads, tokens, head_dim] in, [1, tokens, heads, head_dim] out."""
    refuse_unsupported(module, extra)
    batch = current_batch.get()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    kv = torch.stack([key[0], value[0]]).permute(2, 0, 1, 3)
    return batch.attend(module.layer_idx, query[0].transpose(0, 1), kv, scale)[None], None


def refuse_unsupported(module: Any, extra: dict[str, Any]) -> None:
    for name in ("softcap", "s_aux", "position_bias"):
        if extra.get(name) is not None:
            raise NotImplementedError(f"The model's attention uses {name}, which this engine does not do.")
    window = extra.get("sliding_window")
    if window is not None and window < module.config.tokenry_max_len:
        raise NotImplementedError(f"The model slides its attention over {window} tokens; start with max_model_len {window} or less.")


class PackedLinear(nn.Module):
    """Takes the place of a module of torch's, whose weight it packs."""

    def __init__(self, module: nn.Linear) -> None:
        super().__init__()
        self.product = Linear(module.weight, module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


def pack(model: nn.Module) -> None:
    """Every plain Linear of the model, in place, one after the other: no two copies of all weights are held."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child))


class GenericRunner:
    """`packed`: with the products of `linear`, which some models' own code cannot do with, because it looks at the weights."""

    name = "generic"

    def __init__(self, model: Any, max_len: int, *, packed: bool) -> None:
        if not getattr(model, "_supports_attention_backend", False):
            raise NotImplementedError(f"Models of type {model.config.model_type} do not let their attention be replaced.")
        AttentionInterface.register(ATTENTION, attention)
        model.set_attn_implementation(ATTENTION)
        model.config.get_text_config().tokenry_max_len = max_len
        self.model = model
        self.shape = KvShape.of(model)
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        if packed:
            pack(model)

    def logits(self, batch: Batch) -> Tensor:
        token = current_batch.set(batch)
        try:
            outputs: Any = 0 if batch.outputs is None else batch.outputs
            result = self.model(
                input_ids=batch.ids[None], position_ids=batch.positions[None], use_cache=False, logits_to_keep=outputs
            )
        finally:
            current_batch.reset(token)
        logits: Tensor = result.logits[0].float()
        return logits

"""The Llama family's forward (llama, mistral, qwen2, qwen3), with few and large operations.

Against Hugging Face's modules: query, key and value are one product, gate and up another; the residual is added in the product that
follows; the rotation is one complex multiplication in place. Their modules spend 10 to 18 ms of a step of one row on small operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from inference.engine.batch import Batch
from inference.engine.kernels import kernels_for
from inference.engine.kv import KvShape
from inference.engine.linear import Linear
from inference.engine.native import Stack, native_for
from inference.engine.native_attention import NativeBatch

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # those whose frequencies do not change with the length


def why_not_fused(config: Any, max_len: int) -> str | None:
    """What about this model the fused forward does not do, or None."""
    if config.model_type not in FAMILIES:
        return f"model type {config.model_type}"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act}"
    rope = config.rope_parameters
    if rope["rope_type"] not in STATIC_ROPE or rope.get("partial_rotary_factor", 1.0) != 1.0:
        return f"rotary embedding {rope['rope_type']}"
    window = getattr(config, "sliding_window", None)
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    if window is not None and sliding and window < max_len:
        return f"sliding window {window}"
    return None


@dataclass
class Layer:
    input_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


class FusedRunner:
    """Takes its weights out of a Hugging Face model layer by layer, so that no two copies are held; the model is of no use afterwards."""

    name = "fused"

    def __init__(self, model: Any, max_len: int) -> None:
        config = model.config
        self.shape = KvShape.of(model)
        self.vocab_size: int = model.lm_head.weight.shape[0]
        self.heads: int = config.num_attention_heads
        self.eps: float = config.rms_norm_eps
        self.scale = self.shape.head_dim**-0.5
        self.kernels = kernels_for(self.shape.dtype, self.shape.device)
        self.embedding: Tensor = model.model.embed_tokens.weight
        self.rotation = rotation_table(model.model.rotary_emb, max_len)
        self.layers = [self._take(model.model.layers, number) for number in range(self.shape.layers)]
        self.norm: Tensor = model.model.norm.weight
        self.head = Linear(model.lm_head.weight, model.lm_head.bias)
        self.stack = None if native_for(self.shape.dtype, self.shape.device) is None else self._stack(config)

    def logits(self, batch: Batch) -> Tensor:
        hidden = self.embedding[batch.ids]
        if self.stack is not None and isinstance(batch, NativeBatch) and batch.rows is not None and not batch.pieces:
            batch.kernels.decode_layers(self.stack, hidden, batch.positions, batch.pool, batch.rows)
            return self.head(self._normed(hidden, self.norm))
        for number, layer in enumerate(self.layers):
            attended = self._attention(number, layer, hidden, batch)
            if number == len(self.layers) - 1 and batch.outputs is not None:  # of the others, only keys and values are of use
                if not len(batch.outputs):
                    return hidden.new_empty(0, self.vocab_size, dtype=torch.float32)
                hidden, attended = hidden[batch.outputs], attended[batch.outputs]
            hidden = self._mlp(layer, layer.out(attended, add=hidden))
        return self.head(self._normed(hidden, self.norm)).float()

    def _attention(self, number: int, layer: Layer, hidden: Tensor, batch: Batch) -> Tensor:
        """[tokens, heads * head_dim]"""
        qkv = layer.qkv(self._normed(hidden, layer.input_norm)).view(len(hidden), -1, self.shape.head_dim)
        keys_end = self.heads + self.shape.kv_heads
        if layer.query_norm is not None and layer.key_norm is not None:
            qkv[:, : self.heads] = self._head_normed(qkv[:, : self.heads], layer.query_norm)
            qkv[:, self.heads : keys_end] = self._head_normed(qkv[:, self.heads : keys_end], layer.key_norm)
        self.kernels.rotate(qkv[:, :keys_end], self.rotation, batch.positions)
        kv = qkv[:, self.heads :].unflatten(1, (2, self.shape.kv_heads))
        return batch.attend(number, qkv[:, : self.heads], kv, self.scale).reshape(len(hidden), -1)

    def _mlp(self, layer: Layer, hidden: Tensor) -> Tensor:
        return layer.down(self.kernels.silu_mul(layer.gate_up(self._normed(hidden, layer.post_norm))), add=hidden)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return self.kernels.rms_norm(hidden, weight, self.eps)

    def _head_normed(self, heads: Tensor, weight: Tensor) -> Tensor:
        """[tokens, heads, head_dim]"""
        return self._normed(heads.reshape(-1, self.shape.head_dim), weight).view(heads.shape)

    def _stack(self, config: Any) -> Stack:
        """The layers as our own kernels go through them in one call."""
        products = ("qkv", "out", "gate_up", "down")
        norms = ("input_norm", "query_norm", "key_norm", "post_norm")
        layers = [
            {name: getattr(layer, name) for name in norms}
            | {name: getattr(layer, name).weight for name in products}
            | {f"{name}_bias": getattr(layer, name).bias for name in products}
            for layer in self.layers
        ]
        sizes = {"hidden": config.hidden_size, "inner": config.intermediate_size, "heads": self.heads}
        sizes |= {"kv_heads": self.shape.kv_heads, "dim": self.shape.head_dim}
        return Stack(layers, torch.view_as_real(self.rotation), eps=self.eps, scale=self.scale, **sizes)

    def _take(self, modules: nn.ModuleList, number: int) -> Layer:
        module: Any = modules[number]
        modules[number] = nn.Identity()
        attention, mlp = module.self_attn, module.mlp
        query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
        weights = [self._paired(query.weight), self._paired(key.weight), value.weight]
        biases = None if query.bias is None else torch.cat([self._paired(query.bias), self._paired(key.bias), value.bias])
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        query_norm, key_norm = (None if norm is None else self._paired(norm.weight) for norm in norms)
        return Layer(
            input_norm=module.input_layernorm.weight,
            qkv=Linear(torch.cat(weights), biases),
            query_norm=query_norm,
            key_norm=key_norm,
            out=Linear(attention.o_proj.weight, attention.o_proj.bias),
            post_norm=module.post_attention_layernorm.weight,
            gate_up=Linear(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]), joined_bias(mlp)),
            down=Linear(mlp.down_proj.weight, mlp.down_proj.bias),
        )

    def _paired(self, weight: Tensor) -> Tensor:
        """Reorder each head's dimensions so that the two that rotate together are neighbours; queries times keys stay the same."""
        half = self.shape.head_dim // 2
        return weight.view(-1, 2, half, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def joined_bias(mlp: Any) -> Tensor | None:
    return None if mlp.gate_proj.bias is None else torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias])


def rotation_table(rotary: Any, max_len: int) -> Tensor:
    """[max_len, 1, head_dim / 2] complex: cos + i sin of each position's angles, scaled as the model says."""
    positions = torch.arange(max_len, device=rotary.inv_freq.device, dtype=torch.float32)
    angles = torch.outer(positions, rotary.inv_freq.float())
    return torch.polar(torch.full_like(angles, rotary.attention_scaling), angles)[:, None]

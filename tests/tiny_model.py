"""A Llama of one layer with random weights and a byte-level vocabulary, as a GGUF file: what conversions are tested on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
from gguf import GGUFWriter, TokenType

from tests.world import TOKENIZERS

HIDDEN, HEADS, FEED_FORWARD, CONTEXT = 32, 2, 64, 128


def write_gguf(file: Path, splitting: str) -> None:
    """`splitting` is the GGUF's name for how the vocabulary splits text."""
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    tokens = vocabulary()
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token.startswith("<|") else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["H i"])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    for name, shape in tensors(len(tokens)).items():
        writer.add_tensor(name, numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary() -> list[str]:
    """Tokenizer t1's bytes and special tokens, and one merge."""
    vocab = json.loads((TOKENIZERS / "t1" / "tokenizer.json").read_text())["model"]["vocab"]
    return [*sorted(vocab, key=vocab.__getitem__), "<|endoftext|>", "<|im_start|>", "<|im_end|>", "Hi"]


def tensors(vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    square = (HIDDEN, HIDDEN)
    layer = {
        "attn_norm": (HIDDEN,), "attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square,
        "ffn_norm": (HIDDEN,), "ffn_gate": (FEED_FORWARD, HIDDEN), "ffn_up": (FEED_FORWARD, HIDDEN), "ffn_down": (HIDDEN, FEED_FORWARD),
    }
    whole = {"token_embd.weight": (vocabulary_size, HIDDEN), "output_norm.weight": (HIDDEN,)}
    return whole | {f"blk.0.{name}.weight": shape for name, shape in layer.items()}

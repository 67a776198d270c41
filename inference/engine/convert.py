"""Make what the engine and the tokenizer read out of what they do not: `python -m inference.engine.convert SOURCE FOLDER`.

SOURCE is a GGUF file (weights, configuration and tokenizer are converted, unless a tokenizer.json lies beside it), or a model folder
whose tokenizer is of a slow format (that alone is converted). A process of its own: the callers do without torch.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
SAID_NOWHERE = ("_model_name_or_path", "unk_token_id")  # what the loading adds to a configuration, and no model of its kind has
# Byte-level vocabularies whose way of splitting text transformers rebuilds rightly from the GGUF's name for it.
# One that it does not know becomes GPT-2's in silence, and then the model reads other tokens than it was trained on.
FAITHFUL = {"gpt-2", "llama3", "llama-v3", "llama-bpe", "qwen2", "deepseek-r1-qwen", "qwen35", "tekken", "gpt-4o", "llama4"}


def main(source: Path, folder: Path) -> None:
    if source.is_dir():
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
        return
    model = convert_model(source, folder)
    beside = [source.parent / name for name in TOKENIZER_FILES if (source.parent / name).is_file()]
    if any(file.name == "tokenizer.json" for file in beside):
        for file in beside:
            shutil.copyfile(file, folder / file.name)
    else:
        convert_tokenizer(source, folder, longest=model.config.max_position_embeddings)


def convert_model(source: Path, folder: Path) -> PreTrainedModel:
    """Weights, de-quantised to float32, as safetensors; with config.json and generation_config.json."""
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # A model loaded from a GGUF file refuses to be saved, so its weights move into one made from the plain configuration.
    config = {key: value for key, value in loaded.config.to_dict().items() if key != "quantization_config"}
    with torch.device("meta"):
        model = type(loaded)(type(loaded.config).from_dict(config))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
    edit_json(folder / "config.json", plain_config)
    return model


def plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """As the model's authors wrote it: GGUF keeps floats in 32 bits, so that 1e-5 arrives as 9.999999747378752e-06."""
    return {
        key: float(str(numpy.float32(value))) if key.endswith(("_eps", "_epsilon")) else value
        for key, value in config.items()
        if key not in SAID_NOWHERE
    }


def convert_tokenizer(source: Path, folder: Path, longest: int) -> None:
    """tokenizer.json, tokenizer_config.json and the chat template, from the GGUF's metadata.

    Raises:
        ValueError: nothing here knows how this vocabulary splits text.
    """
    fields = GGUFReader(source).fields
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    if fields["tokenizer.ggml.model"].contents() == "gpt2":
        mend_splitting(tokenizer, fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else "gpt-2")
    tokenizer.save_pretrained(folder)
    adds_space = fields.get("tokenizer.ggml.add_space_prefix")

    def plain(config: dict[str, Any]) -> dict[str, Any]:
        config = {key: value for key, value in config.items() if key not in ("is_local", "local_files_only")}
        space = {"add_prefix_space": bool(adds_space.contents())} if adds_space is not None else {}
        return {**config, "model_max_length": longest, "clean_up_tokenization_spaces": False, **space}

    edit_json(folder / "tokenizer_config.json", plain)
    edit_json(folder / "tokenizer.json", without_empty_template)


def mend_splitting(tokenizer: PreTrainedTokenizerFast, splitting: str) -> None:
    """SmolLM splits a number into its digits, which the conversion loses; other splittings must be known to survive it."""
    backend = tokenizer.backend_tokenizer
    if splitting == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif splitting not in FAITHFUL:
        raise ValueError(f"the GGUF file splits text by {splitting!r}, which is not known here; put the model's tokenizer.json beside it")


def without_empty_template(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """A post-processor that adds no token changes nothing, and costs a pass over every prompt."""
    template = tokenizer["post_processor"]
    idle = template is not None and template["type"] == "TemplateProcessing" and not template["special_tokens"]
    return {**tokenizer, "post_processor": None} if idle else tokenizer


def edit_json(file: Path, edit: Any) -> None:
    edited = edit(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(edited, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    logging.set_verbosity_error()
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as exc:  # whatever the libraries raise: one sentence, and the caller says what it was for
        sys.exit(f"The conversion failed: {type(exc).__name__}: {exc}")

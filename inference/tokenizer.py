"""A model's tokenizer, straight on the `tokenizers` library: importing transformers would import torch.

Two views of a token that must not be confused: its *piece* is the vocabulary string ("Ġcapital", "▁Hello", "<0xC3>"), which decoders take
in sequences; its *text* is what the token alone decodes to. A token that holds part of a character has no text of its own: U+FFFD.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from inference.ascii_encoder import AsciiEncoder, library_ids
from inference.errors import BadRequest
from inference.pieces import decoder_kinds, form_of, piece_bytes
from inference.tokenizer_file import tokenizer_config, tokenizer_content

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
REPLACEMENT = "\ufffd"
WORD_START = "▁"  # SentencePiece's mark of a leading space
CONCATENATING = {"ByteLevel", "Sequence"}  # decoders that put bytes together and do nothing else


class TokenText(Struct, frozen=True, gc=False):
    """What a token alone decodes to. `bytes` is None outside the vocabulary.

    `broken`: it ends in part of a character. `completes`: that part may be the end of one that earlier tokens began. There is one for every
    token, for good: nothing in it is the collector's business.
    """

    text: str
    bytes: tuple[int, ...] | None
    broken: bool = False
    completes: bool = False


NO_TOKEN = TokenText("", None)
# The pieces of bytes that begin characters of 2, 3 and 4: of byte-level tokenizers, and of those with byte fallback.
CHARACTER_STARTS = ("\u00c3", "\u00e6", "\u00f1", "<0xC3>", "<0xE6>", "<0xF1>")


class Tokenizer:
    """Read-only after `load`, and safe to share between requests. Ids outside the vocabulary decode to nothing, they are no error.

    `concatenates`: texts of whole characters, one behind the other, are the text of all.
    """

    def __init__(self, path: Path, backend: Backend, config: dict[str, Any], templates: dict[str, str], fingerprint: str) -> None:
        self.path = path
        self.config = config
        self.fingerprint = fingerprint
        self.chat_template = templates.get("default")
        self.tool_chat_template = templates.get("tool_use", self.chat_template)
        self.special_tokens = named_tokens(config)
        self._backend = backend
        self._ascii = AsciiEncoder.build(backend)
        self._decoder = backend.decoder
        top = max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self.pieces: list[str | None] = [backend.id_to_token(i) for i in range(top + 1)]
        self.vocab_size = len(self.pieces)
        self.longest_piece = max((len(piece) for piece in self.pieces if piece), default=1)
        self.special_ids = frozenset(self._special_ids())
        self.eos_token_id = self._id_of("eos_token")
        self.bos_token_id = self._id_of("bos_token")
        decoder = None if backend.decoder is None else json.loads(backend.decoder.__getstate__())
        self._form = form_of(decoder)
        self.concatenates = self._form == "bytes" and decoder_kinds(decoder) <= CONCATENATING
        self._added = {i: token.content.encode() for i, token in backend.get_added_tokens_decoder().items()}

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """From a folder with tokenizer.json or tekken.json, and tokenizer_config.json and a chat template where there are any.

        Raises:
            FileNotFoundError: neither tokenizer.json nor tekken.json.
            ValueError: tekken.json cannot be read.
        """
        content = tokenizer_content(folder)
        config = tokenizer_config(folder)
        templates = chat_templates(folder, config)
        digest = hashlib.sha256(content + json.dumps([config, templates], sort_keys=True).encode()).hexdigest()
        backend = Backend.from_buffer(content)
        backend.no_truncation()  # a file may carry its training's settings, which would cut or pad prompts without a word
        backend.no_padding()
        return cls(folder, backend, config, templates, digest[:16])

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            if self._ascii is None:
                return library_ids(self._backend, text, add_special_tokens)
            return self._ascii.encode(text, add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeError):
            raise not_unicode() from None

    def encode_with_offsets(self, text: str, *, add_special_tokens: bool) -> tuple[list[int], list[list[int]]]:
        """Ids, and per id its [start, end) in code points of `text`."""
        try:
            encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeError):
            raise not_unicode() from None
        return encoding.ids, [list(span) for span in encoding.offsets]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        hidden = self.special_ids if skip_special_tokens else frozenset()
        return self.decode_pieces([piece for i in ids if i not in hidden and (piece := self.piece(i)) is not None])

    def decode_pieces(self, pieces: list[str]) -> str:
        text: str = " ".join(pieces) if self._decoder is None else self._decoder.decode(pieces)
        return text

    def piece(self, token_id: int) -> str | None:
        """The vocabulary string, or None outside the vocabulary."""
        return self.pieces[token_id] if 0 <= token_id < self.vocab_size else None

    def token_to_id(self, piece: str) -> int | None:
        found: int | None = self._backend.token_to_id(piece)
        return found

    def text(self, token_id: int) -> TokenText:
        """The text of one token, with the leading space that a decoder drops at the start of a sequence."""
        return self.texts[token_id] if 0 <= token_id < self.vocab_size else NO_TOKEN

    @cached_property
    def texts(self) -> list[TokenText]:
        """Of every token, by id: a list, because logprobs look up thousands per answer."""
        return [self._text(token_id) for token_id in range(self.vocab_size)]

    def prepare(self) -> None:
        """Make the texts now, a microsecond or two each, and not within the first request that needs one."""
        _ = self.texts

    def raw(self, token_id: int) -> bytes:
        """The token's own bytes, which may be part of a character; none outside the vocabulary."""
        added, piece = self._added.get(token_id), self.piece(token_id)
        if added is not None:
            return added
        return b"" if piece is None else piece_bytes(piece, self._form)

    def _text(self, token_id: int) -> TokenText:
        piece = self.pieces[token_id]
        if piece is None:
            return NO_TOKEN
        text = self.decode_pieces([piece])
        if piece.startswith(WORD_START) and self.decode_pieces(["a", piece]) == f"a {text}":
            text = f" {text}"
        broken = text.endswith(REPLACEMENT)
        return TokenText(text, tuple(text.encode("utf-8", "replace")), broken, broken and self._completes(piece))

    def _completes(self, piece: str) -> bool:
        return not all(self.decode_pieces([start, piece]).endswith(REPLACEMENT) for start in CHARACTER_STARTS)

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    def _special_ids(self) -> list[int]:
        """Tokens marked special in tokenizer.json, and those that the configuration names."""
        added: dict[int, AddedToken] = self._backend.get_added_tokens_decoder()
        marked = [i for i, token in added.items() if token.special]
        named = [self._id_of(name) for name in NAMED_TOKENS]
        return marked + [i for i in named if i is not None]


def not_unicode() -> BadRequest:
    return BadRequest("The text is not valid Unicode: it holds half of a surrogate pair.")


def named_tokens(config: dict[str, Any]) -> dict[str, str]:
    """{"eos_token": "</s>", ...}: what chat templates may write. An entry is a string or an object with its content."""
    contents = {name: config.get(name) for name in NAMED_TOKENS}
    named = {name: token.get("content") if isinstance(token, dict) else token for name, token in contents.items()}
    return {name: token for name, token in named.items() if isinstance(token, str)}


def chat_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """By name; "default" is the one that is used. A file beside the configuration wins over the configuration's own entry."""
    entry = config.get("chat_template")
    named = {item["name"]: item["template"] for item in entry} if isinstance(entry, list) else {"default": entry} if entry else {}
    file = folder / "chat_template.jinja"
    return named | {"default": file.read_text()} if file.is_file() else named

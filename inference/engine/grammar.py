"""Structured outputs on xgrammar: a constraint becomes a grammar over the model's tokens, and a choice walks along it.

Only the engine's process imports this: the library brings torch with it.
"""

from __future__ import annotations

import time
from functools import cached_property

import xgrammar
from torch import Tensor

from inference.engine.mask import empty_mask
from inference.engine.vocabulary import TokenBytes
from inference.protocol.engine import Constraint

LARGEST_BYTES = 32 << 20  # of one compiled grammar
LONGEST_SPACE = 32  # characters between two parts of a JSON text: small models otherwise write spaces to the end; costs 4 MiB a schema
LONGEST_STEP_S = 0.05  # of the processor, for one token; an honest schema takes a thousandth of it
ANY_OBJECT = '{"type": "object", "additionalProperties": true}'


class Uncompilable(ValueError):
    """The constraint is none; the text says why."""


class TooSlow(RuntimeError):
    """The grammar is so ambiguous that reading one more token holds up everybody."""


class Compiler:
    def __init__(self, vocabulary: TokenBytes, eos_token_ids: list[int]) -> None:
        self.vocabulary = vocabulary
        self.eos_token_ids = eos_token_ids

    def compile(self, constraint: Constraint) -> xgrammar.CompiledGrammar:
        """Raises Uncompilable."""
        try:
            grammar = self._compile(constraint)
        except (RuntimeError, ValueError) as exc:
            raise Uncompilable(reason(exc)) from None
        if grammar.memory_size_bytes > LARGEST_BYTES:
            raise Uncompilable(f"it takes {grammar.memory_size_bytes >> 20} MiB when compiled, of {LARGEST_BYTES >> 20} that it may.")
        return grammar

    def try_out(self, constraint: Constraint) -> str | None:
        """What is wrong with the constraint, if anything. Takes the time and the memory that it takes."""
        try:
            guide = Guide(self.compile(constraint), constraint, self.stop_ids(()))
            mask = empty_mask(1, len(self.vocabulary.tokens))
            guide.matcher.fill_next_token_bitmask(mask, 0)
        except (Uncompilable, RuntimeError) as exc:
            return str(exc)
        return None if bool(mask.any()) else "no text fits it."

    def stop_ids(self, ids: tuple[int, ...]) -> list[int]:
        """What may end a text: special tokens alone, because a grammar allows its ends nowhere but at its end."""
        return [i for i in dict.fromkeys((*self.eos_token_ids, *ids)) if i in self.vocabulary.special or i in self.eos_token_ids]

    def _compile(self, constraint: Constraint) -> xgrammar.CompiledGrammar:
        compiler, text = self._texts, constraint.text
        match constraint.kind:
            case "json_schema" | "json_object":
                schema, spaced = text if constraint.kind == "json_schema" else ANY_OBJECT, constraint.any_whitespace
                return compiler.compile_json_schema(schema, any_whitespace=spaced, max_whitespace_cnt=LONGEST_SPACE if spaced else None)
            case "regex":
                return compiler.compile_regex(text)
            case "grammar":
                return compiler.compile_grammar(text)
            case "structural_tag":
                return self._markup.compile_structural_tag(text)

    @cached_property
    def _texts(self) -> xgrammar.GrammarCompiler:
        return self._compiler(self.vocabulary.without_special)

    @cached_property
    def _markup(self) -> xgrammar.GrammarCompiler:
        """A tool call's markers may be special tokens."""
        return self._compiler(self.vocabulary.tokens)

    def _compiler(self, tokens: list[bytes]) -> xgrammar.GrammarCompiler:
        info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=self.eos_token_ids)
        return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


class Guide:
    """One choice's way through its grammar. It binds from its first token on, or once a token of `after_token_ids` has come."""

    def __init__(self, grammar: xgrammar.CompiledGrammar, constraint: Constraint, stop_ids: list[int]) -> None:
        self.matcher = xgrammar.GrammarMatcher(grammar, override_stop_tokens=stop_ids)
        self.after = constraint.after_token_ids
        self.begun = not self.after

    @property
    def binds(self) -> bool:
        return self.begun and not self.matcher.is_terminated()

    def allow(self, mask: Tensor, row: int) -> None:
        """Write into the packed mask which tokens may come next.

        Raises:
            TooSlow: and the request should end.
        """
        started = time.thread_time()
        self.matcher.fill_next_token_bitmask(mask, row)
        self._check(started)

    def accept(self, token: int) -> None:
        """Raises TooSlow, and ValueError for a token that was not allowed."""
        if not self.begun:
            self.begun = token in self.after
        elif self.binds:
            started = time.thread_time()
            if not self.matcher.accept_token(token):
                raise ValueError(f"token {token} is not allowed by the grammar.")
            self._check(started)

    @staticmethod
    def _check(started: float) -> None:
        if time.thread_time() - started > LONGEST_STEP_S:
            raise TooSlow("the grammar of structured_outputs is too ambiguous.")


def reason(exc: Exception) -> str:
    """The library's own words, less where in its source they stand."""
    text = str(exc).strip().partition("\n")[0]
    for lead in ("is false: ", ".cc:"):
        text = text.rpartition(lead)[2]
    return text.partition(": ")[2] if text[:1].isdigit() else text

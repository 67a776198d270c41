"""What changes logits before a token is picked, in this order: allowed ids, banned ids, bias, penalties.

Edits are few against the vocabulary, so each kind is gathered from all rows into flat lists of (row, id, value) and applied at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inference.engine.request import Sequence
from inference.protocol.engine import Sampling

BANNED = float("-inf")


@dataclass
class Entries:
    """A sparse matrix over [rows, vocabulary]."""

    rows: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, row: int, ids: Iterable[int], values: Iterable[float] = ()) -> None:
        before = len(self.ids)
        self.ids.extend(ids)
        self.values.extend(values)
        self.rows.extend([row] * (len(self.ids) - before))

    def index(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.rows, device=device), torch.tensor(self.ids, device=device)

    def column(self, device: torch.device) -> Tensor:
        return torch.tensor(self.values, device=device, dtype=torch.float32)


def edited(logits: Tensor, choices: list[Sequence]) -> Tensor:
    """The logits to pick from: a changed copy, or the same tensor when no row asks for a change."""
    edits = [row for row, choice in enumerate(choices) if asks_for_edits(choice)]
    if not edits:
        return logits
    logits = logits.clone()
    for row in edits:
        keep_allowed(logits[row], choices[row].sampling)
    ban(logits, choices, edits)
    add_bias(logits, choices, edits)
    penalize(logits, choices, edits)
    return logits


def asks_for_edits(choice: Sequence) -> bool:
    s = choice.sampling
    return (
        s.allowed_token_ids is not None
        or bool(s.bad_words_token_ids)
        or choice.generated < s.min_tokens
        or bool(s.logit_bias)
        or has_penalties(s)
    )


def has_penalties(sampling: Sampling) -> bool:
    return sampling.repetition_penalty != 1 or sampling.presence_penalty != 0 or sampling.frequency_penalty != 0


def keep_allowed(row: Tensor, sampling: Sampling) -> None:
    if sampling.allowed_token_ids is None:
        return
    allowed = torch.tensor(sampling.allowed_token_ids, device=row.device, dtype=torch.int64)
    kept = row[allowed]
    row.fill_(BANNED)
    row[allowed] = kept


def ban(logits: Tensor, choices: list[Sequence], edits: list[int]) -> None:
    entries = Entries()
    for row in edits:
        entries.add(row, bad_word_ends(choices[row]))
        entries.add(row, ends_too_early(choices[row]))
    if entries.ids:
        logits[entries.index(logits.device)] = BANNED


def bad_word_ends(choice: Sequence) -> Iterable[int]:
    """The last id of each bad sequence whose other ids end what was generated so far."""
    for word in choice.sampling.bad_words_token_ids:
        before = len(word) - 1
        if before <= choice.generated and tuple(choice.ids[len(choice.ids) - before :]) == tuple(word[:-1]):
            yield word[-1]


def ends_too_early(choice: Sequence) -> Iterable[int]:
    """EOS, unless ignored, and stop tokens while fewer than `min_tokens` are generated."""
    sampling = choice.sampling
    if choice.generated >= sampling.min_tokens:
        return ()
    return sampling.stop_token_ids if sampling.ignore_eos else (*sampling.eos_token_ids, *sampling.stop_token_ids)


def add_bias(logits: Tensor, choices: list[Sequence], edits: list[int]) -> None:
    entries = Entries()
    for row in edits:
        bias = choices[row].sampling.logit_bias or {}
        entries.add(row, bias.keys(), bias.values())
    if entries.ids:
        logits[entries.index(logits.device)] += entries.column(logits.device)


def penalize(logits: Tensor, choices: list[Sequence], edits: list[int]) -> None:
    """Repetition over prompt and generated ids divides positive logits and multiplies negative ones; frequency and presence subtract."""
    repeated, counted = Entries(), Entries()
    for row in edits:
        choice, sampling = choices[row], choices[row].sampling
        if sampling.repetition_penalty != 1:
            repeated.add(row, seen := choice.request.prompt_ids | choice.counts.keys(), [sampling.repetition_penalty] * len(seen))
        if sampling.frequency_penalty != 0 or sampling.presence_penalty != 0:
            counts = choice.counts.values()
            losses = [sampling.frequency_penalty * count + sampling.presence_penalty for count in counts]
            counted.add(row, choice.counts.keys(), losses)
    if repeated.ids:
        where = repeated.index(logits.device)
        values, factor = logits[where], repeated.column(logits.device)
        logits[where] = torch.where(values > 0, values / factor, values * factor)
    if counted.ids:
        logits[counted.index(logits.device)] -= counted.column(logits.device)

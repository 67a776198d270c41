"""Raw logprobs: the log-softmax of the model's own logits, before masks, penalties and temperature.

A row begins with the sampled (or prompt) token; the best k follow by rank, without it. Rank 1 is the vocabulary's best.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inference.engine.largest import count_above, largest, log_sums
from inference.protocol.engine import Row, Sampling

CHUNK = 64  # prompt positions at a time: a row of a large vocabulary is half a megabyte


def logprob_rows(logits: Tensor, tokens: Tensor, samplings: list[Sampling]) -> list[Row | None]:
    """One row per sampled token whose request asked for logprobs, None for the others.

    Args:
        logits: [rows, vocabulary] float32.
        tokens: [rows] sampled ids.
    """
    asking = [row for row, sampling in enumerate(samplings) if sampling.logprobs is not None or sampling.logprob_token_ids is not None]
    rows: list[Row | None] = [None] * len(samplings)
    if not asking:
        return rows
    if len(asking) < len(samplings):
        logits, tokens = logits[asking], tokens[asking]
    wanted = [samplings[row] for row in asking]
    norms = log_sums(logits)
    counts = [0 if s.logprob_token_ids is not None or s.logprobs is None else s.logprobs for s in wanted]
    found = best_rows(logits, norms, tokens, counts)
    for number, (row, sampling) in enumerate(zip(asking, wanted, strict=True)):
        chosen = found[number]
        if sampling.logprob_token_ids is not None:
            chosen = chosen[:1] + listed(logits[number], norms[number], sampling.logprob_token_ids, skip=chosen[0][0])
        rows[row] = chosen
    return rows


def best_rows(logits: Tensor, norms: Tensor, tokens: Tensor, counts: list[int]) -> list[Row]:
    """Each row's own token, then its best `counts[row]`; -1 is all."""
    vocabulary = logits.shape[-1]
    counts = [vocabulary if count < 0 else min(count, vocabulary) for count in counts]
    own = logits.gather(-1, tokens[:, None])
    ranks = (count_above(logits, own) + 1).tolist()
    firsts = list(zip(tokens.tolist(), (own - norms)[:, 0].tolist(), ranks, strict=True))
    most = max(counts)
    if most == 0:
        return [[first] for first in firsts]
    values, ids = largest(logits, most)
    best = zip(ids.tolist(), (values - norms).tolist(), counts, strict=True)
    return [[first, *ranked(first[0], *row)] for first, row in zip(firsts, best, strict=True)]


def ranked(own: int, ids: list[int], logprobs: list[float], count: int) -> Row:
    """The best `count` by rank, without the token that leads the row."""
    return [
        (tid, logprob, rank)
        for rank, (tid, logprob) in enumerate(zip(ids[:count], logprobs[:count], strict=True), start=1)
        if tid != own
    ]


def listed(logits: Tensor, norm: Tensor, ids: tuple[int, ...], skip: int) -> Row:
    """The asked-for ids in their order, each with its rank in the vocabulary."""
    wanted = [tid for tid in ids if tid != skip]
    values = logits[torch.tensor(wanted, dtype=torch.int64, device=logits.device)]
    ranks = [int((logits > value).sum()) + 1 for value in values]
    return list(zip(wanted, (values - norm).tolist(), ranks, strict=True))


def prompt_logprob_rows(logits: Tensor, following: list[int], count: int) -> list[Row]:
    """Rows of prompt tokens: `following[i]` is the id that follows the position of logits[i]."""
    rows: list[Row] = []
    for start in range(0, len(following), CHUNK):
        part = logits[start : start + CHUNK]
        tokens = torch.tensor(following[start : start + CHUNK], device=logits.device)
        rows += best_rows(part, log_sums(part), tokens, [count] * len(part))
    return rows

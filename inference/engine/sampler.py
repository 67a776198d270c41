"""The next token of every row of a step, and its logprobs. Exact, and for a given seed the same whoever else is in the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.engine.draw import Knobs, draw
from inference.engine.edits import edited
from inference.engine.largest import highest
from inference.engine.logprobs import logprob_rows
from inference.engine.mask import constrained
from inference.engine.request import Sampled, Sequence
from inference.protocol.engine import Sampling


class NoTokenLeft(ValueError):
    """Masks leave a row nothing to choose from, or the model's numbers are not finite."""


def sample(logits: Tensor, choices: list[Sequence]) -> list[Sampled]:
    """The next token of each choice. A choice that cannot be sampled gets an error, and the others their tokens.

    Args:
        logits: [choices, vocabulary] float32; not changed.
    """
    uniforms = [0.0 if choice.sampling.temperature == 0 else choice.rng.random() for choice in choices]
    try:
        results = sample_together(logits, choices, uniforms)
    except Exception:  # one request's masks, ids or numbers; which one shows when each is tried alone
        results = [sample_alone(logits[row : row + 1], choice, uniforms[row]) for row, choice in enumerate(choices)]
    return [followed(choice, result) for choice, result in zip(choices, results, strict=True)]


def sample_alone(logits: Tensor, choice: Sequence, uniform: float) -> Sampled:
    try:
        return sample_together(logits, [choice], [uniform])[0]
    except Exception as exc:
        return Sampled([], error=f"Sampling failed: {exc}")


def followed(choice: Sequence, result: Sampled) -> Sampled:
    """The result, with the choice's grammar moved on by it."""
    try:
        for token in result.token_ids if choice.guide is not None else ():
            choice.guide.accept(token)
    except Exception as exc:
        return Sampled([], error=f"Sampling failed: {exc}")
    return result


def sample_together(logits: Tensor, choices: list[Sequence], uniforms: list[float]) -> list[Sampled]:
    samplings = [choice.sampling for choice in choices]
    logits = constrained(logits, choices)  # what a grammar forbids has no probability: logprobs say so, as vLLM's do
    tokens = pick(edited(logits, choices), samplings, uniforms)
    rows = logprob_rows(logits, tokens, samplings)
    return [Sampled([token], None if row is None else [row]) for token, row in zip(tokens.tolist(), rows, strict=True)]


def pick(logits: Tensor, samplings: list[Sampling], uniforms: list[float]) -> Tensor:
    """[rows] token ids: the best of greedy rows, a draw of the others."""
    best, tokens = highest(logits)
    if not bool(torch.isfinite(best).all()):
        raise NoTokenLeft("no token with a finite logit is left to choose from.")
    drawing = [row for row, sampling in enumerate(samplings) if sampling.temperature > 0]
    if not drawing:
        return tokens
    knobs = Knobs.of([samplings[row] for row in drawing], [uniforms[row] for row in drawing], logits.device)
    if len(drawing) == len(samplings):
        return draw(logits, best, knobs)
    tokens[drawing] = draw(logits[drawing], best[drawing], knobs)
    return tokens

"""Texts, and what the pipeline's endpoints are sent: chats to render, generated tokens to derender."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

STORY = """
the night train stood for an hour between two towns because snow had covered the signals and nobody on board knew which way the line
would open first so people began to talk about where they were going and why a woman who repaired clocks told a boy that every clock is
wrong by a little and that the work is to make it wrong by less he asked whether any had ever been right and she said one had once in a
small harbour at noon on a day without wind and that she still wrote to its owner each winter to hear how far it had drifted since then
"""
WORDS = sorted(set(STORY.split()))


class Material:
    """Texts, their tokens, and requests made of them. Nothing is asked twice, so that nobody's cache helps."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self.name = model.name

    def text(self, random: Random, words: int) -> str:
        return " ".join(random.choices(WORDS, k=words)).capitalize() + "."

    def text_ids(self, random: Random, count: int) -> list[int]:
        return list(self.tokenizer.encode(self.text(random, count), add_special_tokens=False).ids[:count])

    def chat(self, random: Random, messages: int) -> dict[str, Any]:
        roles = ("user", "assistant")
        said = [{"role": roles[i % 2], "content": self.text(random, 40)} for i in range(messages)]
        return {"model": self.name, "messages": said, "max_tokens": 64}

    def generated(self, random: Random, tokens: int, candidates: int | None) -> dict[str, Any]:
        """A node's answer to a chat, as the derender endpoint takes it."""
        ids = self.text_ids(random, tokens)
        logprobs = None if candidates is None else {"content": [self.entry(random, tid, candidates) for tid in ids]}
        choice = {"index": 0, "token_ids": ids, "finish_reason": "length", "logprobs": logprobs}
        return {"request_id": f"generate-tokens-{random.getrandbits(64):016x}", "output_mode": "tokens", "choices": [choice]}

    def entry(self, random: Random, tid: int, candidates: int) -> dict[str, Any]:
        others = random.sample(range(100, 40_000), candidates - 1)
        listed = [{"token_id": other, "logprob": -0.5 - rank, "rank": rank + 1} for rank, other in enumerate([tid, *others])]
        return {**listed[0], "top_logprobs": listed}

    def derender(self, random: Random, tokens: int, candidates: int | None) -> dict[str, Any]:
        asked = {} if candidates is None else {"logprobs": True, "top_logprobs": candidates}
        chat = {"messages": [{"role": "user", "content": self.text(random, 20)}], **asked}
        answer = self.generated(random, tokens, candidates)
        return {"model": self.name, "generate_response": answer, "prompt_tokens": 30, "chat_request": chat}

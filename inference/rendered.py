"""What rendering leaves for the answer: the generate request, and the text it came from."""

from __future__ import annotations

from dataclasses import dataclass

from inference.protocol.generate import GenerateRequest


@dataclass(frozen=True)
class Rendered:
    """One prompt. `generate` is exactly what /render answers; `sampling.for_node` turns it into what a node is sent."""

    generate: GenerateRequest
    prompt_text: str | None  # None where the prompt came as token ids
    echo_text: str | None = None  # what stands before the generated text, where the request asks for an echo

    @property
    def token_ids(self) -> list[int]:
        return self.generate.token_ids

"""Which prompt prefixes have their keys and values kept, and where. Pure Python: pages are numbers here.

A block is a fixed number of tokens that follow one certain block, or begin a prompt under one certain salt. It is found by its parent and
its own tokens, so the dictionary's hash finds it and its comparison of the tokens makes sure: two prompts share a block only if they agree
in every token and in the salt. A parent is used whenever its child is, and later in the order of use, so the least recently used block has
no children that are used more than it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inference.engine.request import Sequence

Key = tuple[object, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Block:
    key: Key
    page: int


class PrefixIndex:
    """Blocks by prefix, least recently used first. The pages' owner gives the page numbers and takes them back."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._blocks: OrderedDict[Key, Block] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def usable(self, seq: Sequence) -> list[Block]:
        """The blocks of the longest kept prefix. At least one id is left to compute, because its logits are needed.

        A request for prompt logprobs needs every position computed, so it takes nothing from the cache.
        """
        if seq.request.prompt_rows is not None:
            return []
        return self._walk(self._whole(seq.ids, len(seq.ids) - 1), seq.request.wire.cache_salt)

    def computed_by_another(self, seq: Sequence, computing: Iterable[Sequence]) -> bool:
        """Whether one of `computing` is at work on the block that this one would have to compute first."""
        length = (len(self.usable(seq)) + 1) * self.block
        if length >= len(seq.ids) or seq.request.prompt_rows is not None:
            return False
        wanted, salt = seq.ids[:length], seq.request.wire.cache_salt
        return any(
            other.computed < length <= len(other.ids) and other.request.wire.cache_salt == salt and other.ids[:length] == wanted
            for other in computing
        )

    def touch(self, blocks: list[Block]) -> None:
        """Mark as just used, from the leaf to the root."""
        for block in reversed(blocks):
            self._blocks.move_to_end(block.key)

    def missing(self, seq: Sequence) -> tuple[list[Block], list[tuple[int, ...]]]:
        """The kept blocks of what is computed, and the tokens of the blocks that follow and are not kept."""
        blocks = list(self._whole(seq.ids, seq.computed))
        found = self._walk(iter(blocks), seq.request.wire.cache_salt)
        return found, blocks[len(found) :]

    def add(self, parent: Block | None, tokens: tuple[int, ...], page: int, salt: str | None) -> Block:
        """Keep one more block behind `parent`, or as the first of a prompt."""
        key: Key = (("salt", salt) if parent is None else parent, tokens)
        block = Block(key, page)
        self._blocks[key] = block
        return block

    def oldest(self) -> Iterator[Block]:
        """From the least recently used on."""
        return iter(self._blocks.values())

    def drop(self, block: Block) -> None:
        del self._blocks[block.key]

    def _walk(self, blocks: Iterator[tuple[int, ...]], salt: str | None) -> list[Block]:
        found: list[Block] = []
        parent: object = ("salt", salt)
        for tokens in blocks:
            block = self._blocks.get((parent, tokens))
            if block is None:
                break
            found.append(block)
            parent = block
        return found

    def _whole(self, ids: list[int], limit: int) -> Iterator[tuple[int, ...]]:
        """The tokens of each whole block among the first `limit` ids."""
        for start in range(0, limit - self.block + 1, self.block):
            yield tuple(ids[start : start + self.block])

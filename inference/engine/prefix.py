"""Which prompt prefixes have their keys and values kept, and where. Pure Python: pages are numbers here.

A block is `BLOCK` tokens that follow one certain block, or begin a prompt under one certain salt. It is found by its parent and its own
tokens, so the dictionary's hash finds it and its comparison of the tokens makes sure: two prompts share a page only if they agree in every
token and in the salt. A parent was used whenever its child was, and later in the order of use, so the least recently used block never has
children and can be dropped alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 16

Key = tuple[object, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Block:
    key: Key
    page: int


class PrefixIndex:
    """Blocks by prefix, least recently used first. The pages' owner gives the page numbers and takes them back."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[Key, Block] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, ids: list[int], salt: str | None) -> list[Block]:
        """The blocks of the longest kept prefix. Always leaves at least one id to compute, because its logits are needed."""
        return self._walk(whole_blocks(ids, len(ids) - 1), salt)

    def touch(self, blocks: list[Block]) -> None:
        """Mark as just used, from the leaf to the root."""
        for block in reversed(blocks):
            self._blocks.move_to_end(block.key)

    def missing(self, ids: list[int], computed: int, salt: str | None) -> tuple[list[Block], list[tuple[int, ...]]]:
        """The kept blocks of the first `computed` ids, and the tokens of the blocks that follow and are not kept."""
        blocks = list(whole_blocks(ids, computed))
        found = self._walk(iter(blocks), salt)
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


def whole_blocks(ids: list[int], limit: int) -> Iterator[tuple[int, ...]]:
    """The tokens of each whole block among the first `limit` ids."""
    for start in range(0, limit - BLOCK + 1, BLOCK):
        yield tuple(ids[start : start + BLOCK])

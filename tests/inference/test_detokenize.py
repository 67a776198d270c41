"""The window: what waits, what is skipped, and that garbage costs no more than text."""

from __future__ import annotations

from inference.detokenize import Detokenizer
from inference.protocol.derender import StreamState
from tests.inference.samples import P1, b, model

T1, T2 = (model(name).tokenizer for name in ("R", "R2"))


def test_a_character_waits_for_its_last_byte() -> None:
    made = Detokenizer(T1, skip_special_tokens=True)
    assert [made.feed_one(i) for i in b("a😀é")] == ["a", "", "", "", "😀", "", "é"]
    assert (made.pieces, made.prefix, made.read) == (["Ã", "©"], 0, 2)


def test_the_seed_is_context_and_no_output() -> None:
    made = Detokenizer(T1, skip_special_tokens=True)
    made.seed(P1)
    assert (len(made.pieces), made.prefix, made.read) == (7, 2, 7)
    assert made.feed([72]) == "H"
    assert (made.pieces, made.prefix, made.read) == (["H"], 0, 1)


def test_a_seed_of_special_tokens_alone_is_none() -> None:
    made = Detokenizer(T2, skip_special_tokens=True)
    made.seed([1, 2])
    assert made.feed([268]) == "Hello"
    made.seed([268, 268])
    assert made.feed([276]) == " there"


def test_a_state_right_after_seeding_is_handed_over_whole() -> None:
    made, state = Detokenizer(T2, skip_special_tokens=True), StreamState()
    made.seed([268] * 9)
    made.save(state, fed=False)
    assert (len(state.prev_tokens), state.prefix_offset, state.read_offset) == (7, 2, 7)
    made.feed([276])
    made.save(state, fed=True)
    assert (state.prev_tokens, state.prefix_offset, state.read_offset) == (["▁there"], 0, 1)


def test_ids_outside_the_vocabulary_are_empty_pieces() -> None:
    made = Detokenizer(T1, skip_special_tokens=True)
    assert made.feed([9999, -1, 258, 65]) == "A"
    assert made.pieces == ["", "", "A"]


class Counting:
    """T1 that counts the pieces it decodes."""

    special_ids, concatenates = T1.special_ids, False

    def __init__(self) -> None:
        self.pieces = 0

    def piece(self, token_id: int) -> str | None:
        return T1.piece(token_id)

    def decode_pieces(self, pieces: list[str]) -> str:
        self.pieces += len(pieces)
        return T1.decode_pieces(pieces)


def test_garbage_costs_no_more_than_text() -> None:
    for ids in ([128] * 2000, [9999] * 2000):
        counting = Counting()
        made = Detokenizer(counting, skip_special_tokens=True)  # type: ignore[arg-type]
        assert made.feed(ids) == ""
        assert made.feed([65]) == ("\ufffd" * ids.count(128)) + "A"
        assert counting.pieces < 20 * len(ids)

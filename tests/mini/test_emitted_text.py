"""Where an answer ends: stop strings, the end token, the budget, whatever a step emits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import EOS, PIECES, VOCABULARY, tiny_tokenizer

from evalsuite.mini.sequence import GenerationRequest, Sequence
from evalsuite.mini.text import TokenBytes, advance_text, byte_alphabet

BYTES = TokenBytes(tiny_tokenizer(), VOCABULARY)
IDS = {BYTES[i].decode(): i for i in range(1, VOCABULARY) if BYTES[i]}


def answer(
    tokens: list[int], parts: list[int], budget: int, stops: tuple[bytes, ...] = ()
) -> Sequence:
    """Feed tokens in steps of `parts` tokens (repeated), as a session would."""
    sequence = Sequence(GenerationRequest("r", (5,), budget, stops), 0, [5])
    at, step = 0, 0
    while at < len(tokens) and sequence.finish_reason is None:
        size = parts[step % len(parts)]
        chunk = tokens[at : at + size]
        advance_text(sequence, chunk, [float(t) for t in chunk], BYTES, EOS)
        at, step = at + size, step + 1
    return sequence


def ids(*pieces: str) -> list[int]:
    """Ids of pieces by their text."""
    return [IDS[piece] for piece in pieces]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    tokens=st.lists(st.sampled_from([EOS, *ids("a", "b", "c", "ab", "bc", "abc", "\n\n", ":")])),
    parts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    budget=st.integers(1, 12),
    stops=st.lists(st.sampled_from([b"bc", b"abca", b"\n\n", b"a:", b"cab", b"c"]), max_size=3),
)
def test_the_end_does_not_depend_on_how_many_tokens_a_step_emits(
    tokens: list[int], parts: list[int], budget: int, stops: list[bytes]
) -> None:
    one, many = (answer(tokens, p, budget, tuple(stops)) for p in ([1], parts))
    assert one.output == many.output
    assert one.tokens == many.tokens
    assert one.margins == many.margins == [float(t) for t in one.tokens[1:]]
    assert one.finish_reason == many.finish_reason
    assert one.emitted <= budget


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    tokens=st.lists(st.sampled_from(ids("a", "b", "c", "ab", "bc", "abc", "\n\n")), max_size=12),
    stops=st.lists(st.sampled_from([b"bc", b"abca", b"\n\n", b"cab"]), min_size=1, max_size=3),
)
def test_text_ends_before_the_first_stop_string(tokens: list[int], stops: list[bytes]) -> None:
    whole = b""
    for token in tokens:
        whole += BYTES[token]
        if any(stop in whole for stop in stops):
            break
    found = answer(tokens, [3], 99, tuple(stops))
    cuts = [whole.find(stop) for stop in stops if stop in whole]
    assert bytes(found.output) == (whole[: min(cuts)] if cuts else whole)
    assert found.finish_reason == ("stop" if cuts else None)


def test_a_stop_string_that_spans_tokens_and_the_tokens_of_an_accepted_run() -> None:
    found = answer(ids("a", ":", "b", "c", "a", "a"), [6], 99, (b"bca",))
    assert bytes(found.output) == b"a:"
    assert found.tokens[1:] == ids("a", ":", "b", "c", "a")
    assert found.finish_reason == "stop"


def test_the_end_token_inside_an_accepted_run_is_kept_as_an_id_and_has_no_text() -> None:
    found = answer([*ids("a"), EOS, *ids("b")], [3], 99)
    assert (bytes(found.output), found.finish_reason) == (b"a", "stop")
    assert found.tokens[1:] == [*ids("a"), EOS]


def test_the_budget_inside_an_accepted_run() -> None:
    found = answer(ids("a", "b", "c", "a"), [4], 2)
    assert (bytes(found.output), found.finish_reason) == (b"ab", "length")
    assert found.emitted == len(found.margins) == 2


def test_a_stop_string_at_the_budgets_end_is_a_stop() -> None:
    assert answer(ids("a", "bc"), [2], 2, (b"bc",)).finish_reason == "stop"


@pytest.mark.parametrize("piece", PIECES)
def test_pieces_decode_to_their_bytes(piece: str) -> None:
    expected = bytes(byte_alphabet()[c] for c in piece)
    assert BYTES[tiny_tokenizer().get_vocab()[piece]] == expected


def test_every_byte_has_its_own_character() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_special_and_unknown_ids_have_no_bytes() -> None:
    assert BYTES[EOS] == b""

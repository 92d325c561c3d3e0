"""Server-sent events, whatever the blocks in which they come."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evalsuite.client.events import Events

STREAM = (
    b': a comment\r\n\r\nevent: token\ndata: {"n": 1}\n\ndata:{"n":\ndata: 2}\n\n'
    b'data: {"n": 3}\r\n\r\n\n\ndata: [DONE]\n\ndata: {"n": 4}\n\n'
)
DATA = [b'{"n": 1}', b'{"n":\n2}', b'{"n": 3}']


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_blocks_make_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    events = Events()
    found = []
    for start, end in pairwise(edges):
        if not events.ended:
            found += events.feed(STREAM[start:end])
    assert found == DATA and events.ended


def test_a_last_event_without_its_blank_line_counts() -> None:
    events = Events()
    assert events.feed(b'data: {"n": 1}\n\ndata: {"n": 2}') == [b'{"n": 1}']
    assert events.rest() == [b'{"n": 2}']
    assert events.rest() == [] and not events.ended


def test_an_end_without_its_blank_line_is_an_end() -> None:
    events = Events()
    assert events.feed(b'data: {"n": 1}\n\ndata: [DONE]') == [b'{"n": 1}']
    assert events.rest() == [] and events.ended

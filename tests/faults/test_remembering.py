"""A run grows without asking again what was answered."""

from __future__ import annotations

from fake_engine import FakeEngine

from evalsuite.arms import parse_arm
from evalsuite.engines.base import Answer, Request
from evalsuite.engines.mini import open_engine
from evalsuite.faults.remembering import RememberingEngine


def requests(count: int) -> list[Request]:
    return [Request(str(number), f"Question: {number}\nAnswer:", 8, ()) for number in range(count)]


def asked(engine: RememberingEngine, count: int) -> list[Answer]:
    answers: list[Answer] = []
    session = engine.start(parse_arm("eager"))
    session.warm_up()
    session.generate(requests(count), answers.append)
    return answers


def test_only_new_requests_reach_the_engine() -> None:
    inner = FakeEngine({})
    engine = RememberingEngine(inner, requests(8))
    first = asked(engine, 4)
    second = asked(engine, 8)
    assert sorted(inner.answers) == [str(number) for number in range(8)]
    assert {a.request_id for a in second} == {str(number) for number in range(8)}
    # An answer from memory is the answer itself, with the moments at which it was given.
    assert {a.request_id: a.started for a in first}.items() <= {
        a.request_id: a.started for a in second
    }.items()


def test_what_a_session_counts_goes_on() -> None:
    engine = RememberingEngine(FakeEngine({}), requests(8))
    asked(engine, 4)
    before = engine.start(parse_arm("eager")).evidence().eager_decode_steps
    asked(engine, 8)
    after = engine.start(parse_arm("eager")).evidence().eager_decode_steps
    assert before == 40 and after == 80


def test_sessions_outlive_a_run_and_end_with_the_engine() -> None:
    engine = RememberingEngine(FakeEngine({}), requests(2))
    session = engine.start(parse_arm("eager"))
    session.close()
    assert engine.start(parse_arm("eager")) is session
    engine.close()
    assert engine.start(parse_arm("eager")) is not session


def test_sessions_opened_later_hold_what_was_promised() -> None:
    """A fault that shortens requests leaves the engine sized for these."""
    inner = open_engine(model=None, dtype=None, device="cpu", concurrency=1, options={})
    engine = RememberingEngine(inner, [Request("long", "1+" * 200, 100, ())])
    RememberingEngine(inner, [Request("short", "1+", 4, ())])
    session = engine.start(parse_arm("eager"))
    answers: list[Answer] = []
    session.generate([Request("long", "1+" * 200, 100, ())], answers.append)
    assert [answer.request_id for answer in answers] == ["long"]
    engine.close()
    inner.close()

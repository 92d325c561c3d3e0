"""The page of `power.py`: figures in, Markdown out."""

from __future__ import annotations

from typing import Any

OUR_COLUMNS = [
    "healthy run red",
    "drop in MTP1-5",
    "drop in one arm",
    "verdict states",
    "margin shown",
    "margin shown wrongly",
]
PAGE = """# Power and false alarms of the accuracy gate

Written by `benchmarks/power.py` (seed {seed}, {seconds} s of one core). `benchmarks/power_model.py`
states how runs are simulated and how each rule is read. All rules see the same runs.

*Healthy run red*: share of seven-arm runs without any fault that fail. *Drop*: points of accuracy
that a fault costs, in all five MTP arms or in one of them, where the run fails in 80 % of cases.

## Beside other rules

1,319 items, accuracy 91 %, flip rate 2.7 %, a baseline of 3 accepted runs, {healthy:,} healthy
runs. The fixed rules get the mean of the three runs as their reference, which is kinder than the
single figure they store; the NeMo rules compare with the first run, as they do.

{peers}

The fixed floors look better here than in unpaired tables, since the simulated items stay the same
from run to run; what they miss is the share of their width that no noise asks for.

## This gate, by flip rate

{sets:,} healthy runs a row. *Verdict states*: the smallest detectable drop of one arm that a
healthy run's verdict prints. *Margin shown*: healthy arms shown to have lost less than 1.5 points
(one-sided 95 %). *Margin shown wrongly*: arms with a true drop of 1.5 points for which that is
claimed all the same (nominally 5 %). *NeMo GO*: healthy arms for which NeMo Evaluator's gate
says GO.

{flips}

## This gate, with other assumptions (flip rate 2.7 %)

{variants}

## Early abort

An arm of a baseline at 91 % is stopped when {looks}. Exact probabilities:

{abort}
"""


def render(found: dict[str, Any]) -> str:
    """Return the Markdown page of the results."""
    peers = [
        [r["rule"], _percent(r["red"]), _points(r["drop_mtp"]), _points(r["drop_one"])]
        for r in found["peers"]
    ]
    stopped = found["abort"]["stopped"]
    rule = found["abort"]["rule"]
    looks = " or ".join(f"at most {r['stop_at']} of {r['items']} right" for r in rule)
    return PAGE.format(
        seed=found["seed"],
        seconds=found["seconds"],
        healthy=found["peers"][0]["healthy_sets"],
        sets=found["by_flips"][0]["healthy_sets"],
        peers=_table(["rule", "healthy run red", "drop in MTP1-5", "drop in one arm"], peers),
        flips=_table(["flip rate", *OUR_COLUMNS, "NeMo GO"], _our_rows(found["by_flips"], True)),
        variants=_table(["what differs", *OUR_COLUMNS], _our_rows(found["variants"], False)),
        looks=looks,
        abort=_table(
            ["true accuracy", *(f"{float(a):.0%}" for a in stopped)],
            [["stopped within 64 items", *(f"{p:.3g}" for p in stopped.values())]],
        ),
    )


def _our_rows(rows: list[dict[str, Any]], nemo: bool) -> list[list[str]]:
    return [
        [
            r["rule"],
            _percent(r["red"]),
            _points(r["drop_mtp"]),
            _points(r["drop_one"]),
            _points(r["stated_one"]),
            _percent(r["shown"]),
            _percent(r["margin_error"]),
            *([_percent(r["nemo_go"])] if nemo else []),
        ]
        for r in rows
    ]


def _points(value: float) -> str:
    return f"{100 * value:.2f}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %" if value < 0.1 else f"{100 * value:.1f} %"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])

"""The page of a proof, in the report's style."""

from __future__ import annotations

from typing import Any

from evalsuite.faults.confusion import confusion, placed
from evalsuite.faults.fault import FAMILIES
from evalsuite.faults.tables import reason, summary, word
from evalsuite.report.html import render_page

STATUS = {
    "caught": "pass",
    "caught otherwise": "warn",
    "not caught": "fail",
    "not tried": "missing",
}


def render(proof: dict[str, Any]) -> str:
    """Return one HTML file that needs nothing else."""
    rows = [
        {
            **row,
            "word": word(row),
            "status": "skipped" if row["blind"] and not row["caught"] else STATUS[word(row)],
            "reason": reason(row),
        }
        for row in proof["faults"]
    ]
    good = all(row["as_expected"] for row in proof["faults"])
    return render_page(
        "prove.html",
        proof=proof,
        rows=rows,
        families=FAMILIES,
        summary=summary(proof),
        placed=placed(proof),
        confusion=confusion(proof),
        word="pass" if good else "fail",
    )

"""Markdown: verdict first, flips folded, never too long for a comment."""

from __future__ import annotations

import re

from report_runs import HOSTILE, Judged

from evalsuite.report.markdown import render_broken_markdown, render_markdown
from evalsuite.report.source import load_source


def test_the_verdict_comes_first_and_the_flips_are_folded(broken: Judged) -> None:
    text = (broken.folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("## ❌ Fail: made\n")
    assert text.index("**degeneration**") < text.index("| Arm |") < text.index("<details>")
    assert text.count("<details>") == text.count("</details>") == 3
    assert re.search(r"\*\*mtp2\*\*, item `[0-9a-f]{16}`, lost; gold \d+", text)


def test_a_healthy_run_is_short_and_has_no_flips(healthy: Judged) -> None:
    text = (healthy.folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("## ✅ Pass: made\n")
    assert "Flips</summary>" not in text and len(text) < 12_000


def test_it_fits_a_comment_however_much_flips(broken: Judged, hostile: Judged) -> None:
    for run in (broken, hostile):
        source = load_source(run.folder, str(run.baseline))
        for limit in (60_000, 20_000, 10_000):
            text = render_markdown(source, limit)
            assert len(text.encode()) <= limit
            assert text.count("<details>") == text.count("</details>")
        assert "more are in report.html" in text


def test_hostile_text_stands_in_fences_only(hostile: Judged) -> None:
    text = (hostile.folder / "report.md").read_text(encoding="utf-8")
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.S | re.M)
    tags = set(re.findall(r"</?(\w+)", outside))
    assert tags == {"details", "summary", "br", "sub"}
    assert "@everyone" not in outside and "](javascript" not in outside
    assert not re.search("[\x00-\x08\u202a-\u202e]", text)
    assert any(hostile_text in text for hostile_text in HOSTILE[:3])


def test_a_run_that_cannot_be_read_says_so() -> None:
    text = render_broken_markdown("run", "items.jsonl: is missing")
    assert text.startswith("## ❓ Incomplete: run") and "items.jsonl: is missing" in text

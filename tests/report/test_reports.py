"""Reports of any run folder: whole, partial, damaged; and the command that writes them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from report_runs import Judged, loops, with_baseline
from run_factory import Factory, arms, change_json, change_records

from evalsuite.cli import main
from evalsuite.errors import DamagedRun, UsageError
from evalsuite.judge import judge_run, read_verdict
from evalsuite.launch import Launch
from evalsuite.pipeline import run_and_judge
from evalsuite.records import Run
from evalsuite.report import write_reports
from evalsuite.report.html import render_html
from evalsuite.report.items import pack
from evalsuite.report.provenance import reproduce
from evalsuite.report.source import load_source
from evalsuite.suite import Overrides

FILES = ["junit.xml", "report.html", "report.md"]


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["report", *arguments])
    return done.exit_code, done.output


def copy(run: Judged, folder: Path) -> Path:
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns(*FILES, "verdict.json"))
    return folder


def cells_of(page: str, arm: str) -> str:
    row = re.search(rf'<tr data-arm="{arm}">.*?</tr>', page, flags=re.S)
    assert row is not None
    return " ".join(re.sub(r"<[^>]+>", " ", row[0]).split())


def test_a_run_without_a_verdict_is_judged_first(broken: Judged, tmp_path: Path) -> None:
    folder = copy(broken, tmp_path / "run")
    write_reports(folder, baseline=str(broken.baseline))
    assert read_verdict(folder) == read_verdict(broken.folder)
    assert sorted(path.name for path in folder.iterdir() if path.name in FILES) == FILES


def test_the_same_run_gives_the_same_bytes(broken: Judged) -> None:
    source = load_source(broken.folder, str(broken.baseline))
    assert render_html(source) == broken.page


@pytest.mark.parametrize(
    ("asked", "written"),
    [(["--html"], ["report.html"]), (["--markdown", "--junit"], ["junit.xml", "report.md"])],
)
def test_the_command_writes_what_is_asked_for(
    healthy: Judged, tmp_path: Path, asked: list[str], written: list[str]
) -> None:
    folder = copy(healthy, tmp_path / "run")
    code, said = command(str(folder), *asked, "--baseline", str(healthy.baseline), "--json")
    assert code == 0
    assert sorted(Path(path).name for path in json.loads(said)["files"].values()) == written
    assert sorted(path.name for path in folder.iterdir() if path.name in FILES) == written


def test_an_arm_that_was_cut_short_says_so_and_never_shows_a_zero(tmp_path: Path) -> None:
    folder = Factory.of(40, arms=arms("eager", "graph", "mtp2")).make(tmp_path / "run")
    (folder / "mtp2" / "evidence.json").unlink()
    kept = (folder / "mtp2" / "records.jsonl").read_text().splitlines(keepends=True)[:9]
    (folder / "mtp2" / "records.jsonl").write_text("".join(kept) + '{"item_id": "torn')
    (folder / "graph" / "records.jsonl").unlink()
    (folder / "graph" / "evidence.json").unlink()
    assert judge_run(folder, baseline="none").exit_code == 1
    write_reports(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    cut = cells_of(page, "mtp2")
    assert "9 of 40 answers" in cut and "missing the arm was not run to its end" in cut
    never = cells_of(page, "graph")
    assert never.count("missing") >= 7 and "no answers" in never
    assert not re.search(r"(?<![\d.])0(?:\.0+)?%", never)
    assert "the last line is torn" in page


def test_values_that_the_engine_does_not_tell_are_missing_with_a_reason(tmp_path: Path) -> None:
    folder = Factory.of(40, arms=arms("eager", "mtp1")).make(tmp_path / "run")

    def silent(value: dict) -> dict:
        told = ("asked", "engine_version", "backend")
        return {key: inner if key in told else None for key, inner in value.items()}

    for arm in ("eager", "mtp1"):
        change_json(folder / arm / "evidence.json", silent)
        change_records(folder, arm, lambda row: {**row, "output_tokens": None, "token_ids": None})
    judge_run(folder, baseline="none")
    write_reports(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    cells = cells_of(page, "mtp1")
    for reason in (
        "the engine does not count tokens",
        "the evidence does not tell it",
        "the engine does not tell",
        "texts; no token ids",
    ):
        assert reason in cells
    assert "missing: no arm tells its accepted drafts" in page
    assert "missing: the engine does not count tokens" in page


def test_a_run_that_cannot_be_read_gets_reports_that_say_so(
    healthy: Judged, tmp_path: Path
) -> None:
    folder = copy(healthy, tmp_path / "run")
    (folder / "items.jsonl").write_text('{"item_id": 1}\n')
    code, said = command(str(folder))
    assert code == 3 and "items.jsonl:1" in said
    for name in FILES:
        text = (folder / name).read_text(encoding="utf-8")
        assert ("items.jsonl:1" in text and "ncomplete" in text) or name == "junit.xml"
    assert "default-src 'none'; script-src 'none'" in (folder / "report.html").read_text().replace(
        "&#39;", "'"
    )


def test_what_is_no_run_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    assert command(str(tmp_path / "nowhere"))[0] == 2
    with pytest.raises(UsageError):
        write_reports(tmp_path / "nowhere")
    with pytest.raises(DamagedRun, match=r"run\.json: is missing"):
        write_reports(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_that_changed_since_is_told(tmp_path: Path) -> None:
    factory = Factory.of(40)
    baseline = with_baseline(factory, tmp_path)
    folder = factory.make(tmp_path / "run", seed=3)
    judge_run(folder, baseline=str(baseline))
    write_reports(folder)
    reason = "judged against float32, which is not at hand now: name it with --baseline"
    assert f"missing: {reason}" in (folder / "report.html").read_text(encoding="utf-8")


def test_differences_of_environment_are_listed(tmp_path: Path) -> None:
    factory = Factory.of(40)
    baseline = with_baseline(factory, tmp_path)
    folder = factory.make(tmp_path / "run", seed=3)
    change_json(folder / "run.json", lambda run: {**run, "software": {"made": "2", "commit": "c0"}})
    judge_run(folder, baseline=str(baseline))
    write_reports(folder, baseline=str(baseline))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">software: made</th><td>2</td><td>1</td>' in page
    assert "c0 (missing: whether the tree had changes)" in page
    assert "<dt>accepted by</dt><dd>reviewer</dd>" in page


def test_repeats_are_series_of_their_own(tmp_path: Path) -> None:
    folder = Factory.of(20, arms=arms("eager", "mtp1"), repeats=2).make(tmp_path / "run")
    judge_run(folder, baseline="none")
    data = unpacked(pack(load_source(folder)).data)
    assert data["columns"] == [["eager", 0], ["eager", 1], ["mtp1", 0], ["mtp1", 1]]
    assert all(cell is not None for item in data["items"] for cell in item["c"])


def test_data_that_do_not_fit_are_cut_and_the_page_says_so(broken: Judged) -> None:
    source = load_source(broken.folder, str(broken.baseline))
    whole = pack(source)
    small = pack(source, budget=1)
    assert whole.left_out is None
    assert small.left_out is not None and "200 characters" in small.left_out
    assert len(small.data) < len(whole.data)
    cut = [variant for item in unpacked(small.data)["items"] for variant in item["v"]]
    assert all(len(variant[0]) <= 200 for variant in cut)


def test_tokens_of_the_embedded_model_are_told_apart(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    from evalsuite.paths import EMBEDDED_MODEL

    tokenizer = Tokenizer.from_file(str(EMBEDDED_MODEL / "tokenizer.json"))
    folder = Factory.of(20, arms=arms("eager", "graph")).make(tmp_path / "run")
    change_json(folder / "run.json", lambda run: {**run, "model": EMBEDDED_MODEL.name})

    def spelled(row: dict) -> dict:
        row["text"] += " é水😀"
        row["token_ids"] = tokenizer.encode(row["text"]).ids
        return {**row, "margins": [1.0] * len(row["token_ids"])}

    for arm in ("eager", "graph"):
        change_records(folder, arm, spelled)
    judge_run(folder, baseline="none")
    for item in unpacked(pack(load_source(folder)).data)["items"]:
        text, lengths, left_out, *_ = item["v"][0]
        assert left_out == 0
        assert sum(lengths) == len(text.encode("utf-16-le")) // 2


def test_the_command_to_make_a_run_again_names_what_was_chosen(healthy: Judged) -> None:
    run = msgspec.json.decode((healthy.folder / "run.json").read_bytes(), type=Run)
    line, note = reproduce(run)
    assert line == "evalsuite run made --engine made --task made --limit 60"
    assert "no ready suite" in note
    embedded = msgspec.structs.replace(run, suite="glm53-mini", model="glm53_mini")
    assert "--model" not in reproduce(embedded)[0]
    assert "no ready suite" not in reproduce(embedded)[1]


def test_a_run_writes_its_reports_and_says_what_is_missing_first(tmp_path: Path) -> None:
    suite = tmp_path / "fake.yaml"
    suite.write_text(
        "name: fake\nengine: {kind: 'fake_engine:open_engine'}\ntask: gsm_mini\nlimit: 8\n"
        "arms: [eager, graph]\n"
    )
    asked = Launch(str(suite), Overrides(), None, tmp_path / "run", "new")
    assert run_and_judge(asked, baseline="auto", judged=True).exit_code == 3
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.name in FILES) == FILES
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert text.startswith(
        "## ❓ Incomplete: fake\n\nUndecided: the check baseline could not be carried out"
    )
    assert "evalsuite baseline accept RUN" in text


def test_a_report_only_run_says_that_it_does_not_gate(tmp_path: Path) -> None:
    factory = Factory.of(40, report_only=True)
    folder = factory.make(tmp_path / "run")
    change_records(folder, "mtp1", loops)
    assert judge_run(folder, baseline="none").exit_code == 0
    write_reports(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert '<span class="word" id="verdict">fail</span>' in page
    assert "This suite is report-only and does not gate." in page


def test_more_arms_than_colours_are_all_drawn(tmp_path: Path) -> None:
    names = ("eager", "graph", "mtp1", "mtp2", "mtp3", "mtp4", "mtp5", "eager-mtp1", "graph-mtp1")
    folder = Factory.of(20, arms=arms(*names)).make(tmp_path / "run")
    judge_run(folder, baseline="none")
    figure = r'<figure class="figure" id="([\w-]+)">(.*?)</figure>'
    figures = dict(re.findall(figure, page_of(folder), flags=re.S))
    for name in ("mtp5", "eager-mtp1", "graph-mtp1"):
        assert f">{name}</text>" in figures["fig-acceptance"]
        assert f">{name}</text>" in figures["fig-accuracy"]


def page_of(folder: Path) -> str:
    write_reports(folder)
    return (folder / "report.html").read_text(encoding="utf-8")


def unpacked(data: str) -> dict:
    return json.loads(gzip.decompress(base64.b64decode(data)))

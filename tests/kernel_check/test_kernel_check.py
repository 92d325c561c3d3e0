"""kernel-check passes right kernels, fails wrong ones by what is wrong, refuses what is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from evalsuite.cli import main
from evalsuite.errors import UsageError
from evalsuite.kernel_check import check, check_kernel
from evalsuite.kernel_check.loading import load_kernel, parse_geometry
from evalsuite.kernel_check.outcome import Case
from sparse_mla.table import entries

CPU = torch.device("cpu")
SMALL = "heads=2,topk=24"


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a CPU without Triton's interpreter; the table is as before afterwards."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(check, "default_device", lambda: CPU)
    before = entries()
    yield
    assert entries() == before


@pytest.fixture
def without_miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and route alone."""
    monkeypatch.setattr(check, "mini_cases", lambda kernel, device: iter(()))


def failed(cases: tuple[Case, ...]) -> dict[str, str]:
    """What is wrong, by stage and case."""
    return {f"{c.stage}: {c.name}": c.detail for c in cases if c.status == "fail"}


def test_a_right_kernel_passes_numbers_miniature_and_route() -> None:
    done = CliRunner().invoke(main, ["kernel-check", "user_kernels:attention", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["verdict"] == "pass"
    cases = {(c["stage"], c["name"]): c for c in told["cases"]}
    assert cases["numbers", "lengths on the device"]["status"] == "skipped"
    assert {c["status"] for c in cases.values()} == {"pass", "skipped"}
    for kind in ("prefill", "decode", *(f"verify:{width}" for width in range(2, 7))):
        assert ("numbers", f"{kind} rows") in cases and ("route", f"{kind} rows") in cases
    arms = [name for stage, name in cases if stage == "miniature"]
    assert [name.partition(":")[0] for name in arms] == ["eager", "eager-mtp2"]
    proofs = [name for stage, name in cases if stage == "route" and "eager" in name]
    assert "verify:3 user_kernels:attention" in proofs[1]


def test_a_wrong_kernel_fails_in_numbers_and_in_the_miniature() -> None:
    done = CliRunner().invoke(main, ["kernel-check", "user_kernels:first_row_of_two", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    wrong = {f"{c['stage']}: {c['name']}" for c in told["cases"] if c["status"] == "fail"}
    assert told["verdict"] == "fail"
    assert {"numbers: verify:2 rows", "numbers: prefill rows"} <= wrong
    assert {"miniature: eager: answers as in PyTorch"} <= wrong
    assert not wrong & {"numbers: each row alone", "numbers: 20 reruns"}
    assert not any(name.startswith("route") for name in wrong)


@pytest.mark.usefixtures("without_miniature")
@pytest.mark.parametrize(
    "geometry",
    [
        SMALL,
        "glm51,heads=2,topk=24",
        f"{SMALL},dtype=fp8_e4m3",
        f"{SMALL},dtype=fp8_e4m3_row",
        f"{SMALL},rank=64,dtype=float16",
        f"{SMALL},dtype=bfloat16",
    ],
)
def test_a_kernel_that_takes_every_keyword_passes_everywhere(geometry: str) -> None:
    report = check_kernel("user_kernels:complete", geometry)
    assert failed(report.cases) == {}
    assert {case.status for case in report.cases} == {"pass"}


@pytest.mark.usefixtures("without_miniature")
def test_reads_of_unselected_slots_are_seen() -> None:
    wrong = failed(check_kernel("user_kernels:leaking", SMALL).cases)
    assert set(wrong) == {"numbers: NaN in unselected slots"}
    assert "NaN in unselected slots" in wrong["numbers: NaN in unselected slots"]


@pytest.mark.usefixtures("without_miniature")
def test_a_crash_is_told_in_every_case() -> None:
    report = check_kernel("user_kernels:crashing", SMALL)
    told = {c.detail for c in report.cases if c.stage == "numbers" and c.status == "fail"}
    assert told == {"RuntimeError: illegal memory access"}
    assert report.exit_code == 1


def test_an_entry_is_held_to_what_it_declares() -> None:
    report = check_kernel("user_kernels:DECODE_ONLY", None)
    assert failed(report.cases) == {}
    names = {case.name for case in report.cases}
    assert "decode rows" in names and "prefill rows" not in names
    routes = [c.name for c in report.cases if c.stage == "route" and c.name.startswith("eager:")]
    assert routes == ["eager: decode decode_only, prefill torch_gather"]


@pytest.mark.parametrize(
    ("kernel", "geometry", "message"),
    [
        ("user_kernels", None, "MODULE:FUNCTION"),
        ("no_such_module_here:f", None, "no module no_such_module_here"),
        ("user_kernels:missing", None, "user_kernels has no missing"),
        ("user_kernels:NOT_A_KERNEL", None, "neither a function nor an Entry"),
        ("user_kernels:attention", "huge", "'huge' is none of mini, glm53, glm51"),
        ("user_kernels:attention", "mini,heads=x", "'heads=x' is none of rank=NUMBER"),
        ("user_kernels:attention", "dtype=int4", "cache_dtype 'int4'"),
        ("user_kernels:attention", "heads=0", "heads 0"),
        ("user_kernels:DECODE_ONLY", "heads=65", "does not declare .* heads 65: takes 1 to 64"),
    ],
)
def test_what_cannot_be_checked_is_a_usage_error(
    kernel: str, geometry: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check_kernel(kernel, geometry)
    arguments = ["kernel-check", kernel, *(["--geometry", geometry] if geometry else [])]
    assert CliRunner().invoke(main, arguments).exit_code == 2


def test_geometries_by_name_and_by_change() -> None:
    assert str(parse_geometry(None, CPU)).startswith("cpu float32 512+0, 16 heads")
    found = parse_geometry("glm51,heads=8,dtype=bfloat16", CPU)
    assert (found.rope_dim, found.heads, found.topk) == (64, 8, 2048)
    assert (found.cache_dtype, len(found.row_kinds)) == ("bfloat16", 7)


def test_a_keyword_that_a_kernel_does_not_take_is_an_error() -> None:
    geometry = parse_geometry(SMALL, CPU)
    kernel = load_kernel("user_kernels:attention", geometry).entry.load(geometry)
    arguments: Any = (torch.zeros(1, 2, 512), torch.zeros(9, 512), torch.zeros(1, 24).long(), 1.0)
    with pytest.raises(TypeError, match="lengths"):
        kernel(*arguments, lengths=torch.ones(1, dtype=torch.int32))

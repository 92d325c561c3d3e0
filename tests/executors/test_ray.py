"""`--executor ray` on a real cluster of one machine, driven as a user drives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalsuite.storage import read_evidence, read_records, read_run

pytest.importorskip("ray", reason="the extra `ray` is not installed")

ROOT = Path(__file__).parents[2]
PATHS = [ROOT, ROOT / "tasks", ROOT / "kernels", ROOT / "tests", ROOT / "tests/executors"]
ARMS = ("eager", "graph", "mtp2")
LIMIT = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """A cluster of one node with two CPUs; the environment that leads to it."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, PATHS))
    # Ray's workers yield to everything else by default, to other tests too.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    # Runs of different commits are not joined, and somebody may commit while this goes on.
    os.environ["GIT_DIR"] = str(ROOT / "no-such-folder")
    started = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False},
    )
    yield {**os.environ, "RAY_ADDRESS": started.address, "OMP_NUM_THREADS": "1"}
    started.shutdown()
    for name in ("PYTHONPATH", "RAY_worker_niceness", "GIT_DIR"):
        del os.environ[name]


def suite(folder: Path, engine: str = "fake_engine", resources: str = "", **options: Any) -> Path:
    """Write a quick suite."""
    path = folder / "fake.yaml"
    path.write_text(
        f"name: fake\nengine:\n  kind: {engine}:open_engine\n"
        f"  options: {json.dumps(options)}\n"
        f"task: gsm_mini\nlimit: {LIMIT}\narms: [{', '.join(ARMS)}]\nblock_size: 8\n{resources}"
    )
    return path


def command(path: Path, out: Path, *more: str) -> list[str]:
    """The command line of a run."""
    return [
        sys.executable, "-m", "evalsuite", "run", str(path), "--out", str(out), "--json", *more,
    ]  # fmt: skip


def run(
    environment: dict[str, str], path: Path, out: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Run on the cluster unless `more` says otherwise, not judged."""
    words = command(path, out, "--no-judge", *(more or ("--executor", "ray")))
    return subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )


def timeless(folder: Path, arm: str) -> list[dict[str, Any]]:
    """An arm's records without times and block numbers, by item and repeat."""
    found = [msgspec.to_builtins(record) for record in read_records(folder, arm)]
    for row in found:
        for name in ("started", "ended", "ttft_s", "block"):
            del row[name]
    return sorted(found, key=lambda row: (row["item_id"], row["repeat"]))


def test_arms_and_repeats_on_a_cluster_give_the_run_of_one_process(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    path = suite(tmp_path)
    here = run(cluster, path, tmp_path / "here", "--repeats", "2")
    assert here.returncode == 0, here.stderr
    words = command(path, tmp_path / "ray", "--executor", "ray", "--repeats", "2")
    there = subprocess.run(
        [*words, "--baseline", "none"],
        env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert there.returncode == 0, there.stderr
    assert json.loads(there.stdout)["verdict"]["verdict"] == "pass"
    assert read_run(tmp_path / "ray").plan == read_run(tmp_path / "here").plan
    assert read_run(tmp_path / "ray").differences(read_run(tmp_path / "here")) == ()
    for arm in ARMS:
        assert timeless(tmp_path / "ray", arm) == timeless(tmp_path / "here", arm)
        assert read_evidence(tmp_path / "ray", arm) == read_evidence(tmp_path / "here", arm)
    assert not (tmp_path / ".ray.jobs").exists()
    again = run(cluster, path, tmp_path / "ray")
    assert again.returncode == 2 and "holds a run already" in again.stderr


def test_a_lost_worker_costs_its_arm_and_a_resume_asks_it_alone(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    path = suite(tmp_path, "dying_engine", dies="graph", mark=str(tmp_path / "died"))
    lost = run(cluster, path, tmp_path / "out")
    assert lost.returncode == 3, lost.stderr
    told = json.loads(lost.stdout)
    assert "the task was lost" in told["failed"]["graph"] and list(told["failed"]) == ["graph"]
    assert not (tmp_path / "out" / "graph" / "evidence.json").exists()
    assert "the task was lost" in (tmp_path / "out" / "graph" / "engine.log").read_text()
    before = timeless(tmp_path / "out", "eager")
    started = read_records(tmp_path / "out", "eager")[0].started
    other = run(cluster, path, tmp_path / "out", "--executor", "ray", "--resume", "--limit", "41")
    assert other.returncode == 2 and "begun with other" in other.stderr
    resumed = run(cluster, path, tmp_path / "out", "--executor", "ray", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "1 tasks on Ray" in resumed.stderr
    assert timeless(tmp_path / "out", "eager") == before
    assert read_records(tmp_path / "out", "eager")[0].started == started
    assert len(read_records(tmp_path / "out", "graph")) == LIMIT


def test_an_arm_that_fails_leaves_the_others(cluster: dict[str, str], tmp_path: Path) -> None:
    done = run(cluster, suite(tmp_path, crash_arm="mtp2"), tmp_path / "out")
    assert done.returncode == 3
    assert "RuntimeError: device lost" in json.loads(done.stdout)["failed"]["mtp2"]
    assert "abcdefghij123456" not in done.stderr + done.stdout
    assert "device lost" in (tmp_path / "out" / "mtp2" / "engine.log").read_text()
    assert len(timeless(tmp_path / "out", "graph")) == LIMIT


def test_what_the_engine_refuses_is_the_users_to_put_right(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    done = run(cluster, suite(tmp_path, refuse_arm="eager"), tmp_path / "out")
    assert done.returncode == 2
    assert "eager: arms: eager asks for graphs, which are not to be had" in done.stderr


def test_a_request_no_node_can_fill_is_refused_at_once(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    path = suite(tmp_path, resources="resources: {gpus: 4}\n")
    done = run(cluster, path, tmp_path / "out")
    assert done.returncode == 2
    assert "resources: no node of the Ray cluster has 1 CPU, 4 GPU" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fake.yaml"]


def test_an_interrupted_run_is_resumed(cluster: dict[str, str], tmp_path: Path) -> None:
    path = suite(tmp_path, delay_s=0.05)
    words = command(path, tmp_path / "out", "--no-judge", "--executor", "ray")
    driver = subprocess.Popen(words, env=cluster, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    first = tmp_path / ".out.jobs" / "eager-0"
    deadline = time.monotonic() + 120
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    _, told = driver.communicate(timeout=120)
    assert driver.returncode == 3, told
    assert "interrupted; --resume goes on with it" in told
    assert not (tmp_path / "out").exists() and first.exists()
    resumed = run(cluster, path, tmp_path / "out", "--executor", "ray", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "3 tasks on Ray" not in resumed.stderr
    assert [len(read_records(tmp_path / "out", arm)) for arm in ARMS] == [LIMIT] * 3


def test_no_cluster_is_told(tmp_path: Path, cluster: dict[str, str]) -> None:
    nowhere = {**cluster, "RAY_ADDRESS": "127.0.0.1:1"}
    done = run(nowhere, suite(tmp_path), tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert "executor: no Ray cluster at 127.0.0.1:1: " in done.stderr

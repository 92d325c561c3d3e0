"""`--executor ray`: the arms and repeats of a run as tasks on a Ray cluster that runs already."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import ray
import ray.exceptions
from rich.console import Console

from evalsuite.errors import EvalsuiteError, RunIncomplete, UsageError
from evalsuite.executors.gathered import Gathered
from evalsuite.executors.jobs import Done, Job, carry_out, jobs_of
from evalsuite.launch import Launch, drawn_items
from evalsuite.paths import new_folder
from evalsuite.runner import Executed
from evalsuite.suite import Resources, Suite

ADDRESS = "RAY_ADDRESS"
CLOSING_S = 60.0
CONNECT_S = 10.0
console = Console(stderr=True)


def run_on_ray(asked: Launch, suite: Suite, against: str | None) -> Executed:
    """Execute a run of `suite` on the cluster at $RAY_ADDRESS, or the one that runs here.

    Each arm and repeat is a task that asks for the suite's `resources`; no task is tried again.
    `against` is the baseline by which collapsed arms are stopped, None for none. Raises UsageError
    where there is no cluster or it has no node large enough, RunIncomplete where it is interrupted.
    """
    if asked.mode == "resume" and asked.out is None:
        raise UsageError("--resume needs --out: which run to go on with", field="out")
    folder = asked.out if asked.out is not None else new_folder(suite.name)
    _, items, shard = drawn_items(asked, suite)
    # A file of this machine means nothing on another one.
    stopping = against if against == "auto" else None
    jobs = jobs_of(suite, [entry.item.item_id for entry in items], shard, stopping)
    gathered = Gathered(folder)
    # Ray tells of lost workers on standard output, which belongs to --json.
    with contextlib.redirect_stdout(sys.stderr), _Cluster(suite.resources) as cluster:
        gathered.claim(jobs, asked.mode)
        try:
            stopped, failed, lost = _collect(cluster, gathered, jobs)
        except EvalsuiteError:
            gathered.clear_if_empty()
            raise
    run = gathered.join(jobs, lost)
    if not failed:
        gathered.clear()
    return Executed(folder, run, stopped, failed)


def _collect(
    cluster: _Cluster, gathered: Gathered, jobs: list[Job]
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Run what is left of the jobs; return reasons: stopped and failed by arm, lost by job."""
    stopped: dict[str, str] = {}
    failed: dict[str, str] = {}
    lost: dict[str, str] = {}
    for job, done in cluster.run([job for job in jobs if not gathered.has(job)]):
        done.raise_refusal()
        if done.files:
            gathered.keep(job, done)
        elif done.failed:
            lost[job.name] = done.failed
        if done.stopped:
            stopped[job.arm] = done.stopped
        if done.failed:
            failed[job.arm] = done.failed
    return stopped, failed, lost


class _Cluster:
    """A connection to a cluster; ends the tasks that still run when it is left."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._pending: dict[Any, Job] = {}

    def __enter__(self) -> _Cluster:
        address = os.environ.get(ADDRESS, "auto")
        try:
            _knock(address)
            ray.init(address=address, log_to_driver=False)
        except OSError as problem:
            first = str(problem).splitlines()[0]
            message = f"no Ray cluster at {address}: {first} (`ray start --head` starts one)"
            raise UsageError(message, field="executor") from None
        try:
            self._check_size()
        except UsageError:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for reference in self._pending:
            ray.cancel(reference)
        if self._pending:
            # A cancelled task still closes its engine.
            ray.wait(list(self._pending), num_returns=len(self._pending), timeout=CLOSING_S)
        ray.shutdown()

    def run(self, jobs: list[Job]) -> Iterator[tuple[Job, Done]]:
        """Yield what came of each job as it ends. Raises RunIncomplete where it is interrupted."""
        task = ray.remote(carry_out).options(
            num_cpus=self._resources.cpus, num_gpus=self._resources.gpus, max_retries=0
        )
        self._pending = {task.remote(job): job for job in jobs}
        console.print(f"{len(jobs)} tasks on Ray", style="dim", highlight=False)
        try:
            while self._pending:
                (reference,), _ = ray.wait(list(self._pending), num_returns=1)
                job = self._pending.pop(reference)
                done = _outcome(reference)
                _tell(job, done)
                yield job, done
        except KeyboardInterrupt:
            raise RunIncomplete("interrupted; --resume goes on with it") from None

    def _check_size(self) -> None:
        wanted = {"CPU": self._resources.cpus, "GPU": self._resources.gpus}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(k, 0) >= n for k, n in wanted.items()) for node in nodes):
            asked = ", ".join(f"{n} {k}" for k, n in wanted.items() if n)
            message = f"no node of the Ray cluster has {asked}"
            raise UsageError(message, field="resources")


def _knock(address: str) -> None:
    """Raise OSError where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


def _outcome(reference: Any) -> Done:
    try:
        done: Done = ray.get(reference)
    except ray.exceptions.RayTaskError as problem:
        return Done(failed=f"the task failed: {problem.cause!r}")
    except ray.exceptions.RayError as problem:
        return Done(failed=f"the task was lost: {str(problem).splitlines()[0]}")
    return done


def _tell(job: Job, done: Done) -> None:
    for note in done.notes:
        console.print(note, highlight=False)
    reason = done.failed or done.stopped or (done.refused and done.refused[1]) or "done"
    console.print(f"{job.arm}, repeat {job.repeat}: {reason}", highlight=False)

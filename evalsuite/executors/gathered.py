"""Where the folders of jobs lie until they are joined: beside the run, kept for a resume."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evalsuite.arms import parse_arm
from evalsuite.errors import RunIncomplete, UsageError
from evalsuite.executors.jobs import Done, Job
from evalsuite.merge import merge_runs
from evalsuite.recorder import EVIDENCE
from evalsuite.records import Run, Shard
from evalsuite.runfolder import Mode
from evalsuite.storage import read_file, read_run, write_atomic, write_struct

DESCRIPTION = "jobs.json"


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the jobs of one run have in common, to notice a resume under other conditions."""

    jobs: tuple[str, ...]
    suites: tuple[str, ...]
    items: tuple[str, ...]
    shard: Shard | None


class Gathered:
    """The folders of the jobs of the run that will be at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder.with_name(f".{folder.name}.jobs")

    def claim(self, jobs: Sequence[Job], mode: Mode) -> None:
        """Make the place ready. Raises UsageError where `mode` does not fit what is there."""
        described = _describe(jobs)
        if mode == "new" and (self.folder.exists() or self.place.exists()):
            message = "holds a run already; add --resume or --fresh"
            raise UsageError(message, file=self.folder)
        if self.folder.exists() and not (self.folder / "run.json").exists():
            raise UsageError("is no run", file=self.folder)
        if mode == "resume":
            self._check_same(described)
        if mode == "fresh":
            shutil.rmtree(self.place, ignore_errors=True)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        write_struct(self.place / DESCRIPTION, described)

    def has(self, job: Job) -> bool:
        """Whether the job's arm came to its end."""
        return (self.place / job.name / job.arm / EVIDENCE).exists()

    def keep(self, job: Job, done: Done) -> None:
        """Write what a job brought, all of it or nothing."""
        target, temporary = self.place / job.name, self.place / f".{job.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        for name, data in done.files.items():
            write_atomic(temporary / name, data)
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)

    def join(self, jobs: Sequence[Job], lost: dict[str, str]) -> Run:
        """Join all jobs into the run; `lost` has the reasons of jobs that brought nothing.

        Raises RunIncomplete where no job brought anything.
        """
        kept = [job for job in jobs if (self.place / job.name).exists()]
        if not kept:
            raise RunIncomplete("; ".join(sorted(set(lost.values()))) or "no job ran")
        for job in jobs:
            if job not in kept:
                self._stand_in(job, self.place / kept[0].name, lost[job.name])
        merged = merge_runs(
            [self.place / job.name for job in jobs], self.folder, as_repeats=True, partial=True
        )
        return merged.run

    def clear(self) -> None:
        """Drop the jobs' folders."""
        shutil.rmtree(self.place)

    def clear_if_empty(self) -> None:
        """Drop the place where no job has brought anything yet."""
        if [path.name for path in self.place.iterdir()] == [DESCRIPTION]:
            self.clear()

    def _check_same(self, described: Description) -> None:
        if not (self.place / DESCRIPTION).exists():
            raise UsageError("has no jobs left to resume", file=self.folder)
        before = read_file(self.place / DESCRIPTION, Description)
        for name in described.__struct_fields__:
            if getattr(before, name) != getattr(described, name):
                message = f"was begun with other {name} and cannot be resumed"
                raise UsageError(message, file=self.folder)

    def _stand_in(self, job: Job, other: Path, reason: str) -> None:
        """Write a folder without answers, so that the verdict tells of the arm."""
        run = read_run(other)
        plan = msgspec.structs.replace(run.plan, arms=(parse_arm(job.arm),))
        target = self.place / job.name
        write_atomic(target / "items.jsonl", (other / "items.jsonl").read_bytes())
        write_atomic(target / job.arm / "engine.log", f"{reason}\n".encode())
        write_struct(target / "run.json", msgspec.structs.replace(run, plan=plan))


def _describe(jobs: Sequence[Job]) -> Description:
    return Description(
        jobs=tuple(job.name for job in jobs),
        suites=tuple(dict.fromkeys(job.suite.decode() for job in jobs)),
        items=jobs[0].items,
        shard=jobs[0].shard,
    )

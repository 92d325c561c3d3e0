"""The numeric suite of the attention kernels on a GPU: one line for each property.

    python benchmarks/kernel_numerics.py [--only NAME]

Every property is checked for each kernel configuration that a launch on Hopper can choose. Exit
code 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import kernel_paths  # noqa: F401
import torch
from sparse_problems import Problem, make

from sparse_mla import attention
from sparse_mla.attention import MMA_HEADS
from sparse_mla.compare import FLASH_MLA
from sparse_mla.configs import FEW_HEADS, GLUON, NARROW, NARROW_FP8, WIDE, Config
from sparse_mla.packing import group_rows, measure_overlap, pack_rows

POISON = float("nan")
DEVICE = "cuda"
Check = Callable[[Config], str | None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Enter a property into the suite. It returns what is wrong, None where it holds."""
    CHECKS[function.__name__] = function
    return function


def heads_of(config: Config) -> int:
    """Heads that fill one block."""
    return config.block_h


def poisoned(problem: Problem) -> Problem:
    """NaN in every unselected slot, slot 0 among them; -1 and wild indices among the keys."""
    indices = problem.indices.clone()
    indices[:, 5::97] = -1
    indices[:, 7::101] = len(problem.cache) + 3
    indices[:, 11::103] = -(2**31)
    indices = torch.where(indices == 0, -1, indices)
    lengths = torch.full((len(indices),), indices.shape[1], device=indices.device)
    lengths[0], lengths[-1] = 0, 65
    column = torch.arange(indices.shape[1], device=indices.device)
    live = (column < lengths[:, None]) & (indices >= 0) & (indices < len(problem.cache))
    named = torch.zeros(len(problem.cache), dtype=torch.bool, device=indices.device)
    named[indices[live].long()] = True
    cache = problem.cache.float()
    cache[~named] = POISON
    cache = cache.to(problem.cache.dtype)
    return replace(problem, cache=cache, indices=indices, lengths=lengths.int())


def same(a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...], what: str) -> str | None:
    """Whether two results are bitwise equal."""
    for name, x, y in zip(("out", "lse"), a, b, strict=True):
        if not torch.equal(x.view(torch.int16 if x.itemsize == 2 else torch.int32),
                           y.view(torch.int16 if y.itemsize == 2 else torch.int32)):  # fmt: skip
            return f"{what}: {name} differs by up to {float((x.float() - y.float()).abs().max())}"
    return None


@check
def agrees_with_float64(config: Config) -> str | None:
    """Each head count from 8 to 128, with and without a split."""
    for heads in (8, 16, 32, 64, 128):
        for split in (None, 256):
            problem = make(5, heads)
            wrong = problem.wrong(problem.run(config=config, split_size=split))
            if wrong:
                return f"{heads} heads, split {split}: {wrong}"
    return None


@check
def agrees_at_the_size_of_flash_mla(config: Config) -> str | None:
    """Queries and values of size 0.1, judged as FlashMLA's own tests judge."""
    for rope in (0, 64):
        problem = make(5, heads_of(config), rope=rope)
        problem = replace(problem, query=problem.query / 10, cache=problem.cache / 10)
        wrong = problem.wrong(problem.run(config=config), allowed=FLASH_MLA)
        if wrong:
            return f"rope {rope}: {wrong}"
    return None


@check
def agrees_with_rope(config: Config) -> str | None:
    problem = make(5, heads_of(config), rope=64)
    return problem.wrong(problem.run(config=config)) or problem.wrong(
        problem.run(config=config, split_size=128)
    )


@check
def agrees_with_fp8(config: Config) -> str | None:
    """Both kinds of scale, with and without rope: whole and odd lists, splits, packed rows."""
    if config.block_h >= MMA_HEADS:
        return None
    for fp8, rope in product(("tensor", "row"), (0, 64)):
        for topk, split in ((2048, 2048), (131, 64)):
            problem = poisoned(make(7, heads_of(config), topk=topk, rope=rope, fp8=fp8))
            found = problem.run(config=config, split_size=split)
            again = problem.run(config=config, split_size=split)
            wrong = problem.wrong(found) or same(again, found, "rerun")
            if wrong:
                return f"{fp8} scale, rope {rope}, top-{topk} in parts of {split}: {wrong}"
        problem = poisoned(make(12, 16, rope=rope, fp8=fp8, width=6, shared=0.8))
        packing = pack_rows(problem.indices, 3, len(problem.cache), lengths=problem.lengths)
        wrong = problem.wrong(problem.run(config=config, packing=packing))
        if wrong:
            return f"{fp8} scale, rope {rope}, packed: {wrong}"
    return None


@check
def odd_columns_and_int64(config: Config) -> str | None:
    """131 columns, int64 slots, slot 0 for "no key": what the miniature's engine asks for."""
    problem = make(7, 16, topk=131, slots=4096)
    indices = problem.indices.long()
    indices[:, ::9] = 0
    found = replace(problem, indices=indices).run(config=config, empty_index=0)
    return replace(problem, indices=torch.where(indices == 0, -1, indices)).wrong(found)


@check
def rows_of_a_wider_tensor(config: Config) -> str | None:
    """A cache and a query that are columns of wider tensors, at odd addresses."""
    for fp8 in ("", "tensor"):
        problem = make(7, heads_of(config), topk=131, slots=4096, fp8=fp8)
        problem = replace(
            problem, cache=within_a_wider(problem.cache), query=within_a_wider(problem.query)
        )
        # A kernel that needs aligned rows must not be chosen.
        plain = config.kernel == "gluon" or (fp8 and config.block_h >= MMA_HEADS)
        wrong = problem.wrong(problem.run(config=None if plain else config))
        if wrong:
            return f"{fp8 or 'BF16'}: {wrong}"
    return None


def within_a_wider(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as columns of a tensor that is 13 wider."""
    wider = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 13, device=DEVICE).to(tensor.dtype)
    part = wider[..., 3:-10]
    part.copy_(tensor)
    return part


@check
def never_reads_the_unselected(config: Config) -> str | None:
    """NaN in every unselected slot, in outputs and in partial buffers."""
    original = attention.empty_parts

    def poison(*arguments: object) -> tuple[torch.Tensor, ...]:
        return tuple(part.fill_(POISON) for part in original(*arguments))  # type: ignore[arg-type]

    attention.empty_parts = poison
    try:
        for rope in (0, 64):
            problem = poisoned(make(6, heads_of(config), rope=rope))
            for split in (None, 64, 512):
                out = torch.full((6, heads_of(config), 512), POISON, device=DEVICE).bfloat16()
                lse = torch.full((6, heads_of(config)), POISON, device=DEVICE)
                found = problem.run(config=config, split_size=split, out=out, lse=lse)
                wrong = problem.wrong(found)
                if wrong:
                    return f"rope {rope}, split {split}: {wrong}"
    finally:
        attention.empty_parts = original
    return None


@check
def selected_nan_comes_through(config: Config) -> str | None:
    problem = make(2, heads_of(config))
    cache = problem.cache.clone()
    cache[problem.indices[0, 100].long()] = POISON
    out, lse = replace(problem, cache=cache).run(config=config, split_size=512)
    if not (out[0].isnan().all() and lse[0].isnan().all()):
        return "a NaN among a row's keys is lost"
    return None


@check
def order_of_keys_is_free(config: Config) -> str | None:
    problem = make(4, heads_of(config))
    order = torch.randperm(problem.indices.shape[1], device=DEVICE)
    shuffled = replace(problem, indices=problem.indices[:, order].contiguous())
    return problem.wrong(shuffled.run(config=config))


@check
def reruns_are_bitwise_equal(config: Config) -> str | None:
    problem = make(300, heads_of(config))
    first = problem.run(config=config)
    for _ in range(20):
        wrong = same(problem.run(config=config), first, "rerun")
        if wrong:
            return wrong
    return None


@check
def a_row_does_not_see_its_batch(config: Config) -> str | None:
    """Alone, in a batch, inside a verification block, twice: bitwise the same with split_size."""
    problem = make(96, heads_of(config), width=6, shared=0.8)
    for split in (256, 512):
        batch = problem.run(config=config, split_size=split)
        for begin, end in ((0, 1), (95, 96), (6, 12), (9, 10), (0, 48)):
            part = replace(
                problem, query=problem.query[begin:end], indices=problem.indices[begin:end]
            )
            wrong = same(
                part.run(config=config, split_size=split),
                (batch[0][begin:end], batch[1][begin:end]),
                f"rows {begin}:{end} apart",
            )
            if wrong:
                return wrong
        twice = replace(
            problem,
            query=problem.query[3:4].repeat(140, 1, 1),
            indices=problem.indices[3:4].repeat(140, 1),
        )
        out, lse = twice.run(config=config, split_size=split)
        wrong = same((out, lse), (batch[0][3:4].expand_as(out), batch[1][3:4].expand_as(lse)),
                     "copies of a row")  # fmt: skip
        if wrong:
            return wrong
    return None


@check
def replay_equals_eager(config: Config) -> str | None:
    """A graph replayed after indices, lengths and query changed in place."""
    first, second = poisoned(make(24, heads_of(config), seed=1)), make(24, heads_of(config), seed=2)
    second = replace(second, lengths=torch.randint(0, 2049, (24,), device=DEVICE).int())
    held = replace(
        first, query=first.query.clone(), indices=first.indices.clone(), cache=second.cache,
        lengths=first.lengths.clone(),
    )  # fmt: skip
    held.run(config=config)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = held.run(config=config)
    held.query.copy_(second.query)
    held.indices.copy_(second.indices)
    held.lengths.copy_(second.lengths)
    for tensor in found:
        tensor.fill_(POISON)
    graph.replay()
    torch.cuda.synchronize()
    return same(found, second.run(config=config), "replay") or second.wrong(found, 8)


@check
def packing_changes_nothing(config: Config) -> str | None:
    """Packed rows against the reference: shared, unrelated and repeated keys, short rows."""
    for width, heads, shared in ((6, 16, 0.8), (6, 8, 0.5), (4, 16, 0.0), (2, 32, 1.0)):
        problem = make(4 * width, heads, width=width, shared=shared)
        problem.indices[1, 3:40] = problem.indices[1, 3]
        problem = poisoned(problem)
        rows = group_rows(width, heads)
        packing = pack_rows(problem.indices, rows, len(problem.cache), lengths=problem.lengths)
        found = problem.run(config=config, packing=packing)
        wrong = problem.wrong(found)
        again = pack_rows(problem.indices, rows, len(problem.cache), lengths=problem.lengths)
        live = torch.arange(packing.indices.shape[1], device=DEVICE) < packing.counts[:, None]
        stable = (packing.indices == again.indices) & (packing.members == again.members)
        if wrong or not bool((stable | ~live).all()):
            share = measure_overlap(problem.indices, rows)
            return f"{rows} of {width} rows, {heads} heads, union {share:.2f}: {wrong or 'order'}"
    return None


@check
def offsets_are_64_bit(config: Config) -> str | None:
    """A pool of more than 2^31 elements, its last slots named."""
    slots = 2**31 // 512 + 5000
    cache = torch.empty(slots, 512, dtype=torch.bfloat16, device=DEVICE)
    cache[-5000:] = torch.randn(5000, 512, device=DEVICE).bfloat16()
    problem = make(3, heads_of(config), slots=4096)
    indices = problem.indices + (slots - 4500)
    small = replace(problem, cache=cache[-4500:], indices=problem.indices)
    found = replace(problem, cache=cache, indices=indices.int()).run(config=config)
    return small.wrong(found)


@check
def seventy_thousand_rows(config: Config) -> str | None:
    """More rows than a grid's second dimension takes."""
    problem = make(1, heads_of(config), topk=64, slots=4096)
    rows = 70_000
    query = problem.query.repeat(rows, 1, 1)
    indices = torch.randint(-1, 4096, (rows, 64), device=DEVICE).int()
    many = replace(problem, query=query, indices=indices)
    out, lse = many.run(config=config)
    last = replace(many, query=query[-4:], indices=indices[-4:])
    return last.wrong((out[-4:], lse[-4:])) or many.wrong((out, lse), 4)


@check
def nothing_to_do(config: Config) -> str | None:
    """No rows, no columns, rows without keys."""
    problem = make(3, heads_of(config), topk=64, slots=128)
    for part in (slice(0, 0), slice(0, 3)):
        query, indices = problem.query[part], problem.indices[part]
        for listed in (indices[:, :0], torch.full_like(indices, -1)):
            out, lse = replace(problem, query=query, indices=listed.contiguous()).run(config=config)
            if len(out) != len(query) or bool((out != 0).any()) or not bool(lse.isneginf().all()):
                return f"{len(query)} rows of {listed.shape[1]} columns"
    return None


def results(only: str) -> Iterator[tuple[str, str, str | None, float]]:
    """Name, configuration, what is wrong and seconds of each check."""
    for config in (GLUON, FEW_HEADS, WIDE, NARROW, NARROW_FP8):
        for name, function in CHECKS.items():
            if only in f"{name} {config.label}":
                started = time.perf_counter()
                torch.manual_seed(0)
                try:
                    wrong = function(config)
                    torch.cuda.synchronize()
                except Exception as error:  # one property's crash must not hide the others
                    wrong = f"{type(error).__name__}: {error}".partition("\n")[0]
                yield name, config.label, wrong, time.perf_counter() - started


def main() -> int:
    """Run the suite and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a check's name or configuration")
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    failed = 0
    for name, label, wrong, seconds in results(arguments.only):
        failed += wrong is not None
        print(f"{'FAIL' if wrong else 'ok  '} {name:32} {label:24} {seconds:6.1f} s {wrong or ''}")
        sys.stdout.flush()
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

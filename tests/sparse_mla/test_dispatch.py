"""Dispatch: what is chosen, what is refused and why, what is counted, what can be forced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from routes import ROUTES
from torch import Tensor

from sparse_mla import builtin, dispatch, external, launches, table
from sparse_mla.architecture import architecture_of, cache_dtype_of
from sparse_mla.builtin import AMD, NVIDIA
from sparse_mla.capability import ALL_ROW_KINDS, Capability
from sparse_mla.dispatch import select
from sparse_mla.forcing import forced
from sparse_mla.geometry import Geometry, UnsupportedGeometry, row_width
from sparse_mla.launches import Launch
from sparse_mla.portable import gather_mla
from sparse_mla.table import Entry, entries, registered

# Without it every kernel of ours is refused, for that reason before any other.
pytest.importorskip("triton")

DECLARED = sorted(NVIDIA | AMD)
LATENT = Geometry("cpu", "float32", 512, 0, 16, frozenset({"decode"}), 32)


@pytest.fixture(autouse=True)
def no_external(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without other projects' kernels."""
    absent = {entry.name for entry in entries()} & {
        "flash_mla",
        "aiter_sparse_mla",
        "flashinfer_page1",
    }
    assert len(absent) == 3
    monkeypatch.setattr(
        "sparse_mla.table.EXTERNAL",
        tuple(
            replace(entry, missing=lambda: "not installed")
            for entry in entries()
            if entry.name in absent
        ),
    )


def entry(name: str, cost: float = 0.1, **changes: object) -> Entry:
    """A made-up kernel for one architecture and rope-free rows."""
    able = Capability(
        frozenset({"gfx950"}), frozenset({"bfloat16"}), frozenset({512}), frozenset({0}), range(129)
    )
    return Entry(
        name,
        (replace(able, **changes),),  # type: ignore[arg-type]
        lambda geometry: gather_mla,
        cost=lambda geometry: cost,
    )


@pytest.mark.parametrize("architecture", DECLARED)
@pytest.mark.parametrize("name", ROUTES)
def test_every_route_has_a_kernel_for_its_rows_on_every_architecture(
    name: str, architecture: str
) -> None:
    route = ROUTES[name]
    kernel = select(route.geometry(architecture), capture=True)
    if name == "empty":
        assert kernel is None
        return
    assert kernel is not None
    assert kernel.name == ("triton_rope" if route.head_size == 576 else "triton_latent")


@pytest.mark.parametrize("architecture", DECLARED)
@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("cache_dtype", ["bfloat16", "fp8_e4m3", "fp8_e4m3_row"])
@pytest.mark.parametrize("rope", [0, 64])
def test_row_kinds_do_not_change_the_choice(
    architecture: str, heads: int, cache_dtype: str, rope: int
) -> None:
    names = set()
    for kind in ALL_ROW_KINDS:
        geometry = Geometry(
            architecture, cache_dtype, 512, rope, heads, frozenset({kind, "decode"}), 131
        )
        kernel = select(geometry)
        assert kernel is not None
        names.add(kernel.name)
    assert len(names) == 1


def test_the_fastest_of_those_that_can_is_chosen() -> None:
    geometry = replace(LATENT, architecture="gfx950", cache_dtype="bfloat16")
    with registered(entry("slower", 3.0)), registered(entry("faster", 0.2)):
        kernel = select(geometry)
        assert kernel is not None and kernel.name == "faster"
        other = select(replace(geometry, rope_dim=64))
        assert other is not None and other.name == "triton_rope"
    assert {e.name for e in entries()} & {"slower", "faster"} == set()
    own = select(geometry)
    assert own is not None and own.name == "triton_latent"


def test_a_choice_is_remembered_until_the_table_changes() -> None:
    geometry = replace(LATENT, architecture="gfx950", cache_dtype="bfloat16")
    for cost in (0.1, 3.0):
        with registered(entry("another of the same name", cost)):
            kernel = select(geometry)
            assert kernel is not None and kernel is select(replace(geometry))
            assert (kernel.name == "triton_latent") == (cost > 1.0)


def test_a_row_kind_matters_where_a_kernel_says_so() -> None:
    geometry = replace(LATENT, architecture="gfx950", cache_dtype="bfloat16")
    with registered(entry("decode only", row_kinds=frozenset({"decode"}))):
        kernel = select(geometry)
        assert kernel is not None and kernel.name == "decode only"
        for kinds in ({"verify:2"}, {"decode", "verify:6"}, {"decode", "prefill"}):
            kernel = select(replace(geometry, row_kinds=frozenset(kinds)))
            assert kernel is not None and kernel.name == "triton_latent"


def test_verification_rows_never_reach_a_kernel_for_wider_rows() -> None:
    wide = entry("wide only", rope_dims=frozenset({64}))
    geometry = ROUTES["2 requests, 4 verification rows"].geometry("gfx950")
    with registered(wide):
        kernel = select(geometry)
        assert kernel is not None and kernel.name == "triton_latent"
        assert wide.refusal(geometry, False) == "rope width 0: takes 64"
        with pytest.raises(UnsupportedGeometry, match=r"wide only: .*rope width 32: takes 64"):
            select(replace(geometry, rope_dim=32))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "sm_75"}, "architecture sm_75: takes gfx942, gfx950, sm_90"),
        ({"cache_dtype": "float16"}, "cache dtype float16: takes bfloat16, fp8_e4m3"),
        ({"kv_lora_rank": 256}, "kv_lora_rank 256: takes 512"),
        ({"rope_dim": 32}, "rope width 32: takes 0"),
        ({"heads": 256}, "heads 256: takes 1 to 128"),
        ({"row_kinds": frozenset({"verify:9"})}, "row kind verify:9: takes decode, prefill"),
    ],
)
def test_what_no_kernel_can_is_refused_with_every_kernels_reason(
    change: dict[str, object], reason: str
) -> None:
    geometry = replace(LATENT, architecture="sm_90", cache_dtype="bfloat16")
    with pytest.raises(UnsupportedGeometry) as caught:
        select(replace(geometry, **change))  # type: ignore[arg-type]
    lines = str(caught.value).splitlines()
    assert f"  triton_latent: {reason}" in str(caught.value)
    assert len(lines) == 1 + len(entries())
    assert [line.split(":")[0].strip() for line in lines[1:]] == [e.name for e in entries()]


def test_top_k_multiples_and_capture_are_declared_limits() -> None:
    able = entry("picky", topk_multiple=128, graph_capture=False).capabilities[0]
    geometry = replace(LATENT, architecture="gfx950", cache_dtype="bfloat16", topk=131)
    assert able.refusals(geometry, False) == ("top-k 131: takes multiples of 128",)
    assert able.refusals(replace(geometry, topk=256), False) == ()
    assert able.refusals(replace(geometry, topk=256), True) == ("cannot be captured into a graph",)


def test_an_absent_kernel_says_what_is_not_installed() -> None:
    assert external.missing("no_such_package_here.deep.inside")() == (
        "no_such_package_here is not installed"
    )
    assert external.missing("torch.nn")() is None


def test_two_kernels_of_one_name_are_refused() -> None:
    with (
        pytest.raises(ValueError, match="'torch_gather' already"),
        registered(entry("torch_gather")),
    ):
        pass


def call(geometry: Geometry, rows: int = 2) -> tuple[Tensor, Tensor, Tensor, float]:
    """Tensors of a call of this geometry."""
    dice = torch.Generator().manual_seed(0)
    query = torch.randn(rows, geometry.heads, geometry.width, generator=dice)
    cache = torch.randn(96, geometry.width, generator=dice)
    return query, cache, torch.randint(-1, 96, (rows, geometry.topk), generator=dice), 0.05


def test_launches_are_counted_by_kernel_kind_and_width() -> None:
    kinds = frozenset({"prefill", "decode", "verify:3"})
    kernel = select(replace(LATENT, row_kinds=kinds))
    plain = select(LATENT)
    assert kernel is not None and plain is not None
    with launches.counting() as counts:
        kernel.run(*call(kernel.geometry))
        with launches.counting() as inner:
            plain.run(*call(LATENT))
    plain.run(*call(LATENT))
    assert counts == {
        Launch("torch_gather", "prefill", 0): 1,
        Launch("torch_gather", "decode", 1): 2,
        Launch("torch_gather", "verify", 3): 1,
    }
    assert inner == {Launch("torch_gather", "decode", 1): 1}


@pytest.mark.parametrize(
    ("position", "wrong", "message"),
    [
        (0, torch.zeros(2, 8, 512), "heads 16, called with 8"),
        (0, torch.zeros(2, 16, 576), "query width 512, called with 576"),
        (1, torch.zeros(96, 576), "cache width 512, called with 576"),
        (1, torch.zeros(96, 512, dtype=torch.float16), "cache dtype float32, called with float16"),
        (2, torch.zeros(2, 16, dtype=torch.int64), "top-k 32, called with 16"),
    ],
)
def test_a_kernel_refuses_tensors_of_another_geometry(
    position: int, wrong: Tensor, message: str
) -> None:
    kernel = select(LATENT)
    assert kernel is not None
    arguments = list(call(LATENT))
    arguments[position] = wrong
    with launches.counting() as counts, pytest.raises(ValueError, match=message):
        kernel.run(*arguments)  # type: ignore[arg-type]
    assert not counts


def test_an_option_that_a_kernel_does_not_know_is_an_error() -> None:
    kernel = select(LATENT)
    assert kernel is not None
    with pytest.raises(TypeError, match="split_size"):
        kernel.run(*call(LATENT), split_size=64)


@pytest.fixture
def released() -> Iterator[None]:
    """Nothing stays forced."""
    yield
    assert dispatch.override is None


@pytest.mark.usefixtures("released")
def test_a_forced_kernel_reads_its_own_row_width_from_the_same_memory() -> None:
    geometry = replace(LATENT, row_kinds=frozenset({"verify:2"}))
    arguments = call(geometry)
    right = select(geometry)
    assert right is not None
    expected, _ = right.run(*arguments)
    with forced("torch_gather", {"verify:2"}, rope_dim=64), launches.counting() as counts:
        wrong = select(geometry)
        plain = select(LATENT)
        assert wrong is not None and plain is not None
        found, lse = wrong.run(*arguments)
        same, _ = plain.run(*arguments)
        with pytest.raises(RuntimeError, match="forced already"), forced("x", set(), rope_dim=0):
            pass
    assert counts == {
        Launch("torch_gather", "verify", 2): 1,
        Launch("torch_gather", "decode", 1): 1,
    }
    torch.testing.assert_close(same, expected)
    assert found.shape == expected.shape and found.isfinite().all() and lse.isfinite().all()
    assert (found - expected).abs().max() > 0.1
    query, cache, indices, scale = arguments
    rows = cache.flatten()[: 96 * 512 // 576 * 576].view(-1, 576)
    flat = torch.cat([query.flatten(), torch.zeros(2 * 16 * 64)]).view(2, 16, 576)
    torch.testing.assert_close(found, gather_mla(flat, rows, indices, scale)[0])


def test_forcing_needs_a_kernel_that_exists() -> None:
    with pytest.raises(KeyError, match="no such"), forced("no such", {"decode"}, rope_dim=0):
        pass
    assert dispatch.override is None


@pytest.mark.parametrize("kind", ["", "verify", "verify:0", "verify:x", "draft", "verify:-1"])
def test_row_kinds_are_spelt_one_way(kind: str) -> None:
    with pytest.raises(ValueError, match="row kind"):
        row_width(kind)


@pytest.mark.parametrize(
    ("field", "value"),
    [("heads", 0), ("topk", 0), ("kv_lora_rank", 0), ("rope_dim", -1), ("cache_dtype", "int8")],
)
def test_a_geometry_that_no_call_can_have_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        replace(LATENT, **{field: value})  # type: ignore[arg-type]


def test_devices_and_types_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert architecture_of(torch.device("cpu")) == "cpu"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert architecture_of(torch.device("cpu")) == "interpreter"
    with pytest.raises(ValueError, match="meta"):
        architecture_of(torch.device("meta"))
    fp8 = torch.zeros(4, 8).to(torch.float8_e4m3fn)
    assert cache_dtype_of(fp8, torch.ones(())) == "fp8_e4m3"
    assert cache_dtype_of(fp8, torch.ones(4)) == "fp8_e4m3_row"
    with pytest.raises(ValueError, match="int8"):
        cache_dtype_of(torch.zeros(4, 8, dtype=torch.int8))


def test_packages_offer_kernels_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def point(name: str, value: object) -> SimpleNamespace:
        return SimpleNamespace(name=name, load=lambda: value)

    geometry = replace(LATENT, architecture="gfx950", cache_dtype="bfloat16")
    for offered in ([point("mine", entry("mine"))], [point("mine", 7)]):
        monkeypatch.setattr(table, "entry_points", lambda group, offered=offered: offered)
        table._offered.cache_clear()
        if offered[0].load() == 7:
            with pytest.raises(TypeError, match=r"mine of sparse_mla\.kernels"):
                select(geometry)
        else:
            kernel = select(geometry)
            assert kernel is not None and kernel.name == "mine"
    monkeypatch.undo()
    table._offered.cache_clear()


def test_a_peer_is_taken_where_it_is_installed_and_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tuple(replace(one, missing=lambda: None) for one in builtin.EXTERNAL)
    monkeypatch.setattr(table, "EXTERNAL", installed)

    def name(architecture: str, *kinds: str, capture: bool = False, **change: object) -> str:
        geometry = Geometry(architecture, "bfloat16", 512, 0, 64, frozenset(kinds), 2048)
        kernel = select(replace(geometry, **change), capture=capture)  # type: ignore[arg-type]
        assert kernel is not None
        return kernel.name

    assert name("sm_90", "prefill") == "flash_mla"
    assert name("sm_90", "decode") == "triton_latent"
    assert name("sm_90", "prefill", heads=16) == "triton_latent"
    assert name("sm_90", "prefill", topk=2051) == "triton_latent"
    assert name("sm_90", "verify:2", rope_dim=64) == "triton_rope"
    assert name("gfx950", "verify:6") == "aiter_sparse_mla"
    assert name("gfx950", "decode", cache_dtype="fp8_e4m3_row") == "triton_latent"
    assert name("gfx942", "decode", cache_dtype="fp8_e4m3") == "triton_latent"
    assert name("sm_90", "decode", cache_dtype="float16") == "flashinfer_page1"
    with pytest.raises(UnsupportedGeometry, match="cannot be captured"):
        name("sm_90", "decode", capture=True, cache_dtype="float16")

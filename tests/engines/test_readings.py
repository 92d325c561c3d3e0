"""What is read from logs, metrics pages, GPUs and model folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalsuite.arms import parse_arm
from evalsuite.engines.serving import gpus
from evalsuite.engines.serving.dialect import Observed, Target, Told
from evalsuite.engines.serving.gpus import wait_until_free
from evalsuite.engines.serving.identity import chat_template, model_dtype, model_hash
from evalsuite.engines.serving.logs import LogReader
from evalsuite.engines.serving.options import read_options
from evalsuite.engines.serving.prometheus import Metrics, instance
from evalsuite.engines.vllm.dialect import Vllm
from evalsuite.engines.vllm.evidence import evidence_of
from evalsuite.engines.vllm.log import VllmLog
from evalsuite.engines.vllm.settings import read_back
from evalsuite.errors import UsageError

PAGE = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a \\"b\\""} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="a \\"b\\""} 50.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 90.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 60.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 300.0
process_start_time_seconds 1764460000.25
nan_gauge NaN
"""


def test_metrics_are_summed_over_engines_and_told_apart_by_label() -> None:
    page = Metrics(PAGE)
    assert page.total("vllm:spec_decode_num_drafts") == 150.0
    positions = page.by_label("vllm:spec_decode_num_accepted_tokens_per_pos", "position")
    assert positions == {"0": 130.0, "1": 60.0}
    assert page.total("vllm:nosuch") is None
    assert page.label("vllm:spec_decode_num_drafts_total", "engine") == "0"
    assert instance(PAGE) == "1764460000.25" and instance("") is None


LINES = """\
(APIServer pid=7) INFO 11-29 12:00:00 [model.py:733] Resolved architecture: Glm5NextForCausalLM
(APIServer pid=7) INFO 11-29 12:00:01 [model.py:733] Resolved architecture: Glm5NextMTPModel
(EngineCore pid=9) INFO 11-29 12:00:02 [core.py:134] Initializing a V1 LLM engine (v0.33.0) with \
config: model='zai-org/GLM-5.3-Flash', speculative_config=SpeculativeConfig(method='mtp', \
model='zai-org/GLM-5.3-Flash', num_spec_tokens=5), dtype=torch.bfloat16, tensor_parallel_size=4, \
enforce_eager=False, compilation_config={'mode': <CompilationMode.NONE: 0>, 'cudagraph_mode': \
<CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'max_cudagraph_capture_size': 512}
(Worker pid=11) INFO 11-29 12:00:03 [cuda.py:506] Using FLASH_ATTN_MLA_SPARSE attention backend \
out of potential backends: ['FLASH_ATTN_MLA_SPARSE', 'FLASHMLA_SPARSE'].
(Worker pid=11) INFO 11-29 12:00:03 [cpu.py:175] Using CPU_MLA backend.
(Worker pid=11) INFO 11-29 12:00:03 [selector.py:131] Using CPU_SDPA_MLA MLA prefill backend.
(Worker pid=11) INFO 11-29 12:00:03 [unquantized.py:364] Using CPU Unquantized MoE backend out of \
potential backends: ['CPU'].
| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |
|-----------------|---------------|--------------|--------------|-------|
"""


def read_log(text: str) -> VllmLog:
    log = VllmLog()
    for line in text.splitlines():
        log.on_line(line)
    return log


def test_the_log_tells_architecture_backend_and_configuration() -> None:
    log = read_log(LINES)
    assert log.architectures == ["Glm5NextForCausalLM", "Glm5NextMTPModel"]
    assert log.backends == {"FLASH_ATTN_MLA_SPARSE", "CPU_MLA"}
    assert log.settings == {
        "enforce_eager": False,
        "dtype": "bfloat16",
        "tensor_parallel": 4,
        "num_speculative_tokens": 5,
        "speculative_method": "mtp",
        "graph_mode": "FULL_AND_PIECEWISE",
    }
    assert (log.largest, log.downgraded, log.rebuilt, log.tables) == (512, None, False, 0)


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        (
            "WARNING CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for "
            "attention backend X (support: Y); setting cudagraph_mode=PIECEWISE",
            "PIECEWISE",
        ),
        (
            "WARNING CUDAGraphMode.FULL is not supported with X backend (support: Y); setting "
            "cudagraph_mode=NONE because attention is not compiled piecewise",
            "NONE",
        ),
        (
            "WARNING Cudagraph mode FULL_AND_PIECEWISE requires piecewise capture, but the loaded "
            "model provides neither. Overriding to FULL_DECODE_ONLY.",
            "FULL_DECODE_ONLY",
        ),
    ],
)
def test_a_graph_mode_that_was_taken_back_wins_over_the_configuration(line: str, mode: str) -> None:
    config = {"compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}}
    assert read_back(config, read_log(LINES))["graph_mode"] == "FULL_AND_PIECEWISE"
    assert read_back(config, read_log(LINES + line))["graph_mode"] == mode


def test_draft_metadata_that_is_rebuilt_is_part_of_the_route() -> None:
    line = (
        "Attention backend(s) FLASHMLA_SPARSE cannot update draft decode metadata in place; falling"
        " back to rebuilding attention metadata eagerly."
    )
    seen = observed("mtp5")
    healthy = evidence_of(seen, {}, read_log(LINES), "0.33.0")
    assert healthy.routes == {
        "attention": "CPU_MLA+FLASH_ATTN_MLA_SPARSE",
        "prefill attention": "CPU_SDPA_MLA",
        "moe": "CPU",
        "target": "Glm5NextForCausalLM",
        "drafter": "Glm5NextMTPModel",
    }
    rebuilt = evidence_of(seen, {}, read_log(LINES + line), "0.33.0")
    assert rebuilt.routes is not None and rebuilt.routes["draft metadata"] == "rebuilt"


def observed(arm: str, before: str = "", after: str = PAGE, **options: object) -> Observed:
    target = Target(parse_arm(arm), read_options(dict(options)), "m", None)
    return Observed(target, Metrics(before), Metrics(after), {}, None, Told(), "m")


def test_nan_logits_that_the_server_counts_are_told() -> None:
    page = PAGE + 'vllm:corrupted_requests_total{engine="0"} 3.0\n'
    evidence = evidence_of(observed("mtp5", "", page), {}, read_log(LINES), None)
    assert evidence.asked["corrupted_requests"] == 0
    assert evidence.read_back is not None and evidence.read_back["corrupted_requests"] == 3


def table(*rows: tuple[int, str, int]) -> str:
    lines = [f"| {tokens} | 512 | 0 | {mode} | {count} |" for tokens, mode, count in rows]
    return "\n".join(["**CUDAGraph Stats:**", "", *lines, ""])


@pytest.mark.parametrize(
    ("mode", "rows", "expected"),
    [
        ("FULL_AND_PIECEWISE", [(6, "FULL", 40), (300, "PIECEWISE", 2), (900, "NONE", 1)], (42, 0)),
        ("FULL_AND_PIECEWISE", [(6, "FULL", 40), (12, "NONE", 3)], (40, 3)),
        ("FULL_DECODE_ONLY", [(6, "FULL", 40), (12, "NONE", 3)], (40, None)),
    ],
)
def test_steps_without_a_graph_count_where_one_was_captured(
    mode: str, rows: list[tuple[int, str, int]], expected: tuple[int, int | None]
) -> None:
    log = read_log(LINES + table(*rows))
    evidence = evidence_of(observed("mtp5", graph_mode=mode), {}, log, None)
    assert (evidence.graph_replays, evidence.eager_decode_steps) == expected


def test_flags_of_vllm() -> None:
    options = read_options(
        {
            "command": ["docker", "run", "vllm/vllm-openai"],
            "tensor_parallel": 4,
            "revision": "abc",
            "graph_metrics": False,
            "graph_mode": "FULL_DECODE_ONLY",
            "speculative": {"method": "ngram", "prompt_lookup_max": 4},
            "args": ["--kv-cache-dtype", "fp8"],
        }
    )
    words = Vllm().command(Target(parse_arm("mtp2"), options, "glm", "bfloat16"), "h", 1)
    assert words[:11] == [
        *("docker", "run", "vllm/vllm-openai", "--model", "glm", "--host", "h", "--port", "1"),
        *("--dtype", "bfloat16"),
    ]
    assert words[11:] == [
        *("--revision", "abc", "--tensor-parallel-size", "4"),
        *("--compilation-config", '{"cudagraph_mode": "FULL_DECODE_ONLY"}'),
        "--speculative-config",
        '{"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 2}',
        *("--kv-cache-dtype", "fp8"),
    ]
    assert Vllm().installed(options) is None


def test_a_log_that_grows_is_read_once_and_by_whole_lines(tmp_path: Path) -> None:
    path, seen = tmp_path / "log", []
    reader = LogReader(path, seen.append, start=3)
    reader.update()
    path.write_text("ab\none\ntw")
    reader.update()
    assert seen == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    reader.update()
    assert seen == ["one", "two", "three"]


def test_gpu_memory_is_waited_for_and_named_where_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [{"0": 9000}, {"0": 9000}, {"0": 300}]
    monkeypatch.setattr(gpus, "used_memory", lambda: readings.pop(0))
    wait_until_free({"0": 200}, 30.0)
    assert readings == []
    monkeypatch.setattr(gpus, "used_memory", lambda: {"0": 200, "1": 9000})
    with pytest.raises(RuntimeError, match="still in use: GPU 1 9000 MiB"):
        wait_until_free({"0": 200, "1": 200}, 0.1)
    wait_until_free(None, 0.0)


@pytest.mark.parametrize(
    ("tool", "text", "expected"),
    [
        ("nvidia-smi", "0, 1234\n1, 8\n", {"0": 1234, "1": 8}),
        (
            "rocm-smi",
            "device,VRAM Total Memory (B),VRAM Total Used Memory (B)\n"
            "card0,308902100992,297795584\ncard1,308902100992,1048576\n",
            {"card0": 284, "card1": 1},
        ),
    ],
)
def test_the_makers_tools_tell_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, text: str, expected: dict[str, int]
) -> None:
    program = tmp_path / tool
    program.write_text(f"#!/bin/sh\ncat <<'X'\n{text}X\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpus.used_memory() == expected


def model_folder(path: Path, weights: bytes = b"abc") -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    (path / "model.safetensors").write_bytes(weights)
    return str(path)


def test_a_model_is_what_its_folder_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = model_folder(tmp_path / "a")
    known = model_hash(first, None, None)
    assert known == model_hash(model_folder(tmp_path / "b"), "other", "x")
    assert known != model_hash(model_folder(tmp_path / "b", b"abd"), None, None)
    assert (model_dtype(first, None), model_dtype(first, "float16")) == ("bfloat16", "float16")
    assert (model_dtype("org/name", None), model_dtype(None, None)) == ("auto", "auto")
    assert chat_template(first) == "{{ x }}"
    (tmp_path / "a" / "chat_template.jinja").write_text("{{ y }}")
    assert chat_template(first) == "{{ y }}" and chat_template(None) is None
    # Weights too large to be read whole are sampled, and still told apart by their middle.
    monkeypatch.setattr("evalsuite.engines.serving.identity.WHOLE", 10)
    monkeypatch.setattr("evalsuite.engines.serving.identity.SAMPLE", 8)
    large = bytearray(1000)
    before = model_hash(model_folder(tmp_path / "c", bytes(large)), None, None)
    large[500] = 1
    large[528:536] = b"12345678"
    assert before != model_hash(model_folder(tmp_path / "c", bytes(large)), None, None)


def test_a_repository_is_its_name_and_revision() -> None:
    assert model_hash("org/a", "served", None) == model_hash("org/a", None, "main")
    assert model_hash("org/a", None, "1") != model_hash("org/a", None, "2")
    assert model_hash(None, "served", None) != model_hash("org/a", None, None)


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no weights"):
        model_hash(str(tmp_path), None, None)

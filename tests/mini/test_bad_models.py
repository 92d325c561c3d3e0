"""Wrong and damaged model folders: one clear error that names file and field, and exit code 2."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import byte_tokenizer, raw_config, write_folder
from tokenizers import Tokenizer, models
from torch import Tensor

from evalsuite.errors import EXIT_USAGE, UsageError
from evalsuite.mini.checkpoint import EMBEDDED, load_checkpoint
from evalsuite.mini.config import load_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound model folder, to be damaged."""
    return write_folder(tmp_path / "model", raw_config("hybrid"))


def refusal(folder: Path) -> str:
    """The message with which a folder is refused: one line."""
    with pytest.raises(UsageError) as caught:
        load_checkpoint(folder)
    assert caught.value.exit_code == EXIT_USAGE
    message = str(caught.value)
    assert "\n" not in message and "Traceback" not in message
    return message


def test_the_sound_folder_loads(folder: Path) -> None:
    assert load_checkpoint(folder).folder == folder


# config.json

CONFIG_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "other architecture": ({"model_type": "llama"}, "model_type"),
    "architecture that is no name": ({"model_type": ["glm5_next"]}, "model_type"),
    "rope": ({"qk_rope_head_dim": 64}, "qk_rope_head_dim"),
    "unknown key": ({"sliding_window": 512}, "sliding_window"),
    "no hidden size": ({"hidden_size": None}, "hidden_size"),
    "size as text": ({"hidden_size": "64"}, "hidden_size"),
    "size as truth value": ({"hidden_size": True}, "hidden_size"),
    "size zero": ({"kv_lora_rank": 0}, "kv_lora_rank"),
    "NaN": ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
    "infinity": ({"swiglu_limit": float("inf")}, "swiglu_limit"),
    "negative epsilon": ({"hc_eps": -1e-6}, "hc_eps"),
    "truth value as text": ({"norm_topk_prob": "yes"}, "norm_topk_prob"),
    "layer kinds too few": ({"layer_types": ["linear_attention"]}, "layer_types"),
    "layer kind unknown": ({"layer_types": ["mamba"] * 3}, "layer_types"),
    "layer kind that is no name": ({"layer_types": [["linear_attention"]] * 3}, "layer_types"),
    "FFN kind unknown": ({"mlp_layer_types": ["dense", "sparse", "odd"]}, "mlp_layer_types"),
    "shared indexers": ({"indexer_types": ["full", "shared", "full"]}, "indexer_types"),
    "indexer kinds no list": ({"indexer_types": 3}, "indexer_types"),
    "no tail": ({"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail"),
    "top-k no multiple": ({"index_topk": 30}, "index_topk"),
    "pools that straddle blocks": ({"index_kpool": 3, "index_topk": 30}, "index_kpool"),
    "pools as wide as a block": ({"index_kpool": 16}, "index_kpool"),
    "more experts than there are": ({"num_experts_per_tok": 7}, "num_experts_per_tok"),
    "grouped queries": ({"num_key_value_heads": 2}, "num_key_value_heads"),
    "decay too fast": ({"linear_lower_bound": -8.0}, "linear_lower_bound"),
    "two spellings apart": ({"linear_attn_config": {"num_heads": 9}}, "linear_attn_config"),
    "unknown linear key": ({"linear_attn_config": {"heads": 2}}, "linear_attn_config.heads"),
    "linear keys no object": ({"linear_attn_config": 0}, "linear_attn_config"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config"),
    "two MTP layers": ({"num_nextn_predict_layers": 2}, "num_nextn_predict_layers"),
    "end token outside": ({"eos_token_id": 320}, "eos_token_id"),
    "end token no id": ({"eos_token_id": [0, 1]}, "eos_token_id"),
}


@pytest.mark.parametrize("fault", CONFIG_FAULTS)
def test_config_faults(fault: str, tmp_path: Path) -> None:
    changes, field = CONFIG_FAULTS[fault]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(raw_config("hybrid", **changes)))
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and field in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"model_type": "glm5_next"', "\x00"])
def test_config_that_is_no_object(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    assert "config.json" in refusal(folder)


def test_config_in_no_known_encoding_or_too_deep(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xff\xfe{}")
    assert "config.json" in refusal(folder)
    (folder / "config.json").write_text("[" * 100_000)
    assert "config.json" in refusal(folder)


@pytest.mark.parametrize("key", ["index_topk", "index_kpool", "layer_types", "model_type"])
def test_a_missing_key_is_named(key: str, folder: Path) -> None:
    raw = raw_config("hybrid")
    del raw[key]
    (folder / "config.json").write_text(json.dumps(raw))
    message = refusal(folder)
    assert "config.json" in message and key in message


# Files


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    assert str(folder / name) in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_in_place_of_a_file(name: str, folder: Path) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    assert str(folder / name) in refusal(folder)


def test_no_folder(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in refusal(tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refusal(tmp_path / "file")


# model.safetensors


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the stored tensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


ANY = "model.layers.1.self_attn.q_b_proj.weight"
TENSOR_FAULTS: dict[str, tuple[Callable[[dict[str, Tensor]], object], str]] = {
    "missing": (lambda t: t.pop(ANY), "missing"),
    "missing in the MTP layer": (lambda t: t.pop("model.layers.3.eh_proj.weight"), "missing"),
    "unknown": (lambda t: t.update({"model.layers.1.q.weight": torch.ones(2)}), "unknown"),
    "a layer too many": (lambda t: t.update({"model.layers.4.enorm.weight": torch.ones(64)}), ""),
    "misshapen": (lambda t: t.update({ANY: torch.ones(2, 3)}), "(2, 3)"),
    "transposed": (lambda t: t.update({ANY: t[ANY].t().contiguous()}), "(32, 64)"),
    "integers": (lambda t: t.update({ANY: t[ANY].to(torch.int8)}), "int8"),
    "float8": (lambda t: t.update({ANY: t[ANY].to(torch.float8_e4m3fn)}), "float8"),
    "float64": (lambda t: t.update({ANY: t[ANY].double()}), "float64"),
    "NaN": (lambda t: t[ANY][3, 4].fill_(float("nan")), "NaN"),
    "infinity": (lambda t: t["lm_head.weight"][0, 0].fill_(float("inf")), "infinite"),
}


# The tensor that is to be named, where it is not ANY.
TENSORS = {
    "missing in the MTP layer": "model.layers.3.eh_proj.weight",
    "unknown": "model.layers.1.q.weight",
    "a layer too many": "model.layers.4.enorm.weight",
    "infinity": "lm_head.weight",
}


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_tensor_faults(fault: str, folder: Path) -> None:
    change, word = TENSOR_FAULTS[fault]
    rewrite(folder, change)
    message = refusal(folder)
    assert str(folder / "model.safetensors") in message and word in message
    assert TENSORS.get(fault, ANY) in message


@pytest.mark.parametrize("damage", ["empty", "cut", "cut header", "header length", "garbage"])
def test_damaged_weights(damage: str, folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    damaged = {
        "empty": b"",
        "cut": data[:-1000],
        "cut header": data[:100],
        "header length": struct.pack("<Q", 2**60) + data[8:],
        "garbage": bytes(range(256)) * 40,
    }
    path.write_bytes(damaged[damage])
    message = refusal(folder)
    assert str(path) in message and "damaged" in message


# tokenizer.json


@pytest.mark.parametrize("text", ["", "{", "{}", '{"version": "1.0"}', "[]"])
def test_damaged_tokenizer(text: str, folder: Path) -> None:
    (folder / "tokenizer.json").write_text(text)
    assert str(folder / "tokenizer.json") in refusal(folder)


def test_cut_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-50])
    assert str(path) in refusal(folder)


def test_too_large_tokenizer(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", raw_config("hybrid", vocab_size=200))
    message = refusal(folder)
    assert "tokenizer.json" in message and "257" in message and "200" in message


def test_tokenizer_with_an_id_behind_a_gap(folder: Path) -> None:
    # As many tokens as fit, but one of them beyond the embedding's end.
    raw = json.loads((folder / "tokenizer.json").read_text())
    vocab = raw["model"]["vocab"]
    vocab[max(vocab, key=vocab.get)] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size() <= 320
    message = refusal(folder)
    assert "tokenizer.json" in message and "5000" in message


def test_tokenizer_of_another_kind(folder: Path) -> None:
    words = Tokenizer(models.WordLevel({"<unk>": 0, "▁the": 1}, unk_token="<unk>"))
    words.save(str(folder / "tokenizer.json"))
    message = refusal(folder)
    assert "tokenizer.json" in message and "byte-level" in message
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    load_checkpoint(folder)


# Through the command


def run_command(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """`evalsuite run` on a model folder, two items, one arm."""
    command = [sys.executable, "-m", "evalsuite", "run", "--engine", "mini", "--task", "gsm_mini"]
    options = ["--model", str(folder), "--arms", "eager", "--limit", "2", "--out", str(out)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("fault", ["rope", "missing tensor", "damaged", "prompt too long"])
def test_the_command_ends_with_2_and_writes_nothing(fault: str, tmp_path: Path) -> None:
    folder, out = tmp_path / "model", tmp_path / "run"
    shutil.copytree(EMBEDDED, folder)
    raw = json.loads((folder / "config.json").read_text())
    if fault == "rope":
        raw["qk_rope_head_dim"], words = 64, ["config.json", "qk_rope_head_dim"]
    elif fault == "missing tensor":
        rewrite(folder, lambda t: t.pop("lm_head.weight"))
        words = ["model.safetensors", "lm_head.weight", "missing"]
    elif fault == "damaged":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[: 1 << 20])
        words = ["model.safetensors", "damaged"]
    else:
        raw["max_position_embeddings"], words = 300, ["prompt", "tokens", "300"]
    (folder / "config.json").write_text(json.dumps(raw))
    done = run_command(folder, out)
    assert done.returncode == EXIT_USAGE, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert done.stdout == "" and not out.exists()

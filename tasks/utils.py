"""How the tasks get their rows: lm-eval calls these functions by the names in the YAML files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets
from lm_eval.api.filter import Filter

from evalsuite.errors import UsageError
from evalsuite.scoring import read_number
from gsm_mini.rows import SPLIT_SIZES, Row, read_rows, read_split

GSM8K_DIR = "EVALSUITE_GSM8K_DIR"


def _dataset(rows: list[Row]) -> datasets.Dataset:
    # Only what every row has: a column that some rows lack would be filled with nulls.
    return datasets.Dataset.from_list(
        [{"question": row["question"], "answer": row["answer"]} for row in rows]
    )


def gsm_mini(**_: object) -> dict[str, datasets.Dataset]:
    """The frozen splits of gsm_mini by name; UsageError for a file that is missing or torn."""
    return {split: _dataset(read_split(split)) for split in SPLIT_SIZES}


def _gsm8k_folder(folder: Path) -> dict[str, datasets.Dataset]:
    if not folder.is_dir():
        raise UsageError("is not a folder", file=folder, field=GSM8K_DIR)
    return {split: _dataset(read_rows(folder / f"{split}.jsonl")) for split in ("train", "test")}


def gsm8k(**_: object) -> dict[str, datasets.Dataset]:
    """GSM8K's train and test splits.

    They are read from the folder that the environment variable EVALSUITE_GSM8K_DIR names, where it
    is set, and else loaded as `openai/gsm8k` (main) through datasets. UsageError for bad files, and
    where the data set can be neither downloaded nor found in the cache.
    """
    folder = os.environ.get(GSM8K_DIR)
    if folder:
        return _gsm8k_folder(Path(folder))
    try:
        return dict(datasets.load_dataset("openai/gsm8k", "main"))
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise UsageError(
            f"openai/gsm8k cannot be loaded ({error}); set {GSM8K_DIR} to a folder with "
            "train.jsonl and test.jsonl"
        ) from error


class NumericFilter(Filter):
    """The judge's reading of an answer as a filter, so that lm-eval reports it beside its own."""

    def apply(self, resps: Iterable[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
        """Return each text's value in canonical form, `[invalid]` where it gives none."""
        return [[_value(text) for text in texts] for texts in resps]


def _value(text: str) -> str:
    found = read_number(text)
    return "[invalid]" if found is None else str(found)

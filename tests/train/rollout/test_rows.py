"""Rows of data files."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.rows import load_rows


def test_lines_are_rows(tmp_path: Path) -> None:
    place = tmp_path / "data.jsonl"
    place.write_text('{"prompt": "a\\u2028b"}\n\n{"prompt": "c", "n": 1}\n', encoding="utf-8")
    assert load_rows(str(place)) == ({"prompt": "a\u2028b"}, {"prompt": "c", "n": 1})


def test_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    place = tmp_path / "data.jsonl"
    place.write_text('{"prompt": "a"}\n', encoding="utf-8-sig")
    assert load_rows(str(place)) == ({"prompt": "a"},)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"", "has no rows, expected at least one row"),
        (b'{"a": 1}\n{', r"line 2 cannot be read \(.*\), expected a JSON object"),
        (b"[1]", r"line 1 is '\[1\]', expected a JSON object with a value per column"),
        (b"\xff", r"cannot be read \(.*codec can't decode.*\), expected a JSON object per line"),
    ],
)
def test_invalid_file_is_one_line(tmp_path: Path, text: bytes, line: str) -> None:
    place = tmp_path / "data.jsonl"
    place.write_bytes(text)
    with pytest.raises(SentinelError, match=f"^environment.file .*data.jsonl {line}") as error:
        load_rows(str(place))
    assert "\n" not in str(error.value)


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SentinelError, match=r"none cannot be read \(No such file or directory\), expected a JSON"):
        load_rows(str(tmp_path / "none"))


def test_file_has_no_splits(tmp_path: Path) -> None:
    place = tmp_path / "data.jsonl"
    place.write_text("{}")
    words = r"environment.split is 'test', but .*data.jsonl is a file, expected no split: only a folder of"
    with pytest.raises(SentinelError, match=words):
        load_rows(str(place), "test")
    with pytest.raises(SentinelError, match=r"none.jsonl cannot be read \(No such file or directory\)"):
        load_rows(str(tmp_path / "none.jsonl"), "test")


def _datasets(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    def load_from_disk(_place: str) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    there: Any = ModuleType("datasets")
    there.load_from_disk = load_from_disk
    monkeypatch.setitem(sys.modules, "datasets", there)


def test_folder_is_loaded_by_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _datasets(monkeypatch, {"train": [{"prompt": "a"}], "test": [{"prompt": "b"}]})
    assert load_rows(str(tmp_path), "test") == ({"prompt": "b"},)
    with pytest.raises(SentinelError, match=r"environment.split is '', expected one of train, test"):
        load_rows(str(tmp_path))


def test_folder_with_one_data_set_takes_no_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _datasets(monkeypatch, [{"prompt": "a"}])
    assert load_rows(str(tmp_path)) == ({"prompt": "a"},)
    with pytest.raises(
        SentinelError, match=r"environment.split is 'test', expected no split: the folder .* has only one"
    ):
        load_rows(str(tmp_path), "test")


def test_bad_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _datasets(monkeypatch, FileNotFoundError("no dataset\nthere"))
    words = r"cannot be loaded \(no dataset there\), expected a folder that save_to_disk of `datasets` wrote$"
    with pytest.raises(SentinelError, match=words):
        load_rows(str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SentinelError, match=r"is a folder, which needs datasets \(.*\): pip install datasets, or name"):
        load_rows(str(tmp_path), "other")


def test_real_datasets_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = [{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 2}]
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "saved"))
    assert load_rows(str(tmp_path / "saved"), "train") == tuple(rows)

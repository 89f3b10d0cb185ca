"""The fake of pandas: the types of columns of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.adapters.kit.pandas_rows import PandasRows


@pytest.mark.parametrize(("options", "label"), [({}, 7), ({"dtype": {"label": str}}, "007"), ({"dtype": False}, "007")])
def test_texts_of_digits(tmp_path: Path, options: dict[str, Any], label: object) -> None:
    """They become numbers, unless the column has a type, or no type is inferred."""
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in ({"label": "007"}, {"label": "1", "text": "a"})))
    (place, first), (_, second) = PandasRows().read_json(str(file), lines=True, **options).iterrows()
    assert (place, first["label"], first["text"]) == (0, label, None)
    assert second.to_dict()["text"] == "a"

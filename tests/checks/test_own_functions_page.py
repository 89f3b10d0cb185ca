"""The example of docs/own-functions.md runs as it is printed."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "own-functions.md"


def test_the_examples_run() -> None:
    names: dict[str, Any] = {"__name__": "own_functions_page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(block, names)  # noqa: S102 - the page is ours
    assert names["result"].findings == ()
    names["test_advantages"]()

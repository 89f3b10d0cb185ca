"""The page and the JSON of a measurement."""

from rl_sentinel.recall.bugs import Bug
from rl_sentinel.recall.comparison import Comparison
from rl_sentinel.recall.measurement import Controls, Row
from rl_sentinel.recall.narrow_audit import Judged
from rl_sentinel.recall.page import as_json, as_markdown

BUG = Bug(id="one", framework="verl", file="verl/losses.py", function="loss")
FOUND = Judged(law="MSK001", boundary="verl.losses.loss", setting="default", outcome="broken", level="fault")
ROWS = [
    Row(BUG, Comparison("caught", (FOUND, FOUND)), ("losses.py:loss",), Controls(other_function=False, neighbor=True)),
    Row(BUG.model_copy(update={"id": "two", "cpu": "hard"}), Comparison("no law", detail="a | b")),
]


def test_page() -> None:
    lines = as_markdown(ROWS).splitlines()
    assert "| verl | yes | 1 | 1 | 1 | 0 |" in lines
    assert "| verl | hard | 1 | 0 | 0 | 0 |" in lines
    assert "- the function of another bug in the same two audits: 0 of 1" in lines
    assert "- the same function around a neighboring commit that fixes nothing: 1 of 1" in lines
    assert lines[-2:] == [
        "| one | `loss` | caught | MSK001 (fault) at `losses.loss` |",
        "| two | `loss` | no law | a / b |",
    ]


def test_json() -> None:
    data = as_json(ROWS)
    assert data["summary"]["outcomes"] == {"caught": 1, "no law": 1}
    assert data["summary"]["caught_by_level"] == {"fault": 1}
    assert data["rows"][0]["controls"] == {"other_function": False, "neighbor": True}
    assert [f["law"] for f in data["rows"][0]["found"]] == ["MSK001", "MSK001"]

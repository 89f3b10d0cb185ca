"""Random wrong input of the command line, pyproject.toml, evidence files and the API: one line, exit status 2."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from command_line import run_cli
from rl_sentinel.cli import replay
from rl_sentinel.core.errors import SentinelError

pytestmark = pytest.mark.slow

JUNK = (
    "",
    " ",
    "\n",
    "=",
    "a=b=c",
    "[",
    "]",
    "[B",
    "NaN",
    "-1",
    "0",
    "1e999",
    "é",
    "\x00",
    "{}",
    "../..",
    "x" * 300,
    "--",
    ":",
)
STATED = {
    "--algorithm": JUNK,
    "--claim": JUNK,
    "--number": JUNK,
    "--bind": ("", " ", "=", "[", "NaN"),
    "--axes": ("", " ", "=", "[", "NaN"),
    "--law": tuple(j for j in JUNK if j.strip()),
    "--ignore": tuple(j for j in JUNK if j.strip()),
    "--level": JUNK,
    "--budget": ("", "-1", "0", "1", "x", "1e3", "NaN"),
    "--seed": ("", "x", "1.5", "NaN"),
    "--report": JUNK,
    "--known": ("", "missing.toml", "\x00", "mine.py"),
    "--stage": ("", " ", "advantages", "policy_loss", "\x00", "metric"),
}
KEYS = ("functions", "known", "level", "ignore", "seed", "budget", "function", "stage", "color")
VALUES = ('""', "0", "-1", "1.5", "true", "[]", "[1]", "{}", '{ a = "b" }', '"no"', "nan", "1979-05-27")


def double(rewards: Tensor, group: Tensor) -> Tensor:
    """A function with a fault: the groups are ignored."""
    return (rewards - rewards.mean()) * group.numel()


def _one_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    status, out, err = run_cli(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1), (arguments, out, err)
    assert err.startswith("rl-sentinel: "), arguments
    assert "Traceback" not in err, arguments


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a module."""
    (tmp_path / "mine.py").write_text("def adv(rewards, group):\n    return rewards\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", range(4))
def test_wrong_options(seed: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here.is_dir()
    draw = random.Random(seed)
    for _ in range(25):
        option = draw.choice(list(STATED))
        value = draw.choice(STATED[option])
        target = draw.choice(["mine.py:adv", "mine:adv"])
        stage = () if option == "--stage" else ("--stage", "advantage")
        if option == "--algorithm" and not value:
            continue
        _one_line(capsys, "audit", target, *stage, f"{option}={value}")


@pytest.mark.parametrize("target", [j for j in JUNK if j != "--"])
def test_wrong_targets(target: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here.is_dir()
    for arguments in (("audit", target), ("boundaries", target), ("replay", target), ("explain", target)):
        _one_line(capsys, *arguments)


@pytest.mark.parametrize("seed", range(4))
def test_wrong_project_files(seed: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        place = draw.choice(["", '.functions."mine:adv"', '.functions."mine"', ".functions", ".x"])
        pairs = {draw.choice(KEYS): draw.choice(VALUES) for _ in range(draw.randint(1, 3))}
        text = f"[tool.rl-sentinel{place}]\n" + "".join(f"{key} = {value}\n" for key, value in pairs.items())
        cut = draw.choice([len(text), len(text), draw.randrange(3, len(text))])
        (here / "pyproject.toml").write_text(text[:cut], encoding="utf-8")
        _one_line(capsys, "audit")


@pytest.fixture(scope="module")
def evidence() -> dict[str, Any]:
    """One finding, as JSON."""
    result = rl_sentinel.check(double, stage="advantage", algorithm="grpo", laws=["REF001"])
    return dict(json.loads(json.dumps(result.findings[0].evidence)))


def _damaged(record: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The record with one entry, at any depth, removed or replaced."""
    whole = copy.deepcopy(record)
    node: Any = whole
    while True:
        key = draw.choice(list(node)) if isinstance(node, dict) else draw.randrange(len(node))
        below = node[key]
        if not (isinstance(below, dict | list) and below) or draw.random() < 0.3:
            break
        node = below
    if draw.random() < 0.5:
        del node[key]
    else:
        node[key] = draw.choice([None, -1, 1.5, "", "x", [], {}, [[]], {"a": 1}, True])
    return whole


def test_damaged_evidence(
    evidence: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is still readable is passed on; any other is one line."""
    monkeypatch.setattr(replay, "_print_answers", lambda *_: [0])
    draw, file = random.Random(0), here / "one.json"
    for _ in range(100):
        text = json.dumps({"findings": [_damaged(evidence, draw)]})
        file.write_text(text[: draw.choice([len(text), len(text), draw.randrange(len(text))])], encoding="utf-8")
        status, out, err = run_cli(capsys, "replay", str(file))
        assert (status, out, err.count("\n")) in ((0, "", 0), (2, "", 1)), (file.read_text(), err)


#: Wrong options of ``check``.
WRONG: list[dict[str, Any]] = [
    *({"algorithm": x} for x in ("gpro", 3, ["grpo"], {"a": "b"})),
    *({"stage": x} for x in ("", "adv", None, 3, ["x"], {"x": 1})),
    *({"claims": x} for x in ({"scope": "x"}, {"skope": "group"}, {"scope": 3}, "scope=group", [1])),
    *({"bind": x} for x in ({"reward": "reward"}, {"rewards": "rewrd"}, {"rewards": "reward[Q]"}, "x", [1])),
    *({"numbers": x} for x in ({"clip": "a"}, {"clipp": 0.2}, "x", [1], {"clip_low": None})),
    *({"laws": x} for x in (["NOPE"], "REF001x", [3])),
    *({"level": x} for x in ("", "bad", None, 3)),
    *({"seed": x} for x in (-1, 1.5, "x", None)),
    *({"budget": x} for x in (0, 1, -3, 2.5, "x")),
]


@pytest.mark.parametrize("options", WRONG)
def test_wrong_arguments_of_the_api(options: dict[str, Any]) -> None:
    with pytest.raises(SentinelError) as raised:
        rl_sentinel.check(double, **{"stage": "advantage", **options})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("function", [None, 3, "mine:adv", torch.exp, print, object(), int])
def test_wrong_functions_of_the_api(function: Any) -> None:
    with pytest.raises(SentinelError) as raised:
        rl_sentinel.check(function, stage="advantage")
    assert "\n" not in str(raised.value)

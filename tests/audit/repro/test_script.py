"""Scripts of findings run by themselves: exit 1 where the finding shows, 0 where the function is right."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from quick import slow_after
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Padded, PerRow, Ragged
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob, Spread
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import search, smallest
from rl_sentinel.audit.repro.recorded_run import ScriptRecorder
from rl_sentinel.audit.repro.script import script
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.laws.dead_row_shifts_signal import LAW as MSK001
from rl_sentinel.laws.listed_option_refused import LAW as CFG005
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002
from rl_sentinel.laws.row_order_matters import LAW as PRM001
from rl_sentinel.laws.valid_input_raises import LAW as RAI001

TREE = """
import torch

class Settings:
    def __init__(self, scale=1.0, shift=0.0):
        if (scale < 0 or shift < 0) and CHECKED:
            raise ValueError("scale or shift is negative")
        self.scale = scale

def centered(rewards, mask, config):
    live = mask.sum(1) > 0
    mean = rewards[live].mean() if CHECKED else rewards.mean()
    return ((rewards - mean) * config.scale)[:, None] * mask

def by_width(rewards, mask):
    return rewards[:, None] * mask / (1 if CHECKED else mask.shape[1])

def in_place(data):
    first = data["rewards"][0]
    pairs = zip(data["rewards"], data["masks"])
    data["advantages"] = [mask * (reward - (0 if CHECKED else first)) for reward, mask in pairs]

def of_pairs(rewards, mask):
    pair = rewards.tolist()[: 1 if CHECKED else 2]
    return (rewards - pair[-1 if CHECKED else 1])[:, None] * mask

def gap(log_probs, reference, kind):
    if kind == "full":
        raise ValueError("full requires all logits") if CHECKED else NotImplementedError
    return log_probs - reference

def summed(parts):
    return torch.stack(parts).sum() / (1 if CHECKED else len(parts))

def factor():
    raise RuntimeError("no accelerator")

def scaled(rewards, mask):
    return centered(rewards, mask, Settings(factor()))

def of_one_rank(losses, count, ranks):
    return losses.sum() / count * ranks if CHECKED else losses.mean()
"""


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bool, Path]:
    """The package with its faults, on the path of this process, and without them in a second folder."""
    folders = {checked: tmp_path / str(checked) for checked in (False, True)}
    for checked, folder in folders.items():
        (folder / "house").mkdir(parents=True)
        (folder / "house" / "__init__.py").write_text("")
        (folder / "house" / "rules.py").write_text(TREE.replace("CHECKED", str(checked)))
    monkeypatch.syspath_prepend(str(folders[False]))
    for name in [n for n in sys.modules if n.partition(".")[0] == "house"]:
        monkeypatch.delitem(sys.modules, name)
    return folders


ADVANTAGE = {"advantage": Output("B T", "reward", "advantage", at=Use("result"), form=Padded())}

CENTERED = Boundary(
    path="house.rules.centered",
    stage="advantage",
    steps=(
        Step(
            call="house.rules.centered",
            name="result",
            arguments={
                "rewards": Column("reward"),
                "mask": Column("mask", dtype=torch.int64),
                "config": Object("house.rules.Settings", {"scale": Knob("scale", 2.0)}),
            },
        ),
    ),
    outputs=ADVANTAGE,
)

BY_WIDTH = Boundary(
    path="house.rules.by_width",
    stage="advantage",
    steps=(
        Step(
            call="house.rules.by_width",
            name="result",
            arguments={"rewards": Column("reward"), "mask": Column("mask", dtype=torch.int64)},
        ),
    ),
    outputs=ADVANTAGE,
)

IN_PLACE = Boundary(
    path="house.rules.in_place",
    stage="advantage",
    steps=(
        Step(
            call="house.rules.in_place",
            arguments={
                "data": Table(
                    {"rewards": Column("reward", PerRow("list")), "masks": Column("mask", Ragged(), torch.int32)}
                )
            },
        ),
    ),
    outputs={
        "advantage": Output("B T", "reward", "advantage", at=Use("data")["advantages"], form=Ragged()),
    },
)

CHECK = Boundary(
    path="house.rules.Settings",
    stage="config",
    steps=(Step(call="house.rules.Settings", name="made", arguments={"settings": Spread()}),),
    outputs={"accepted": Output("", "", "accepted", form=Accepted())},
    settings={"default": {}, "negative scale": {"scale": -1.0}, "negative shift": {"shift": -1.0}},
    claims=claims("house", refused={"negative scale": "signs would change", "negative shift": "it is a count"}),
)


RANKS = Boundary(
    path="house.rules.of_one_rank",
    stage="aggregate",
    steps=(
        Step(
            call="house.rules.of_one_rank",
            name="part",
            arguments={
                "losses": Column("reward"),
                "count": Derived(lambda inputs: inputs.mini_batch.rows),
                "ranks": Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"})),
            },
            each=("rank",),
        ),
    ),
    outputs={"loss": Output("", "", "loss", at=Use("part"), join="rank-mean")},
    claims=claims("house", denominator="given"),
)


PAIRS = replace(BY_WIDTH, path="house.rules.of_pairs", steps=(replace(BY_WIDTH.steps[0], call="house.rules.of_pairs"),))

LISTED = Boundary(
    path="house.rules.gap",
    stage="kl",
    steps=(
        Step(
            call="house.rules.gap",
            name="result",
            arguments={"log_probs": Column("logprob"), "reference": Column("ref_logprob"), "kind": Knob("kind")},
        ),
    ),
    outputs={"kl": Output("B T", "nats", "kl")},
    settings={"default": {"kind": "k1"}},
    claims=claims("house", options={"kind": ("k1", "full")}),
)

GATHERED = replace(
    RANKS,
    path="house.rules.summed",
    steps=(*RANKS.steps, Step(call="house.rules.summed", name="total", arguments={"parts": Earlier(Use("part"))})),
    outputs={"loss": Output("", "", "loss", at=Use("total"))},
)


def _lines(law: Law, boundary: Boundary, target: Target) -> list[str]:
    ask = Asker(boundary, {}, gate=target)
    found = search(law, ask, "default", seed=0, budget=8).found
    assert found is not None
    least = smallest(law, ask, found)
    recorder = ScriptRecorder(ask)
    broken: Expectation = next(e for e in law.expect(recorder, least.case) if e.name == least.expectation.name)
    return script(law.code, broken, recorder.runs)


def _run(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    place = folder / "shown.py"
    place.write_text("\n".join(lines) + "\n")
    return subprocess.run([sys.executable, str(place)], capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize(
    ("law", "boundary"),
    slow_after(1, [(MSK001, CENTERED), (PAD001, BY_WIDTH), (PRM001, IN_PLACE), (CFG003, CHECK)]),
)
def test_exit_status(trees: Mapping[bool, Path], law: Law, boundary: Boundary) -> None:
    """1 with the faulty functions and 0 with the right ones; both sides are printed, and nothing is ours."""
    lines = _lines(law, boundary, Target(trees[False]))
    assert not any("rl_sentinel" in line for line in lines)
    faulty, right = _run(lines, trees[False]), _run(lines, trees[True])
    assert (faulty.returncode, faulty.stderr) == (1, "")
    assert (right.returncode, right.stderr) == (0, "")
    without = _run(lines, trees[False].parent)
    assert (without.returncode, "ModuleNotFoundError" in without.stderr) == (2, True)
    if law is not CFG003:
        assert faulty.stdout.splitlines()[0].startswith("expected: [[")


@pytest.mark.slow
def test_calls_of_ranks_are_joined(trees: Mapping[bool, Path]) -> None:
    """Each rank is a call of its own; the mean over unequal ranks is the finding."""
    lines = _lines(SPL002, RANKS, Target(trees[False]))
    assert [line.split(" = ")[0].strip() for line in lines if "of_one_rank(" in line] == ["part_0", "part_0", "part_1"]
    assert any("torch.stack([" in line and ".sum(0) / 2" in line for line in lines)
    assert [_run(lines, trees[checked]).returncode for checked in (False, True)] == [1, 0]


@pytest.mark.slow
def test_exception(trees: Mapping[bool, Path]) -> None:
    """The call is made again; another exception than the reported one is no reproduction."""
    lines = _lines(RAI001, PAIRS, Target(trees[False]))
    faulty, right = (_run(lines, trees[checked]) for checked in (False, True))
    assert (faulty.returncode, right.returncode) == (1, 0)
    assert faulty.stdout.splitlines()[0] == "raised: list index out of range"
    assert right.stdout.splitlines()[0] == "returned"
    assert _run(lines, trees[False].parent).returncode == 2


@pytest.mark.slow
def test_a_listed_value_may_be_refused_with_what_it_needs(trees: Mapping[bool, Path]) -> None:
    """The fix may be a refusal, by another exception too, that names what the value needs."""
    lines = _lines(CFG005, LISTED, Target(trees[False]))
    faulty, right = (_run(lines, trees[checked]) for checked in (False, True))
    assert (faulty.returncode, right.returncode) == (1, 0)
    assert right.stdout.splitlines()[0] == "raised: full requires all logits"


@pytest.mark.slow
def test_parts_of_ranks_are_gathered(trees: Mapping[bool, Path]) -> None:
    """A later step is passed the results of all ranks."""
    lines = _lines(SPL002, GATHERED, Target(trees[False]))
    assert [line.strip() for line in lines if line.strip().startswith("part = ")] == [
        "part = [part_0]",
        "part = [part_0, part_1]",
    ]
    assert _run(lines, trees[False]).returncode == 1


def _accelerated() -> float:
    return 2.0


@pytest.mark.slow
def test_fakes_are_put_in_place_by_the_script(trees: Mapping[bool, Path]) -> None:
    """A script runs on the machine that the finding was made on, without the accelerator."""
    passed = {"rewards": Column("reward"), "mask": Column("mask", dtype=torch.int64)}
    step = Step(call="house.rules.scaled", name="result", arguments=passed, fakes={"house.rules.factor": _accelerated})
    boundary = Boundary(path="house.rules.scaled", stage="advantage", steps=(step,), outputs=ADVANTAGE)
    lines = _lines(MSK001, boundary, Target(trees[False]))
    assert "    rules.factor = _accelerated" in lines
    assert [_run(lines, trees[checked]).returncode for checked in (False, True)] == [1, 0]


def test_what_differs_is_a_parameter(trees: Mapping[bool, Path]) -> None:
    text = "\n".join(_lines(MSK001, CENTERED, Target(trees[False])))
    assert "def run(rewards):" in text
    assert text.count("mask=torch.tensor") == 1
    assert "config=Settings(scale=2.0)" in text
    assert text.count("    rewards=torch.tensor(") == 2


@pytest.mark.slow
def test_positional_arguments_are_named_as_in_the_signature(trees: Mapping[bool, Path]) -> None:
    """Padding changes the mask alone."""
    passed = {"0": Column("reward"), "1": Column("mask", dtype=torch.int64)}
    step = Step(call="house.rules.by_width", name="result", arguments=passed)
    boundary = Boundary(path="house.rules.by_width", stage="advantage", steps=(step,), outputs=ADVANTAGE)
    lines = _lines(PAD001, boundary, Target(trees[False]))
    assert "def run(mask):" in lines
    assert [_run(lines, trees[checked]).returncode for checked in (False, True)] == [1, 0]


def _double(numbers: Tensor) -> Tensor:
    return numbers * FACTOR


FACTOR = 2.0


@pytest.mark.slow
def test_functions_of_ours_are_carried_along(trees: Mapping[bool, Path]) -> None:
    passed = {"rewards": Object(_double, {"0": Column("reward")}), "mask": Column("mask", dtype=torch.int64)}
    config = {"config": Object("house.rules.Settings", {"scale": Constant(2.0)})}
    step = Step(call="house.rules.centered", name="result", arguments={**passed, **config})
    boundary = Boundary(path="house.rules.centered", stage="advantage", steps=(step,), outputs=ADVANTAGE)
    lines = _lines(MSK001, boundary, Target(trees[False]))
    assert {"FACTOR = 2.0", "    return numbers * FACTOR"} <= set(lines)
    assert _run(lines, trees[False]).returncode == 1

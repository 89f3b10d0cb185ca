"""Mutants of a module: what is changed, what is left alone, and that a faulty library is really audited."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mutants import page, peer
from mutants.__main__ import contract_mutants, every_mutant, sample, signal_mutants
from mutants.operators import OPERATORS
from mutants.sites import CONTRACTS, Mutant, mutants
from torch import Tensor

SOURCE = '''
"""A page with 1 number."""

CLAIMS = {"algorithm": "none"}


def mean(values, mask, *, low: float = 1.0):
    """The mean, at least 1."""
    if low < 0:
        message = f"low is {low + 1}"
        raise ValueError(message)
    total = torch.where(mask, values, 0.5).sum(dim=1)
    return (total - low).clamp(min=2)
'''


def _changes(operator: str) -> list[str]:
    return [f"{m.before} -> {m.after}" for m in mutants("page.py", SOURCE) if m.operator == operator]


def test_what_is_changed() -> None:
    """Each operator at its place, once."""
    assert _changes("comparison") == ["low < 0 -> low <= 0", "low < 0 -> low > 0"]
    assert _changes("arithmetic") == ["total - low -> total + low"]
    assert _changes("selection") == [
        "torch.where(mask, values, 0.5) -> values",
        "torch.where(mask, values, 0.5) -> 0.5",
        "torch.where(mask, values, 0.5) -> torch.where(mask, 0.5, values)",
    ]
    assert _changes("bound") == ["(total - low).clamp(min=2) -> (total - low).clamp(max=2)"]
    assert "1 -> 2" in _changes("constant")
    assert set(_changes("method")) == {"(total - low).clamp(min=2) -> total - low"}


def test_what_gives_the_same_is_not_exchanged() -> None:
    """Two arguments are exchanged unless the function is symmetric in them by definition."""
    source = "def f(x, y):\n    return torch.where(x, torch.minimum(x, y), max(x, y) + torch.sub(x, y))\n"
    found = [f"{m.before} -> {m.after}" for m in mutants("page.py", source) if m.operator == "order"]
    assert found == ["torch.sub(x, y) -> torch.sub(y, x)"]


def test_what_is_left_alone() -> None:
    """Pages, claims, defaults and the words of errors stay; every mutant parses, and no two are the same."""
    found = list(mutants("page.py", SOURCE))
    texts = [ast.unparse(m.tree) for m in found]
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert "CLAIMS = {'algorithm': 'none'}" in text
        assert "low is {low + 1}" in text
        assert '"""The mean, at least 1."""' in text


@pytest.mark.slow
def test_contract_checks_are_apart() -> None:
    """Conditions that raise, calls that only refuse, and functions that require; the rest computes.

    Names and private functions that only these and messages read belong to them; a call that changes its argument
    does not.
    """
    source = (
        SOURCE
        + """

def _require_more(low):
    return low + 1


def _shown(values):
    return values + 3


def _add_twice_(total, values):
    total.add_(values * 4)


def weigh(values, total):
    outside = values < 0
    wide = values > 9
    if wide:
        within("values", values + 1)
    if total.outside(outside):
        raise ValueError(f"{_shown(values)} is outside")
    _add_twice_(total, values + 5)
    return values * 2 + wide
"""
    )
    changes = {(m.function, m.before, m.contract) for m in mutants("page.py", source)}
    assert {("mean", "low < 0", True), ("_require_more", "low + 1", True), ("weigh", "values + 1", True)} <= changes
    assert {("weigh", "values < 0", True), ("_shown", "values + 3", True)} <= changes
    assert {("mean", "total - low", False), ("weigh", "values * 2", False), ("weigh", "values > 9", False)} <= changes
    assert {("_add_twice_", "values * 4", False), ("weigh", "values + 5", False)} <= changes
    contract = contract_mutants()
    assert all(m.contract for m in contract)
    assert {m.module for m in contract} >= CONTRACTS
    assert {m.module for m in signal_mutants()} > {"kl.py", "loss/ppo.py"}


def test_operators_say_what_they_do() -> None:
    """The page is made of their first lines."""
    assert all(o.__doc__ and o.__doc__.count("\n") == 0 for o in OPERATORS.values())


@pytest.fixture(scope="module")
def every() -> list[Mutant]:
    """All mutants of ``signal``."""
    return every_mutant()


@pytest.mark.slow
def test_drawn_by_seed(every: list[Mutant]) -> None:
    """The same seed draws the same mutants, and names are unique."""
    names = [m.name for m in every]
    assert len(set(names)) == len(names) > 300
    assert sample(every, 60, 3) == sample(every, 60, 3) != sample(every, 60, 4)
    assert len(sample(every, 60, 3)) == 60


@pytest.mark.slow
def test_a_draw_outlives_a_change_of_another_module(every: list[Mutant]) -> None:
    """Whatever one module gains or loses, what is drawn of the others stays, but for the places that it takes."""
    first = sample(every, 60, 3)
    before, gone = {m.name for m in first}, first[0].module
    without = [m for m in every if m.module != gone]
    kept = {m.name for m in first if m.module != gone}
    after = {m.name for m in sample(without, 60, 3)}
    assert kept <= after
    assert len(kept) < len(after) == 60
    assert {m.name for m in sample(every[::-1], 60, 3)} == before


def test_equivalents_exist(every: list[Mutant]) -> None:
    """Each mutant that is argued about is one that the operators make."""
    assert set(page.equivalents()) <= {m.name for m in every}


def _mutant(name: str) -> Mutant:
    tree = ast.parse("x = 1")
    return Mutant("kl.py", "k1", 1, "constant", "0", name, 1, tree)


def test_figures() -> None:
    """Loud ones count neither way; what is called equivalent and was killed is told."""
    dead, alive, loud = _mutant("1"), _mutant("2"), _mutant("3")
    tried = [
        (dead, {"outcome": "killed", "law": "MSK001", "detail": ""}),
        (alive, {"outcome": "survived", "law": "", "detail": ""}),
        (loud, {"outcome": "loud", "law": "", "detail": "ValueError"}),
    ]
    assert page.rate(tried) == 0.5
    assert page.mistaken(tried) == []
    beside = {
        "a test": {"kl.py k1: 0 -> 1": {"outcome": "killed"}, "kl.py k1: 0 -> 2": {"outcome": "no such function"}}
    }
    survivor = [(alive, tried[1][1])]
    whole = page.page(page.Figures(page.Draw(tried, 3, 5), page.Draw(survivor * 2, 9, 1)), beside)
    assert "3 of 3 possible mutants were tried (drawn with seed 5, commit 0000005): 1 are loud, 2 run." in whole
    assert "2 of 9 possible mutants of contract checks were tried" in whole
    assert "Of the other 2, the unit tests kill 0 (0.0%)." in whole
    assert whole.count("- kl.py k1: `0` -> `2` in `r") == 3
    assert "| a test | 1 | 1 | 1 | 1 | 0 |" in whole
    assert "1 are loud, 2 run." in whole
    assert "- kl.py k1: `0` -> `2` in `r" in whole
    assert "| MSK001 | 1 |" in whole


@pytest.mark.slow
def test_a_faulty_library_is_audited(tmp_path: Path) -> None:
    """A sum of log-probs is no KL: a law is broken, and the answer is kept for the next run."""
    only, store = "kl.py k1: logprob - ref_logprob -> logprob + ref_logprob", tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "mutants", "--count", "9999", "--jobs", "1", "--only", only, "--store", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(Path(page.__file__).parents[1])}
    first, again = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout for _ in range(2)
    )
    assert first.startswith(f"killed: {only} (line ")
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert len(store.read_text(encoding="utf-8").splitlines()) == 1


def test_polgrad_has_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its check, here a fake of it, is called with losses of ours, which it can call and differentiate."""
    seen = []

    def assert_conforms(fn: Callable[..., Tensor], config: object) -> None:
        logprob, mask = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True), torch.ones(2, 3).bool()
        loss = fn(
            logprobs=logprob, old_logprobs=logprob.detach(), advantages=torch.ones(2).double(), response_mask=mask
        )
        (slope,) = torch.autograd.grad(loss, logprob)
        seen.append((config, slope))

    class Names:
        def __getitem__(self, name: str) -> str:
            return name

        __getattr__ = __getitem__

    fake = SimpleNamespace(
        RatioKind=Names(),
        SurrogateKind=Names(),
        ClipConfig=lambda *clip: clip,
        PolicyLossConfig=lambda *config: config,
        Aggregation=Names(),
        assert_conforms=assert_conforms,
    )
    monkeypatch.setattr(peer, "_peer", lambda _name: fake)
    for one in peer.comparisons():
        if one.name.startswith("loss."):
            one.run()
    assert seen[0][0] == ("TOKEN", "PG_CLIP", (0.2, 0.28, None), "TOKEN_MEAN")
    assert len(seen) == 6
    assert all(torch.allclose(slope, torch.full_like(slope, -1 / 6)) for _, slope in seen)

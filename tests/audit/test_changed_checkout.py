"""A checkout that changes: the audit that reuses verdicts answers like one that checks everything."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit_fixtures import checkout
from rl_sentinel.audit import verdict_store
from rl_sentinel.audit.engine.code_entries import is_supported
from rl_sentinel.audit.engine.worker import serve
from rl_sentinel.audit.sandbox.forked_events import forked_events
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.verdict_store import stored_or_run

pytestmark = pytest.mark.skipif(not is_supported(), reason="only CPython 3.11 counts the first calls of a function")

GRPO = "verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
GAE = "verl.trainer.ppo.core_algos.compute_gae_advantage_return"

MODULE = '''
import torch

from verl.trainer.ppo import sums
from verl.trainer.ppo.registry import register
from verl.trainer.ppo.settings import Settings, read_number

ADV_ESTIMATOR_REGISTRY = {}
SIGN = 1.0
OFFSET = read_number()


@register(ADV_ESTIMATOR_REGISTRY, "grpo")
def compute_grpo_outcome_advantage(token_level_rewards, response_mask, index):
    """Group mean over all rows."""
    score = SIGN * sums.outcome(token_level_rewards)
    out = torch.zeros_like(score)
    for name in set(index.tolist()):
        rows = torch.tensor([i == name for i in index.tolist()])
        out[rows] = score[rows] - score[rows].mean()
    out = out.unsqueeze(-1) * response_mask
    return out, out


@register(ADV_ESTIMATOR_REGISTRY, "gae")
def compute_gae_advantage_return(token_level_rewards, values, response_mask, gamma, lam):
    """Undiscounted sum of rewards to go, minus the value."""
    settings = Settings()
    live = torch.where(response_mask.bool(), token_level_rewards, 0.0)
    returns = sums.to_go(live)
    return torch.where(response_mask.bool(), settings.scaled(returns) - values, 0.0), returns
'''

FILES = {
    "sums.py": """
import torch


def outcome(rewards):
    return rewards.sum(-1)


def to_go(live, dim=-1):
    def reversed_sum(x):
        return x.flip(dim).cumsum(dim).flip(dim)
    return reversed_sum(live)


@torch.jit.script
def compiled(x):
    return x + 1


def unused(x):
    return x
""",
    "registry.py": """
def register(registry, name):
    def decorate(function):
        registry[name] = function
        return function
    return decorate
""",
    "settings.py": """
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Settings:
    factor: float = 1.0

    def scaled(self, x):
        return self.factor * x


def read_number():
    return float(Path(__file__).with_name("number.yaml").read_text(encoding="utf-8"))
""",
    "number.yaml": "0.0",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "nowhere")])
    monkeypatch.setattr(verdict_store, "_search_path", lambda _: [])  # packages do not change here
    monkeypatch.setattr(verdict_store, "digest_of", lambda _: "this package")

    def events(job: Request, _python: str) -> Iterator[dict[str, Any]]:
        yield from forked_events(lambda send: serve(job, send))

    monkeypatch.setattr(verdict_store, "events", events)
    home = checkout(tmp_path / "tree", MODULE) / "verl" / "trainer" / "ppo"
    for name, text in FILES.items():
        (home / name).write_text(text, encoding="utf-8")
    return home


def _audit(tree: Path, *, fresh: bool = False) -> tuple[set[str], list[dict[str, Any]]]:
    """The boundaries that were checked, and the events of all, in order."""
    text = "".join(sorted(p.read_text(encoding="utf-8") for p in tree.glob("*") if p.is_file()))
    about = {"framework": "verl", "root": str(tree.parents[2]), "version": "", "target": {"digest": str(hash(text))}}
    job = Request(task="audit", laws=("MSK001", "SHF001", "GAM001"), budget=2, jobs=1, boundaries=(GRPO, GAE), **about)  # type: ignore[arg-type]  # JSON
    events = [*stored_or_run(job, sys.executable, fresh=fresh)]
    verdicts = [e for e in events if e["event"] in ("verdict", "entered")]
    unchanged = {e["boundary"] for e in events if e["event"] == "unchanged"}
    everything = {e["boundary"] for e in verdicts}
    assert everything == {GRPO, GAE}
    checked = set() if events[0] == {"event": "stored"} else everything - unchanged
    return checked, sorted(verdicts, key=lambda e: (e["boundary"], e["setting"], str(e.get("law"))))


ALL = {GRPO, GAE}

EDITS = {
    "nothing": ("sums.py", "", "", set()),
    "body": ("sums.py", "rewards.sum(-1)", "2 * rewards.sum(-1)", {GRPO}),
    "body with another line": (
        "sums.py",
        "    return rewards.sum(-1)",
        "    x = 0\n    return x - rewards.sum(-1)",
        {GRPO},
    ),
    "function of the boundary": ("core_algos.py", "score[rows].mean()", "score.mean()", {GRPO}),
    "nested function": ("sums.py", "x.flip(dim).cumsum(dim).flip(dim)", "x.cumsum(dim)", {GAE}),
    "method of a dataclass": ("settings.py", "self.factor * x", "2 * self.factor * x", {GAE}),
    "function that nothing calls": ("sums.py", "    return x\n", "    return 2 * x\n", set()),
    "constant": ("core_algos.py", "SIGN = 1.0", "SIGN = -1.0", ALL),
    "default of a parameter": ("sums.py", "dim=-1", "dim=0", ALL),
    "default of a dataclass": ("settings.py", "factor: float = 1.0", "factor: float = 3.0", ALL),
    "decorator": (
        "core_algos.py",
        '@register(ADV_ESTIMATOR_REGISTRY, "gae")',
        '@register(ADV_ESTIMATOR_REGISTRY, "gae")\n@torch.no_grad()',
        ALL,
    ),
    "body of a decorator": ("registry.py", "return function", "return lambda *a, **k: function(*a, **k)", ALL),
    "function that runs at import": ("settings.py", "return float(", "return 2 + float(", ALL),
    "source that is compiled": ("sums.py", "x + 1", "x + 2", ALL),
    "data file": ("number.yaml", "0.0", "1.0", ALL),
    "import": ("core_algos.py", "import torch\n", "import math\n\nimport torch\n", ALL),
    "new function": ("sums.py", "def unused", "def other(): ...\n\n\ndef unused", ALL),
}


#: Edits that every test run tries; the others take a minute.
QUICK = ("body with another line", "constant")


@pytest.mark.parametrize("edit", [e if e in QUICK else pytest.param(e, marks=pytest.mark.slow) for e in EDITS])
def test_only_what_uses_a_change_is_checked_again(tree: Path, edit: str) -> None:
    file, old, new, expected = EDITS[edit]
    first = _audit(tree)
    assert first[0] == ALL
    text = (tree / file).read_text(encoding="utf-8")
    assert text.count(old) == 1 or not old
    (tree / file).write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
    checked, events = _audit(tree)
    assert checked == expected
    assert events == _audit(tree, fresh=True)[1]
    # Back again, from what was merged.
    (tree / file).write_text(text, encoding="utf-8")
    back = _audit(tree)[1]
    assert back == first[1]


@pytest.mark.slow
def test_several_changes_in_a_row(tree: Path) -> None:
    _audit(tree)
    for number in range(3):
        (tree / "sums.py").write_text(
            FILES["sums.py"].replace("rewards.sum(-1)", f"{number} * rewards.sum(-1)"), encoding="utf-8"
        )
        assert _audit(tree)[0] == {GRPO}
    (tree / "settings.py").write_text(FILES["settings.py"].replace("self.factor * x", "0 * x"), encoding="utf-8")
    checked, events = _audit(tree)
    assert checked == {GAE}
    assert events == _audit(tree, fresh=True)[1]


@pytest.mark.slow
def test_broken_change_is_found(tree: Path) -> None:
    before = _audit(tree)[1]
    (tree / "settings.py").write_text(
        FILES["settings.py"]
        .replace("self.factor * x", "x * torch.rand(())")
        .replace("from pathlib", "import torch\nfrom pathlib"),
        encoding="utf-8",
    )
    _audit(tree)
    (tree / "core_algos.py").write_text(
        MODULE.replace("score[rows] - score[rows].mean()", "score[rows] + response_mask.sum()"), encoding="utf-8"
    )
    checked, after = _audit(tree)
    assert checked == {GRPO}
    broken = [
        {e["law"] for e in events if e.get("outcome") == "broken" and e["boundary"] == GRPO}
        for events in (before, after)
    ]
    assert broken[1] - broken[0]

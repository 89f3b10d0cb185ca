"""The library as a target: new modules are bound, every function runs; the self-audit judges the verdicts."""

import ast
import shutil
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rl_sentinel
import rl_sentinel.signal.advantage.grpo
import rl_sentinel.signal.loss
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.library import FRAMEWORK
from rl_sentinel.adapters.library.rewards import NORMALIZATIONS
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.call_trace import entered
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import smoke_check
from rl_sentinel.cli.main import app
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.modules import defined
from rl_sentinel.signal.kernels import sizes

TARGET = Target(root=Path(rl_sentinel.__file__).parents[1])
FOUND = list(FRAMEWORK.boundaries(TARGET))


def test_everything_is_bound() -> None:
    """Every estimator and loss of the library has a boundary."""
    assert [b.path for b in FOUND if isinstance(b, Unbound)] == []
    paths = {b.path for b in FOUND}
    for package, name in ((rl_sentinel.signal.advantage, "advantages"), (rl_sentinel.signal.loss, "loss")):
        assert {f"{package.__name__}.{m}.{name}" for m in defined(package, name)} <= paths


def test_unknown_parameter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator that wants what the adapter does not know fails loudly, and alone."""
    monkeypatch.setattr(rl_sentinel.signal.advantage.grpo, "advantages", lambda horizon: horizon)
    found = list(FRAMEWORK.boundaries(TARGET))
    unbound = [b for b in found if isinstance(b, Unbound)]
    assert [b.path for b in unbound] == ["rl_sentinel.signal.advantage.grpo.advantages"]
    assert "'horizon'" in unbound[0].reason


@pytest.mark.parametrize("boundary", FOUND, ids=lambda b: b.path)
def test_smoke_check(boundary: Boundary) -> None:
    """Each boundary answers with tensors that move."""
    for setting in boundary.settings:
        assert smoke_check(Asker(boundary, {}), setting) == ""


@pytest.mark.slow
def test_every_call_reads_back() -> None:
    """The batch and all settings, of boundaries that differ in the columns that they read or in their settings."""
    distinct = {(b.reads, repr(b.settings)): b for b in FOUND if isinstance(b, Boundary)}
    check_round_trips(TARGET, distinct.values())


def test_sizes_are_put_back() -> None:
    """Sizes of kernels that are lowered for a call are the library's own again, whoever else runs in this process."""
    before = sizes.BLOCK
    assert before > 6
    asked = [b for b in FOUND if isinstance(b, Boundary) and "blocks.summed" in b.path]
    after = [sizes.BLOCK for b in asked for setting in b.settings if not smoke_check(Asker(b, {}), setting)]
    assert set(after) == {before}


@pytest.mark.parametrize("name", ["loss.ppo.loss", "logprob.logprobs", "advantage.gae.advantages"])
def test_settings_of_kernels_enter_them(name: str) -> None:
    """At a setting of kernels, the small batch of an audit runs more of ``signal.kernels``."""
    boundary = next(b for b in FOUND if isinstance(b, Boundary) and b.path.endswith(name))
    assert len(boundary.settings) == 2
    ran = []
    for setting in boundary.settings:
        with entered(TARGET.root) as names:
            smoke_check(Asker(boundary, {}), setting)
        ran.append({n for n in names if "signal/kernels/" in n and "argument_checks" not in n})
    assert ran[1] - ran[0]


def _public(tree: ast.Module) -> Iterator[str]:
    """Qualified names of the public functions of a module, and of the public methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from (
                f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef) and m.name[0] != "_"
            )


def test_every_function_runs() -> None:
    """Each public function and method of the library is entered by some boundary, a new one too."""
    inside: set[str] = set()
    for boundary in FOUND:
        assert isinstance(boundary, Boundary)
        for setting in boundary.settings:
            with entered(TARGET.root) as names:
                smoke_check(Asker(boundary, {}), setting)
            inside |= {f"{n.split(':')[0]}:{n.split(':')[-1]}" for n in names}
    wanted = {
        f"{path.relative_to(TARGET.root)}:{name}"
        for path in (TARGET.root / "rl_sentinel" / "signal").rglob("*.py")
        if path.stem not in {"requirements", "validation"} and path.parent.name != "kernels"
        for name in _public(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert wanted - inside == {"rl_sentinel/signal/controller.py:Fixed.after"}  # it returns itself


def test_edges_are_settings_of_their_own() -> None:
    """A number that may be 0 is audited at 0 too, where it counts."""
    families = {s for b in FOUND if isinstance(b, Boundary) and b.stage == "advantage" for s in b.settings}
    assert {"standardize=True, epsilon=0", "epsilon=0"} <= families
    assert "standardize=False, epsilon=0" not in families


def test_two_choices_of_a_normalization_meet() -> None:
    """Each pair of values of two choices stands in some audited normalization; no other tells more of them."""
    values = (("batch", "group", "none"), ("batch", "group", "none"), (False, True), (False, True))
    for one, other in combinations(range(4), 2):
        met = {(way[one], way[other]) for way in NORMALIZATIONS}
        lacks = set(product(values[one], values[other])) - met
        assert lacks == {(0, 2): {("none", True)}, (1, 3): {("none", True)}}.get((one, other), set())


@pytest.mark.slow
def test_another_copy_is_audited(tmp_path: Path) -> None:
    """A copy of the library with a fault is judged by the code of the copy."""
    copy = tmp_path / "rl_sentinel"
    shutil.copytree(TARGET.root / "rl_sentinel", copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / "signal" / "kl.py").read_text(encoding="utf-8")
    (copy / "signal" / "kl.py").write_text(text.replace("logprob - ref_logprob", "logprob + ref_logprob"), "utf-8")
    ran = CliRunner().invoke(app, ["audit", f"rl_sentinel@{tmp_path}", "--boundary", "kl.k1"])
    assert ran.exit_code == 1, ran.output
    assert "fault      MET001  k1\n" in ran.output

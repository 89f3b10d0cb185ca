"""``explain``, ``laws``, ``boundaries`` and ``influence``."""

import inspect
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from command_line import error_line, run_cli
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.laws import dead_row_shifts_signal

LINE = '    """Group mean over all rows."""\n'
GRPO = "verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"


@pytest.fixture
def tree(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    return checkout(tmp_path / "tree")


def test_page_of_a_law(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("msk001", "dead-row-shifts-signal"):
        status, said, _ = run_cli(capsys, "explain", text)
        assert status == 0
        assert said.startswith("MSK001 dead-row-shifts-signal")
    assert error_line(capsys, "explain", "GRP01").endswith(": the nearest is GRP001 group-leaks-into-group")


def test_page_is_not_cut_where_it_goes_to_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line is a line of the docstring, so that its doctest can be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    _, said, _ = run_cli(capsys, "explain", "MSK001")
    assert said == f"{inspect.getdoc(dead_row_shifts_signal)}\n"


def test_list_of_laws(capsys: pytest.CaptureFixture[str]) -> None:
    status, said, _ = run_cli(capsys, "laws")
    assert status == 0
    assert [line.split()[0] for line in said.splitlines()] == ["code", *laws()]


@pytest.mark.slow
def test_boundaries_with_their_claims(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--boundary", "*gae*", "--boundary", "*grpo_outcome*")
    _, said, _ = run_cli(capsys, "boundaries", f"verl@{tree}", *both)
    assert all(name in said for name in ("compute_gae_advantage_return", "compute_grpo_outcome_advantage"))
    status, said, _ = run_cli(capsys, "boundaries", f"verl@{tree}", "--boundary", "*grpo_outcome*")
    assert status == 0
    assert said.startswith(f"{GRPO} (advantage) [")
    assert error_line(capsys, "boundaries", f"verl@{tree}", "--boundary", "nonesuch") == (
        f"verl@{tree} has no boundary that matches 'nonesuch': `rl-sentinel boundaries verl@{tree}` lists them"
    )


@pytest.mark.slow
def test_nothing_bound_exits_2(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    tree = checkout(tmp_path / "tree", "raise RuntimeError('no')\n")
    status, said, err = run_cli(capsys, "boundaries", f"verl@{tree}")
    assert status == 2
    assert "unbound verl.trainer.ppo.core_algos" in said
    assert err == f"rl-sentinel: verl@{tree} has no boundary that can be called: see the reasons above\n"
    _, _, err = run_cli(capsys, "boundaries", f"verl@{tree}", "--boundary", "*gae*")
    assert err.startswith(f"rl-sentinel: verl@{tree} has no boundary that matches '*gae*' that can be called: ")


@pytest.mark.slow
def test_influence_draws_a_map(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said, _ = run_cli(capsys, "influence", f"verl@{tree}", "--boundary", "*grpo_outcome*")
    assert status == 0
    drawn = [line.split() for line in said.splitlines()]
    assert ["group", "of", "each", "row", "0", "0", "1", "1"] in drawn
    assert ["trained", "tokens", "###", "##.", "#.#", "..."] in drawn
    assert ["reward[0]", "->", "advantage", "###", "##.", "...", "..."] in drawn
    assert ["reward[2]", "->", "advantage", "...", "...", "#.#", "..."] in drawn
    assert error_line(capsys, "influence", f"verl@{tree}", "--boundary", "nonesuch").startswith(
        f"verl@{tree} has no boundary that matches 'nonesuch' with an influence map: "
    )


@pytest.mark.slow
def test_influence_of_what_dies_is_told(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tree / "verl" / "trainer" / "ppo" / "core_algos.py"
    module.write_text(MODULE.replace(LINE, LINE + "    import os; os._exit(3)\n"), encoding="utf-8")
    status, said, _ = run_cli(capsys, "influence", f"verl@{tree}", "--boundary", "core_algos.*advantage")
    assert status == 0
    assert f"errored {GRPO}: the call ended with exit status 3" in said
    assert "compute_gae_advantage_return" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "what"), [("boundaries", "that can be called"), ("influence", "whose influence map can be computed")]
)
def test_a_function_that_is_absent_exits_2_with_the_reason(
    command: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = error_line(capsys, command, "json:nonesuch", "--stage", "advantage")
    assert line.startswith(f"json:nonesuch has no boundary {what}: json.nonesuch is absent: json has no")

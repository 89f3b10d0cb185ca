"""What a command judges: functions of a project by one call, options that win, and wrong tables in one line."""

import json
from pathlib import Path

import pytest

from command_line import error_line, run_cli
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli.options import FunctionOptions
from rl_sentinel.cli.plan import plan_of_project, plan_of_targets

MODULE = """
def centered(rewards, group):
    same = (group[:, None] == group[None, :]).float()
    return rewards - same @ rewards / same.sum(1)


def by_batch(scores_of_rows, group):
    return scores_of_rows - scores_of_rows.mean()
"""
TABLE = """
[tool.rl-sentinel]
ignore = ["REF001"]
budget = 4

[tool.rl-sentinel.functions."mine:centered"]
stage = "advantage"
algorithm = "grpo"
laws = ["GRP001", "SHF001"]

[tool.rl-sentinel.functions."src/pkg/mine.py:by_batch"]
stage = "advantage"
algorithm = "grpo"
laws = ["GRP001"]
bind = { scores_of_rows = "reward" }
axes = { scores_of_rows = "B" }
claims = { standardized = false, baseline = "none" }
"""
OPTIONS = {"laws": (), "ignore": (), "boundaries": (), "seed": None, "budget": None, "jobs": 1}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "mine.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "src" / "pkg" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "src" / "pkg" / "mine.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(TABLE, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "src" / "pkg")
    return tmp_path / "pyproject.toml"


@pytest.mark.slow
def test_all_functions_are_audited_from_a_folder_below(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_cli(capsys, "audit", "--quiet", "--json", "out.json", "--report", "sarif=out.sarif")
    assert status == 1
    assert out.splitlines()[-1] == "2 functions: 1 sound, 1 with findings; exit status 1"
    sound, broken = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert (sound["status"], broken["status"]) == (0, 1)
    (finding,) = broken["findings"]
    assert (finding["law"], finding["boundary"]) == ("GRP001", "pkg.mine.by_batch")
    assert finding["evidence"]["claims"]["scope"] == {"value": "group", "cite": "implied by algorithm=grpo"}
    assert "baseline" not in finding["evidence"]["claims"]
    Path("one.json").write_text(json.dumps(finding["evidence"]), encoding="utf-8")
    status, out, _ = run_cli(capsys, "replay", "one.json")
    assert (status, out.split(":")[0]) == (1, "reproduced")


@pytest.mark.slow
def test_command_line_says_as_much_as_the_table(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--stage", "advantage", "--algorithm", "grpo", "--claim", "baseline=none", "--law", "GRP001")
    bound = ("--bind", "scores_of_rows=reward", "--axes", "scores_of_rows=B", "--json", "-", "--quiet")
    status, out, _ = run_cli(capsys, "audit", "pkg.mine:by_batch", *options, *bound)
    assert status == 1
    (finding,) = json.loads(out)["findings"]
    assert finding["evidence"]["claims"]["scope"]["cite"] == "implied by algorithm=grpo"
    assert finding["evidence"]["target"]["bound"] == '{"bind": {"scores_of_rows": "reward[B]"}}'


def test_the_hint_is_for_functions_without_an_algorithm() -> None:
    for claims, hint in (((), "grpo"), (("deviation=n",), "grpo"), (("algorithm=rloo",), "")):
        said = FunctionOptions.parsed(stage="advantage", claim=claims)
        (planned,) = plan_of_targets([parse_target("mine:f")], said, OPTIONS, "fault").planned
        assert planned.unclaimed == hint


def test_project_gives_what_the_command_line_leaves_open(project: Path) -> None:
    first, second = plan_of_project(FunctionOptions(), OPTIONS, None).planned
    assert (first.target.function, first.level, first.unclaimed) == ("mine:centered", "contested", "")
    assert (first.options["budget"], first.options["seed"], first.options["ignore"]) == (4, 0, ("REF001",))
    assert second.options["bind"] == {"scores_of_rows": "reward[B]"}
    assert second.options["claims"] == ("standardized=no", "baseline=none")
    given = plan_of_project(FunctionOptions(), {**OPTIONS, "budget": 9, "laws": ("PAD001",)}, "hazard").planned[0]
    assert (given.options["budget"], given.options["laws"], given.level) == (9, ("PAD001",), "hazard")
    assert not plan_of_targets([], FunctionOptions(), OPTIONS, "fault").planned


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"mine:centered"', '"verl==0.9.1"', ".functions.'verl==0.9.1'] is not the name of a function, expected "),
        (
            'stage = "advantage"',
            'stage = "advantag"',
            ".functions.'mine:centered']: stage is 'advantag', expected one of ",
        ),
        (
            "standardized = false",
            "skope = false",
            ".functions.'src/pkg/mine.py:by_batch']: claim is 'skope=no', but claim ",
        ),
        ('algorithm = "grpo"', 'algorithm = "grop"', ".functions.'mine:centered']: algorithm is 'grop', which "),
        ('ignore = ["REF001"]', 'ignore = ["REF01"]', "] ignore: law is 'REF01', expected a code or name "),
        (
            'bind = { scores_of_rows = "reward" }',
            'bind = { scores_of_rows = "reward[B]" }',
            "axes[scores_of_rows] is 'B', ",
        ),
    ],
)
def test_wrong_table_is_one_line(
    project: Path, old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text(TABLE.replace(old, new, 1), encoding="utf-8")
    line = error_line(capsys, "audit")
    assert line.startswith(f"{project}[tool.rl-sentinel")
    assert words in line


def test_options_of_one_function_need_a_target(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", "--algorithm", "grpo") == (
        f"--algorithm needs a TARGET: name a target, or set the option in {project}[tool.rl-sentinel]"
    )


def test_file_that_does_not_exist(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = project.parent / "src" / "pkg"
    assert error_line(capsys, "audit", "nonesuch.py:f", "--stage", "kl") == (
        f"target is 'nonesuch.py:f', expected an existing file: {here}/nonesuch.py does not exist"
    )


@pytest.mark.parametrize(
    ("target", "stated", "budget"),
    [("verl==0.9.1", None, 0), ("mine.py:f", None, 16), ("verl==0.9.1", 24, 24), ("mine.py:f", 4, 4)],
)
def test_cases_of_a_target_without_a_stated_budget(target: str, stated: int | None, budget: int) -> None:
    """A framework is tried on the leading cases, a function, whose calls are short, on all."""
    options = {**OPTIONS, "budget": stated}
    function = FunctionOptions(stage="advantage") if "mine" in target else FunctionOptions()
    plan = plan_of_targets([parse_target(target)], function, options, "fault")
    assert plan.planned[0].options["budget"] == budget

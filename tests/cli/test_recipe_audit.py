"""``audit rl_sentinel.train --recipe``: what the request says of a recipe, and wrong use in one line."""

import hashlib
import json
from pathlib import Path

import pytest

from command_line import error_line, run_cli
from rl_sentinel.cli.recipe_audit import own_functions, request_fields
from training import TOML, recipe

OWN = """
def advantages(reward, *, live):
    return reward * live
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(TOML.format(out=tmp_path / "run"), encoding="utf-8")
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("targets", "named"),
    [(["verl==0.9.1"], "verl==0.9.1"), (["rl_sentinel"], "rl_sentinel"), ([], "the functions of pyproject.toml")],
    ids=["framework", "library", "no target"],
)
def test_other_target_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], targets: list[str], named: str
) -> None:
    fix = "audit rl_sentinel.train, or drop --recipe"
    message = f"--recipe is used with {named}, expected rl_sentinel.train: {fix}"
    assert error_line(capsys, "audit", *targets, "--recipe", str(place)) == message


def test_recipe_that_is_wrong_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = place.with_name("none.toml")
    audit = ("audit", "rl_sentinel.train", "--recipe")
    assert error_line(capsys, *audit, str(missing)).startswith(f"recipe {missing} cannot be read (No such file")
    place.write_text(place.read_text().replace("grpo", "gripo"), encoding="utf-8")
    assert error_line(capsys, *audit, str(place)) == "estimator.name 'gripo' is unknown, the nearest is 'grpo'"


def test_request_has_the_tables_of_the_signal_and_files_by_their_whole_path(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.parent)
    fields = request_fields(recipe(estimator={"name": "own.py:advantages"}), ("a", "b"))
    said = json.loads(fields["recipe"])
    assert said["parts"] == ["a", "b"]
    assert said["tables"]["estimator"] == {"name": f"{place.parent / 'own.py'}:advantages"}
    assert said["tables"]["loss"]["name"] == "ppo"
    assert not {"environment", "policy", "out", "steps"} & set(said["tables"])
    assert str(Path(__file__).parents[1]) in fields["search_path"]  # where a module such as ``training`` is found


def test_digest_of_an_own_function_is_that_of_its_file(place: Path, tmp_path: Path) -> None:
    name = f"{place.parent / 'own.py'}:advantages"
    loss = {"name": "training:not_additive", "aggregation": "token-mean"}
    before = own_functions(recipe(estimator={"name": name}, loss=loss))
    assert sorted(before) == ["environment training:Letter", f"estimator {name}", "loss training:not_additive"]
    (tmp_path / "own.py").write_text(f"{OWN}\n# changed\n", encoding="utf-8")
    after = own_functions(recipe(estimator={"name": name}))
    assert after[f"estimator {name}"] != before[f"estimator {name}"]
    rewards = {"name": "jsonl", "file": "data.jsonl", "reward": [{"function": "reward_functions:letters"}]}
    assert list(own_functions(recipe(environment=rewards))) == ["reward reward_functions:letters"]
    rewards["reward"] = "reward_functions:short"
    assert list(own_functions(recipe(environment=rewards))) == ["reward reward_functions:short"]
    assert own_functions(recipe(environment={"name": "sort"})) == {}


def test_an_own_environment_may_be_an_instance_with_a_parameter_named_reward(tmp_path: Path) -> None:
    place = tmp_path / "tasks.py"
    text = "from functools import partial\nfrom training import Letter\n\nMade = partial(Letter)\n"
    place.write_text(text, encoding="utf-8")
    named = own_functions(recipe(environment={"name": f"{place}:Made", "reward": 0.5}))
    assert named == {f"environment {place}:Made": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.slow
def test_audit_of_a_recipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two boundaries; a finding replays."""
    text = place.read_text().replace('name = "grpo"\nstandardize = false\nepsilon = 0.0', 'name = "own.py:advantages"')
    own = OWN.replace("reward * live", "-reward * live").replace("def", 'CLAIMS = {"algorithm": "outcome"}\n\ndef', 1)
    (place.parent / "own.py").write_text(own, encoding="utf-8")
    place.write_text(text.replace("own.py", str(place.parent / "own.py")), encoding="utf-8")
    found = place.with_name("found.json")
    audit = ("audit", "rl_sentinel.train", "--recipe", str(place), "--law", "REF001", "--budget", "4")
    status, output, _ = run_cli(capsys, *audit, "--json", str(found))
    assert status == 1, output
    assert "2 pairs of law and boundary at 2 boundaries" in " ".join(output.split())
    assert "the formula of outcome gives the expected value" in " ".join(output.split())
    status, output, _ = run_cli(capsys, "replay", str(found))
    assert status == 1
    assert output.startswith("reproduced: rl_sentinel.train:REF001:rl_sentinel.train.update.training_batch.build_")

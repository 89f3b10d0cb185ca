"""A resumed run notices that the chat template or a function of the recipe has changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.recipe_files import code_digests, template_digest
from rl_sentinel.train.run.run_context import Callbacks
from training import folder_cache, recipe

REWARD = "def score(response, answer):\n    return float(answer in response)\n"


def _recipe(folder: Path, steps: int) -> Recipe:
    environment = {"name": "jsonl", "file": str(folder / "rows.jsonl"), "reward": f"{folder}/reward.py:score"}
    more: dict[str, Any] = {"environment": environment, "chat": {"template": str(folder / "chat.jinja")}}
    return recipe(folder / "run", steps=steps, checkpoint={"every": 1}, **more)


def _train(folder: Path, steps: int) -> list[str]:
    said = list[str]()
    train(_recipe(folder, steps), cache=folder_cache(folder / "cache"), callbacks=Callbacks(message=said.append))
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of a recipe."""
    rows = [{"prompt": f"{n}+1", "answer": str(n + 1)} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "reward.py").write_text(REWARD, encoding="utf-8")
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}=", encoding="utf-8")
    return tmp_path


def test_digests_are_of_the_files_that_the_recipe_names(folder: Path) -> None:
    one = _recipe(folder, 1)
    assert list(code_digests(one)) == [f"{folder}/reward.py"]
    before = template_digest(one), code_digests(one)
    (folder / "chat.jinja").write_text("{{ messages[0].content }}:", encoding="utf-8")
    (folder / "reward.py").write_text(f"{REWARD}#\n", encoding="utf-8")
    after = template_digest(one), code_digests(one)
    assert before[0] != after[0]
    assert before[1] != after[1]
    plain = recipe(folder, steps=1)
    assert (template_digest(plain), code_digests(plain)) == ("", {})


def test_an_unchanged_recipe_resumes_without_a_note(folder: Path) -> None:
    _train(folder, 1)
    assert _train(folder, 2) == ["resuming after step 1 of 2"]


def test_another_template_is_refused(folder: Path) -> None:
    _train(folder, 1)
    (folder / "chat.jinja").write_text("{{ messages[0].content }}:", encoding="utf-8")
    with pytest.raises(SentinelError, match=r"^the file of chat.template has changed since the newest checkpoint in "):
        _train(folder, 2)


def test_another_function_is_said(folder: Path) -> None:
    _train(folder, 1)
    (folder / "reward.py").write_text(f"{REWARD}#\n", encoding="utf-8")
    note = f"{folder}/reward.py has changed since the newest checkpoint: from here on its new code is used"
    assert note in _train(folder, 2)

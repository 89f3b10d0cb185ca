"""Own data: passes over the rows, columns for the rewards, and one line on what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.rollout.environment.jsonl import Environment
from rl_sentinel.train.rollout.interfaces import Outcome, Request
from rl_sentinel.train.rollout.rows import load_rows
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from training import folder_cache, recipe

LETTERS = "reward_functions:letters"


def write_rows(place: Path, rows: list[dict[str, Any]]) -> str:
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(place)


@pytest.fixture
def letters(tmp_path: Path) -> str:
    return write_rows(tmp_path / "train.jsonl", [{"prompt": c, "answer": c, "bonus": 0.5} for c in "abcde"])


def test_each_pass_has_every_row_once_in_another_order(letters: str) -> None:
    environment = Environment(letters, LETTERS)
    prompts = [environment.numbered_task(n, 3).prompt for n in range(15)]
    passes = [prompts[n : n + 5] for n in (0, 5, 10)]
    assert all(sorted(one) == list("abcde") for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    assert prompts == [environment.numbered_task(n, 3).prompt for n in range(15)]
    assert prompts != [environment.numbered_task(n, 4).prompt for n in range(15)]
    assert environment.size == 5


def test_rewards_get_the_row_and_the_response(letters: str) -> None:
    environment = Environment(letters, "reward_functions:column")
    task = environment.numbered_task(0, 0)
    assert environment.reply(task, ["x"], ended=True) == Outcome(0.5, correct=False, parts=(0.5,))
    assert environment.parts == ("column",)
    requests = [Request(task, ("x", text), ended) for text, ended in (("aa", True), (task.answer * 3, False))]
    scored = Environment(letters, LETTERS).replies(requests)
    assert [o.reward for o in scored if isinstance(o, Outcome)] == [(task.answer == "a" and 2 / 3) or 0.0, 1.0]


def test_each_row_has_an_answer(tmp_path: Path) -> None:
    place = write_rows(tmp_path / "data.jsonl", [{"prompt": "a", "answer": "b"}, {"prompt": "b"}])
    with pytest.raises(
        SentinelError, match=r"environment.answer 'answer' is missing in .*data.jsonl row 2, expected an a"
    ):
        Environment(place, LETTERS)


def test_answers_of_other_types_and_no_answer(tmp_path: Path) -> None:
    place = write_rows(tmp_path / "data.jsonl", [{"question": "1+1=", "solution": 2}])
    task = Environment(place, LETTERS, prompt="question", answer="solution").numbered_task(0, 0)
    assert (task.prompt, task.answer) == ("1+1=", "2")
    assert Environment(place, "reward_functions:short", prompt="question", answer="").numbered_task(0, 0).answer == ""


@pytest.mark.parametrize(
    ("row", "keys", "line"),
    [
        ({"question": "a"}, {}, r"environment.prompt 'prompt' is not a column of .*, expected one of question$"),
        ({"prompt": "a"}, {}, r"environment.answer 'answer' is not a column of .*, or set answer = \"\" for data"),
        ({"prompt": "", "answer": ""}, {}, r"row 1\[prompt\] is '', expected a text or a list of messages"),
        ({"prompt": [{"role": "user"}], "answer": ""}, {}, r"row 1\[prompt\]\[0\] is .*, expected a message with"),
        ({"prompt": "a", "answer": ""}, {"rewrad": "x"}, "environment.rewrad is unknown, the nearest is 'reward'"),
        ({"prompt": "a", "answer": ""}, {"full": "x"}, "environment.full is 'x', expected a float"),
    ],
)
def test_invalid_data_is_one_line(tmp_path: Path, row: dict[str, Any], keys: dict[str, Any], line: str) -> None:
    place = write_rows(tmp_path / "data.jsonl", [row])
    with pytest.raises(SentinelError, match=line) as error:
        select_components(recipe(environment={"name": "jsonl", "file": place, "reward": LETTERS, **keys}))
    assert "\n" not in str(error.value)


def test_prompt_that_is_too_long_stops_the_run_before_its_first_step(tmp_path: Path) -> None:
    """Whenever it would be drawn in the run; a row that no step draws is not looked at."""
    rows = [{"prompt": "ab", "answer": "a"}] * 7 + [{"prompt": "ab" * 8, "answer": "a"}]
    table = {"name": "jsonl", "file": write_rows(tmp_path / "train.jsonl", rows), "reward": LETTERS}
    environment = Environment(table["file"], LETTERS)
    drawn = next(n for n in range(8) if len(environment.numbered_task(n, 0).prompt) > 2)
    assert drawn  # not in the first task, which is tried before the model is built
    policy = {"policy": {"positions": 16, "hidden": 8, "heads": 2, "inner": 8, "layers": 1}}
    rollout = {"prompts": 1, "responses": 2, "tokens": 4}
    more = {"environment": table, "rollout": rollout, "update": {"prompts": 1, "rate": 1e-3}, **policy}
    train(recipe(tmp_path / "short", steps=drawn, **more), cache=folder_cache(tmp_path))
    with pytest.raises(
        SentinelError, match=r"after a prompt of 16 tokens \(.*train.jsonl row 8\), expected at most 16"
    ):
        train(recipe(tmp_path / "long", steps=drawn + 1, **more), cache=folder_cache(tmp_path))
    assert not (tmp_path / "long/metrics.jsonl").exists()


def test_messages_need_a_chat_template(tmp_path: Path) -> None:
    place = write_rows(tmp_path / "data.jsonl", [{"prompt": [{"role": "user", "content": "a"}], "answer": "a"}])
    words = r"chat is missing, expected a chat template for prompts that are lists of messages: add \[chat\]"
    with pytest.raises(SentinelError, match=words):
        select_components(recipe(environment={"name": "jsonl", "file": place, "reward": LETTERS}))


@pytest.mark.slow
def test_own_data_trains_and_resumes_to_the_same_bytes(tmp_path: Path, letters: str) -> None:
    """The reward rises, and the per-reward values, evaluations and responses are in the run's files."""
    template, test = tmp_path / "chat.jinja", write_rows(tmp_path / "test.jsonl", [{"prompt": "f", "answer": "f"}])
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}>")
    rewards = ({"function": LETTERS}, {"function": "reward_functions:short", "weight": 0.0})
    more: dict[str, Any] = {
        "steps": 30,
        "environment": {"name": "jsonl", "file": letters, "reward": rewards},
        "chat": {"template": str(template), "system": "+"},
        "rollout": {"prompts": 8, "responses": 8},
        "update": {"prompts": 8, "rate": 1e-2},
        "evaluation": {"every": 10, "environment": {"file": test}, "responses": 4, "k": (1, 4)},
        "checkpoint": {"every": 20},
    }
    train(recipe(tmp_path / "run", **more), cache=folder_cache(tmp_path))
    names = ("metrics", "completions", "evaluation")
    before = [(tmp_path / "run" / f"{name}.jsonl").read_bytes() for name in names]
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sum(line["reward"] for line in metrics[-5:]) / 5 > metrics[0]["reward"] + 0.15
    evaluations = read_metrics(tmp_path / "run" / "evaluation.jsonl")
    assert [line["step"] for line in evaluations] == [0, 10, 20, 30]
    assert {"accuracy", "reward", "pass@1", "pass@4", "failed", "ended"} <= set(evaluations[0])
    completions = [json.loads(line) for line in before[1].splitlines()]
    assert len(completions) == 30 * 64
    assert completions[0]["prompt"] == f"+{completions[0]['prompt'][1]}>"
    assert set(completions[0]["rewards"]) == {"letters", "short"}
    (max((tmp_path / "run" / "checkpoints").iterdir()) / "seal.json").unlink()
    train(recipe(tmp_path / "run", **more), cache=folder_cache(tmp_path))
    assert [(tmp_path / "run" / f"{name}.jsonl").read_bytes() for name in names] == before


def test_changed_data_is_noticed_on_resume(letters: str, tmp_path: Path) -> None:
    """The rows decide what a resumed run samples; a file with the same rows is the same data."""
    environment = {"name": "jsonl", "file": letters, "reward": LETTERS}
    more: dict[str, Any] = {"environment": environment, "checkpoint": {"every": 1}}
    train(recipe(tmp_path / "run", steps=1, **more), cache=folder_cache(tmp_path / "cache"))
    text = Path(letters).read_text(encoding="utf-8")
    load_rows.cache_clear()
    Path(letters).write_text(text + "\n", encoding="utf-8")
    train(recipe(tmp_path / "run", steps=2, **more), cache=folder_cache(tmp_path / "cache"))
    load_rows.cache_clear()
    Path(letters).write_text(text.replace("0.5", "0.25"), encoding="utf-8")
    with pytest.raises(SentinelError, match=r"environment\.file has changed since the newest checkpoint"):
        train(recipe(tmp_path / "run", steps=3, **more), cache=folder_cache(tmp_path / "cache"))

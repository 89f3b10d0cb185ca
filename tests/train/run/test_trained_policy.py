"""Policies of runs: loaded into another run, and exported for transformers."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.pretrained import load_policy
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.trained_policy import export_run, is_run, load_run
from training import folder_cache, recipe

extra = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is an extra")
TOKEN = torch.tensor([[2, 5, 9, 1]])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    more: dict[str, Any] = {"steps": 4, "evaluation": {"every": 1, "best": "reward"}, "checkpoint": {"every": 2}}
    update = {"prompts": 8, "rate": 1e-2}
    rollout = {"prompts": 8, "responses": 8}
    train(recipe(tmp_path / "run", update=update, rollout=rollout, **more), cache=folder_cache(tmp_path / "cache"))
    return tmp_path / "run"


def test_run_starts_from_the_policy_of_another(tmp_path: Path, run: Path) -> None:
    assert is_run(str(run))
    assert not is_run("")
    logged = read_metrics(run / "evaluation.jsonl")
    evaluation = {"every": 1, "best": "reward"}
    best = int(max(logged, key=lambda line: float(line["reward"]))["step"])
    assert 0 < best < 4
    for place, step in ((run, 4), (run / "best", best)):
        out = tmp_path / f"next-{place.name}"
        train(
            recipe(out, policy={"load": str(place)}, evaluation=evaluation, steps=1),
            cache=folder_cache(tmp_path / "cache"),
        )
        first = read_metrics(out / "evaluation.jsonl")[0]
        assert first["reward"] == logged[step]["reward"]


@pytest.mark.parametrize("kl", [None, {"loss": 0.1}], ids=["no reference", "reference"])
def test_other_weights_of_the_loaded_run_are_refused_if_a_reference_reads_them(
    tmp_path: Path, run: Path, kl: dict[str, float] | None
) -> None:
    def go(steps: int) -> None:
        more: dict[str, Any] = {"policy": {"load": str(run)}, "kl": kl, "checkpoint": {"every": 1}}
        train(recipe(tmp_path / "next", steps=steps, **more), cache=folder_cache(tmp_path / "cache"))

    go(1)
    go(2)  # the same weights
    shutil.rmtree(max((run / "checkpoints").iterdir()))
    if kl is None:
        go(3)
        return
    with pytest.raises(SentinelError, match=r"^policy.load has other weights than at the newest checkpoint in .*next"):
        go(3)


@pytest.mark.parametrize(
    ("name", "line"), [("none", "has no recipe.json, expected the folder of a run, or the `best` folder in it$")]
)
def test_other_folders_are_one_line(tmp_path: Path, name: str, line: str) -> None:
    with pytest.raises(SentinelError, match=line):
        load_run(str(tmp_path / name))


@pytest.mark.parametrize("text", ["[1, 2]", "5", "null"])
def test_recipe_that_is_no_table_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.json").write_text(text, encoding="utf-8")
    with pytest.raises(
        SentinelError, match=r"recipe.json cannot be read \(.*\), expected a run's recipe: name the folder"
    ):
        load_run(str(tmp_path))


def test_run_without_an_intact_checkpoint_is_one_line(tmp_path: Path, run: Path) -> None:
    for place in (run / "checkpoints").iterdir():
        (place / "seal.json").unlink()
    with pytest.raises(SentinelError, match=r"is damaged \(.*\), and no older one is intact: train again, or name"):
        load_run(str(run))
    for place in (run / "checkpoints").iterdir():
        shutil.rmtree(place)
    words = r"train until step 2 \(checkpoint.every\) or the last step$"
    with pytest.raises(
        SentinelError, match=f"checkpoints has no checkpoint, expected the checkpoint of a step: {words}"
    ):
        load_run(str(run))
    shutil.rmtree(run / "best")
    words = r"train until reward \(evaluation.best\) is larger than before the first step$"
    with pytest.raises(
        SentinelError, match=f"best has no checkpoint, expected the checkpoint of the best evaluation: {words}"
    ):
        load_run(str(run / "best"))


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
@pytest.mark.on_cpu
def test_exported_policy_has_equal_logits_and_texts(tmp_path: Path, run: Path) -> None:
    export_run(str(run), tmp_path / "exported")
    own, theirs = load_run(str(run))[1], load_policy(str(tmp_path / "exported"))
    torch.testing.assert_close(theirs(TOKEN), own(TOKEN), atol=1e-5, rtol=1e-5)
    text = "12+3=ab"
    assert theirs.tokenizer.encode(text) == own.tokenizer.encode(text)
    assert theirs.tokenizer.decode(own.tokenizer.encode(text)) == text
    with pytest.raises(
        SentinelError, match=r"exported has files, expected a new or empty folder: name another folder$"
    ):
        export_run(str(run), tmp_path / "exported")
    (tmp_path / "file").touch()
    with pytest.raises(SentinelError, match=r"file is a file, expected a new or empty folder: name another folder$"):
        export_run(str(run), tmp_path / "file")


@extra
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.on_cpu
def test_exported_model_trains_and_is_exported_again(tmp_path: Path, run: Path, lora: bool) -> None:
    """A loaded model, with LoRA merged."""
    if lora and importlib.util.find_spec("peft") is None:
        pytest.skip("peft is an extra")
    export_run(str(run), tmp_path / "one")
    policy: dict[str, Any] = {"load": str(tmp_path / "one")} | ({"lora": {"rank": 4}} if lora else {})
    train(recipe(tmp_path / "second", policy=policy, update={"prompts": 2, "rate": 5e-2}), cache=folder_cache(tmp_path))
    export_run(str(tmp_path / "second"), tmp_path / "two")
    own, theirs = load_run(str(tmp_path / "second"))[1], load_policy(str(tmp_path / "two"))
    torch.testing.assert_close(theirs(TOKEN), own(TOKEN), atol=1e-5, rtol=1e-5)
    assert (theirs(TOKEN) - load_policy(str(tmp_path / "one"))(TOKEN)).abs().max() > 1e-3


@extra
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize("whole", [(), ("lm_head",)])
@pytest.mark.on_cpu
def test_exported_adapter_gives_the_policy_of_the_run(tmp_path: Path, run: Path, whole: tuple[str, ...]) -> None:
    """Loaded by peft on the model that the run started from."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - an extra

    export_run(str(run), tmp_path / "one")
    policy: dict[str, Any] = {"load": str(tmp_path / "one"), "lora": {"rank": 4, "whole": whole}}
    train(recipe(tmp_path / "second", policy=policy, update={"prompts": 2, "rate": 5e-2}), cache=folder_cache(tmp_path))
    export_run(str(tmp_path / "second"), tmp_path / "adapter", adapter=True)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    before = base(TOKEN).logits.detach()
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    torch.testing.assert_close(loaded(TOKEN).logits, load_run(str(tmp_path / "second"))[1](TOKEN), atol=1e-5, rtol=1e-5)
    assert (loaded(TOKEN).logits - before).abs().max() > 1e-3
    assert peft.PeftConfig.from_pretrained(str(tmp_path / "adapter")).base_model_name_or_path == str(tmp_path / "one")


@extra
def test_run_without_an_adapter_is_one_line(tmp_path: Path, run: Path) -> None:
    with pytest.raises(SentinelError, match=r"run has no adapter of a pretrained model, expected a run with LoRA"):
        export_run(str(run), tmp_path / "adapter", adapter=True)
    assert not (tmp_path / "adapter").exists()

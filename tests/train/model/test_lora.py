"""LoRA: only the low-rank matrices train, runs resume, and the merged weights are the policy's."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.settings import LoraSettings
from rl_sentinel.train.model.lora import apply_lora, merged_weights
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.trained_policy import load_run
from training import folder_cache, recipe

extra = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is an extra")
SETTINGS = LoraSettings(rank=4, targets=("q_proj", "v_proj", "down_proj"))


@extra
@pytest.mark.filterwarnings("ignore")  # warnings of peft's imports
@pytest.mark.on_cpu
def test_merged_weights_give_the_same_logits() -> None:
    policy, token = init_policy(recipe()), torch.tensor([[2, 5, 9]])
    before, names = policy(token), set(policy.model.state_dict())
    apply_lora(policy, SETTINGS, seed=3)
    torch.testing.assert_close(policy(token), before)
    trained = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
    assert len(trained) == 6
    assert all(".lora_" in name for name in trained)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.1 * weight.requires_grad)
    plain = init_policy(recipe())
    plain.model.load_state_dict(merged := merged_weights(policy.model))
    assert set(merged) == names
    torch.testing.assert_close(plain(token), policy(token))
    assert (plain(token) - before).abs().max() > 1e-3


@extra
@pytest.mark.filterwarnings("ignore")  # as above
def test_matrices_depend_on_the_seed_only() -> None:
    states = []
    for seed in (3, 3, 4):
        policy = init_policy(recipe())
        torch.rand(seed)  # elsewhere random numbers are drawn
        apply_lora(policy, SETTINGS, seed=seed)
        states.append(policy.model.state_dict())
    same = [all(torch.equal(w, states[0][n]) for n, w in state.items()) for state in states]
    assert same == [True, True, False]


@extra
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.on_cpu
def test_only_the_matrices_train_and_runs_resume_to_the_same_bytes(tmp_path: Path) -> None:
    """The other weights stay as they were, to the last bit, also with weight decay."""
    more: dict[str, Any] = {
        "steps": 4,
        "policy": {"lora": {"rank": 8}},
        "update": {"prompts": 2, "epochs": 2, "rate": 2e-2, "decay": 0.1},
        "checkpoint": {"every": 2},
    }
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    whole, saved = (tmp_path / "metrics.jsonl").read_bytes(), load_newest(tmp_path / "checkpoints").state
    assert saved is not None
    start = init_policy(recipe()).model.state_dict()
    for name, weight in start.items():
        wrapped = name.replace("_proj.weight", "_proj.base_layer.weight")
        assert torch.equal(saved["weights"][wrapped], weight)
    merged = load_run(str(tmp_path))[1].model.state_dict()
    assert merged.keys() == start.keys()
    changed = [name for name, weight in merged.items() if not torch.equal(weight, start[name])]
    assert len(changed) == 7
    assert all(name.endswith("_proj.weight") for name in changed)
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


@extra
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
def test_lora_learns(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "steps": 40,
        "policy": {"hidden": 32, "lora": {"rank": 8}},
        "warm": {"steps": 250, "rows": 32, "rate": 1e-2},
        "environment": {"name": "arithmetic", "most": 3},
        "rollout": {"prompts": 8, "responses": 8, "tokens": 5},
        "update": {"prompts": 8, "rate": 3e-3},
    }
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    reward = [line["reward"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert sum(reward[-10:]) / 10 > sum(reward[:5]) / 5 + 0.1


@extra
@pytest.mark.filterwarnings("ignore")  # as above
def test_unknown_target_is_one_line() -> None:
    with pytest.raises(SentinelError, match=r"^policy.lora.targets is \['query'\], expected modules with weights \("):
        apply_lora(init_policy(recipe()), LoraSettings(targets=("query",)), seed=0)


@extra
@pytest.mark.filterwarnings("ignore")  # as above
def test_modules_that_train_whole() -> None:
    """Beside the low-rank matrices; the output projection is read by its weight, so it can only train whole."""
    policy = init_policy(recipe())
    apply_lora(policy, LoraSettings(rank=4, targets=("q_proj",), whole=("lm_head", "norm")), seed=3)
    trained = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
    assert {name for name in trained if ".lora_" not in name} == {"lm_head.weight", "model.norm.weight"}
    assert len(trained) == 4


@extra
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"targets": ("q_proj", "lm_head")},
            r"^policy.lora.targets has lm_head, expected other modules: .*lora.whole$",
        ),
        (
            {"whole": ("head",)},
            (
                "^policy.lora.whole has head, expected modules with a weight, outside of policy.lora.targets: "
                "name other "
                "modules, such as lm_head, or embed_tokens if lm_head shares its weight$"
            ),
        ),
        (
            {"whole": ("q_proj",)},
            "^policy.lora.whole has q_proj, expected modules with a weight, outside of policy.lora.targets: name",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")  # as above
def test_module_that_cannot_train_is_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SentinelError, match=line):
        apply_lora(init_policy(recipe()), LoraSettings(**settings), seed=0)


def test_missing_peft_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SentinelError, match=r"^policy.lora needs peft, which cannot be imported .*: pip install"):
        train(recipe(tmp_path / "run", policy={"lora": {}}), cache=folder_cache(tmp_path / "cache"))
    assert not (tmp_path / "run").exists()

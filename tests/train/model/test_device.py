"""Devices: what can be tested without a GPU, and ten steps on one beside the CPU where there is one."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.device import resolve_device
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.update import response_logprobs
from rl_sentinel.train.update.minibatch_gradient import compute_gradient
from training import folder_cache, recipe, sample_batch

#: Mini-batches, epochs and a KL, so that every column is used.
MORE: dict[str, Any] = {
    "steps": 10,
    "rollout": {"prompts": 4, "responses": 4},
    "update": {"prompts": 2, "epochs": 2, "rate": 5e-3},
    "kl": {"loss": 0.1},
}


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    state = load_newest(folder / "checkpoints").state
    assert state is not None
    weights: dict[str, torch.Tensor] = state["weights"]
    return weights


def _distance(one: Path, two: Path) -> float:
    first, second = _weights(one), _weights(two)
    return max(float((weight - second[name]).abs().max()) for name, weight in first.items())


@pytest.mark.slow
def test_no_operation_mixes_devices() -> None:
    """Of the update on the meta device, and of forward passes on a fake CUDA device."""
    script = Path(__file__).parents[2] / "without_a_device.py"
    env = os.environ | {"RL_SENTINEL_CHECKS": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ppo prompt-mean" in done.stdout.splitlines()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
def test_ten_steps_on_cuda_are_those_on_the_cpu(tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        train(recipe(tmp_path / device, policy={"device": device}, **MORE), cache=folder_cache(tmp_path / "cache"))
    assert _distance(tmp_path / "cpu", tmp_path / "cuda") < 1e-3
    lines = [read_metrics(tmp_path / device / "metrics.jsonl") for device in ("cpu", "cuda")]
    assert lines[0][0] == pytest.approx(lines[1][0], rel=1e-3, abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
@pytest.mark.parametrize(("precision", "rounding"), [("fp32", 1e-4), ("bf16", 5e-2)])
def test_gradient_on_cuda_is_that_on_the_cpu(precision: str, rounding: float) -> None:
    """Of one batch, since in bf16 the samples differ."""
    config = recipe(policy={"device": "cpu", "precision": precision}, kl={"loss": 0.1})
    selection, policy, _, batch, _ = sample_batch(config, reference=True)
    twin = Policy(copy.deepcopy(policy.model).to("cuda"), policy.tokenizer, precision=precision)
    rows = torch.arange(len(batch.mask))
    one, two = (
        compute_gradient(p, batch, rows, selection=selection, recipe=config, coefficient=0.1) for p in (policy, twin)
    )
    assert (one.logprob - two.logprob).abs().max() < rounding
    gradients = [torch.cat([w.grad.flatten().cpu() for w in p.model.parameters()]) for p in (policy, twin)]  # type: ignore[union-attr]  # set above
    assert (gradients[0] - gradients[1]).norm() < rounding * gradients[0].norm()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{"policy": {"recompute": True}}, {"update": {**MORE["update"], "tokens": 12}}],
    ids=["recompute", "budget of tokens"],
)
def test_memory_settings_leave_the_weights_alone(
    tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_logprobs, "SINGLE_PASS", 0)  # else both runs compute the same, bit by bit
    train(recipe(tmp_path / "one", **MORE), cache=folder_cache(tmp_path / "cache"))
    train(recipe(tmp_path / "two", **(MORE | change)), cache=folder_cache(tmp_path / "cache"))
    assert 0 < _distance(tmp_path / "one", tmp_path / "two") < 1e-5


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_cuda_that_is_missing_is_one_line() -> None:
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(SentinelError, match=r"^policy.device is 'cuda', but torch finds no CUDA device: set"):
        resolve_device("cuda")


def test_gpus_are_taken_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, cudnn = list[torch.device](), list[bool]()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    monkeypatch.setattr("torch.backends.cuda.enable_cudnn_sdp", cudnn.append)
    for rank, index in (("0", 0), ("1", 1), ("2", 0), ("x", 0)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert resolve_device("auto") == torch.device("cuda", index)
    assert len(taken) == 4
    assert cudnn == [False] * 4
    assert resolve_device("cpu") == torch.device("cpu")


def test_loss_that_is_not_additive_has_no_budget() -> None:
    from rl_sentinel.train.config.selection import select_components  # noqa: PLC0415 - for this test alone

    loss = {"name": "training:not_additive", "aggregation": "token-mean"}
    with pytest.raises(SentinelError, match=r"update.tokens is 9, expected no value with loss training:not_additive"):
        select_components(recipe(loss=loss, update={"prompts": 2, "rate": 1e-2, "tokens": 9}))

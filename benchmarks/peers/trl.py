"""TRL, installed with all that it needs: the trainer's own statements, loss, sequence mask, log-probs."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.ours import CLIP, THRESHOLD
from benchmarks.tensors import GROUP, Inputs, gradient

RELEASE = "trl==1.16.0"


def load() -> None:
    """Import it."""
    _module()


@cache
def _module() -> Any:  # noqa: ANN401 - the peer's module
    return import_module("trl.trainer.grpo_trainer")


@cache
def _statements() -> CodeType:
    """The branch of the trainer's method that makes advantages of rewards, which has no function of its own."""
    method = _module().GRPOTrainer._generate_and_score_completions  # noqa: SLF001 - nothing public holds it
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    branch = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "multi_objective_aggregation" in ast.unparse(node.test)
    )
    return compile(ast.Module(branch.body, []), "grpo_trainer.py", "exec")


def _grpo(x: Inputs) -> Tensor:
    trainer = SimpleNamespace(reward_weights=torch.ones(1), scale_rewards="group")
    names = {
        "self": trainer,
        "rewards_per_func": x.reward.unsqueeze(1),
        "unscorable_mask": torch.zeros_like(x.reward, dtype=torch.bool),
        "num_generations": GROUP,
        "device": x.reward.device,
    }
    found: dict[str, Any] = {}
    exec(_statements(), vars(_module()) | names, found)  # noqa: S102 - the release's own statements
    answer: Tensor = found["advantages"]
    return answer


class _Trainer:
    """What the loss reads of its trainer, with the settings that turn everything else off."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - settings of all kinds
        plain = {
            "top_entropy_quantile": 1.0,
            "importance_sampling_level": "token",
            "loss_type": "bnpo",
            "epsilon_low": CLIP,
            "epsilon_high": CLIP,
            "beta": 0.0,
            "current_gradient_accumulation_steps": 1,
            "args": SimpleNamespace(delta=None, use_bias_correction_kl=False),
            "model": SimpleNamespace(training=True),
            "accelerator": SimpleNamespace(gather=lambda t: t, reduce=lambda t, **_how: t, num_processes=1),
        }
        return plain.get(name)


def _ppo(x: Inputs) -> Tensor:
    leaf = x.logprob.clone().requires_grad_()
    trainer = _Trainer()
    metrics: dict[str, dict[str, list[float]]] = {"train": _Lists()}
    entropy = torch.zeros_like(leaf)
    vars(trainer).update(
        _metrics=metrics,
        _get_per_token_logps_and_entropies=lambda *_a, **_k: (leaf, entropy, None),
    )
    inputs = {
        "prompt_ids": torch.zeros(x.rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(x.rows, 1, dtype=torch.long),
        "completion_ids": x.floats,
        "completion_mask": x.floats,
        "advantages": x.advantage,
        "old_per_token_logps": x.old_logprob,
    }
    loss = _module().GRPOTrainer._compute_loss(trainer, None, inputs)  # noqa: SLF001 - nothing public holds it
    return gradient(loss, leaf)


class _Lists(dict[str, list[float]]):
    def __missing__(self, key: str) -> list[float]:
        return self.setdefault(key, [])


def _opsm(x: Inputs) -> Tensor:
    kept = _module().GRPOTrainer.get_off_policy_mask(
        x.advantage.unsqueeze(1), x.logprob, x.rollout_logprob, x.floats, THRESHOLD
    )
    answer: Tensor = kept.squeeze(1) > 0
    return answer


def _score(logits: Tensor, token: Tensor) -> Tensor:
    leaf = logits.detach().requires_grad_()
    return gradient(import_module("trl.trainer.utils").selective_log_softmax(leaf, token).sum(), leaf)


def _score_with_entropy(logits: Tensor, token: Tensor) -> Tensor:
    leaf = logits.detach().requires_grad_()
    first, second = import_module("trl.trainer.utils").selective_log_softmax_and_entropy(leaf, token)
    return gradient((first.sum() - 0.01 * second.sum()), leaf)


PARTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "GRPO, rewards [B]": {"inline": _grpo},
    "PPO loss and gradient": {"eager": _ppo},
    "OPSM": {"eager": _opsm},
    "log-probs and gradient": {"eager": _score},
    "log-probs, entropy and gradient": {"eager": _score_with_entropy},
}

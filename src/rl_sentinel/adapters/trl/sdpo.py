"""TRL's SDPO with only the policy loss: ``compute_loss`` of its trainer, over micro-batches."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself, micro_batch, trains_whole_completions
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

MODULE = "trl.experimental.sdpo.sdpo_trainer"
TRAINER = f"{MODULE}.SDPOTrainer"

#: The longest completion in tokens, by which ``dr_grpo`` divides.
_LENGTH = 8

_PLAIN: Settings = {"clip_low": 0.2, "clip_high": 0.28}
_DOC = "sdpo_config.py, SDPOConfig, docstring of loss_type: {}"
_RATIO = claims("sdpo_trainer.py, _compute_policy_loss: exp(per_token_logps - old_per_token_logps)", ratio=True)
_PPO = claims("sdpo_config.py, epsilon: the clip range of GRPO", algorithm="ppo", scope="sequence") | _RATIO
_SCALED = claims("sdpo_trainer.py, compute_loss: divided by current_gradient_accumulation_steps", denominator="given")

#: The tokens of all micro-batches. Releases up to 1.16.0 do not read them; a loss that divides by them needs them here.
_TOKENS = Derived(lambda inputs: inputs.mini_batch.mask.sum())

#: Loss type -> its claims.
_TYPES: Mapping[str, Claims] = {
    "grpo": claims(_DOC.format("normalizing over sequence length"), aggregation="sequence-mean-token-mean")
    | claims("sdpo_trainer.py, _compute_policy_loss: loss.mean()", rows="all")
    | _SCALED,
    "dapo": claims(
        _DOC.format("the number of active tokens in the global accumulated batch"),
        aggregation="token-mean",
        denominator="given",
    ),
    "bnpo": claims(_DOC.format("the number of active tokens in the local batch"), aggregation="token-mean"),
    "dr_grpo": claims(_DOC.format("a global constant, max_completion_length"), aggregation="token-sum") | _SCALED,
}


class Model:
    """A fake trained model. Its first logit is the log-prob of the next token.

    All logits are 0 if the model gets tokens that differ from the tokens of the completion.
    """

    training = True

    def __init__(self, logprobs: Tensor, tokens: Tensor) -> None:
        """Store ``[B, T]`` log-probs and token ids of the completion."""
        self.logprobs, self.tokens = logprobs, tokens

    def __call__(self, input_ids: Tensor, **_inputs: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """Logits ``[B, T + 1, V]`` from the prompt token on; the last position predicts no token."""
        right = torch.equal(input_ids[:, -self.tokens.shape[1] :], self.tokens)
        logits = torch.cat([self.logprobs * right, torch.zeros_like(self.logprobs[:, :1])], dim=1)
        return SimpleNamespace(logits=logits.unsqueeze(-1))


def first_logit(logits: Tensor, _ids: Tensor) -> Tensor:
    """The first logit, in place of the log-softmax at the token."""
    return logits[..., 0]


def policy_trainer(kind: Any, loss_type: str, clip_low: float, clip_high: float, micro_batches: int) -> Any:  # noqa: ANN401
    """A trainer in training mode, created without a call of its constructor, that trains on policy samples only."""
    trainer = object.__new__(kind)
    trainer.__dict__ |= {
        "args": SimpleNamespace(
            distillation_weight=0.0,
            loss_type=loss_type,
            steps_per_generation=micro_batches,
            gradient_accumulation_steps=micro_batches,
        ),
        "loss_type": loss_type,
        "epsilon_low": clip_low,
        "epsilon_high": clip_high,
        "micro_batches": micro_batches,
        "importance_sampling_level": "token",
        "temperature": 1.0,
        "max_completion_length": _LENGTH,
        "model_kwarg_keys": frozenset({"logits_to_keep"}),
        "current_gradient_accumulation_steps": micro_batches,
        "model": SimpleNamespace(training=True),
        "accelerator": SimpleNamespace(gather=itself, num_processes=1),
        "_metrics": {"train": {"self_distillation/policy_loss": []}},
    }
    return trainer


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss with each type of normalization."""
    path = f"{TRAINER}.compute_loss"
    if target.has(f"{TRAINER}._compute_policy_loss"):
        yield from try_bind(target, path, "policy-loss", lambda: (_loss(path, name) for name in _TYPES))


def _loss(path: str, loss_type: str) -> Boundary:
    trainer = Object(
        policy_trainer,
        {
            "kind": Constant(Function(TRAINER)),
            "loss_type": Constant(loss_type),
            **knobs("clip_low", "clip_high"),
            "micro_batches": MICRO_BATCHES,
        },
        at={"kind": "__class__", "clip_low": "epsilon_low", "clip_high": "epsilon_high"},
    )
    return one_call(
        path=path,
        stage="policy-loss",
        call=path,
        name="loss",
        arguments={
            "self": trainer,
            "model": Object(Model, {"logprobs": Column("logprob"), "tokens": Column("token")}),
            "inputs": micro_batch(
                {"old_per_token_logps": Column("old_logprob"), "num_items_in_batch": _TOKENS}, tools=False
            ),
        },
        each=("micro_batch",),
        fakes={f"{MODULE}.selective_log_softmax": first_logit},
        produced_by={"inputs": "sdpo_trainer.py, _prepare_training_batch"},
        unused=frozenset({"token", "prompt_length"}),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum")},
        settings={loss_type: {**_PLAIN, "length": _LENGTH} if loss_type == "dr_grpo" else _PLAIN},
        claims=_PPO | _TYPES[loss_type],
        reach=f"SDPOTrainer with distillation_weight below 1, loss_type={loss_type}",
        requires=(equal_micro_batches, no_empty_response, trains_whole_completions),
    )

"""slime's advantages: the trainer's function under each estimator, and the route from raw rewards."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import torch
from torch import Tensor

from rl_sentinel.core.batch import EXCLUDED, Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.slime.ragged import LOSS, arguments, back, rollout_data
from rl_sentinel.frameworks.target import Target

PATH = f"{LOSS}.compute_advantages_and_returns"
REWARDS = "slime.ray.rollout.RolloutManager._post_process_rewards"
SAMPLE = "slime.utils.types.Sample"

#: Arguments that every call reads, off where slime's own default is off.
FIXED = {
    "use_rollout_logprobs": False,
    "custom_advantage_function_path": None,
    "normalize_advantages": False,
    "use_opd": False,
    "kl_loss_type": "k1",
    "gamma": 1.0,
    "lambd": 1.0,
}

_DOC = "loss.py, compute_advantages_and_returns, and the estimator in ppo_utils.py"
_GROUPS = "rollout.py, _post_process_rewards: mean and deviation over n_samples_per_prompt rewards each"

_TEMPORAL = claims(_DOC, credit="temporal", scope="sequence")
_WHITENED = claims(f"{_DOC}: whitened over the data-parallel group", credit="temporal", scope="batch")
_OUTCOME = claims(_DOC, credit="outcome", scope="sequence")

FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "ppo": ({"advantage_estimator": "ppo", "kl_coef": 0.05}, _TEMPORAL),
    "ppo, coefficient 0": ({"advantage_estimator": "ppo", "kl_coef": 0.0}, _TEMPORAL),
    "ppo, discounted": ({"advantage_estimator": "ppo", "kl_coef": 0.05, "gamma": 0.9, "lambd": 0.95}, _TEMPORAL),
    "ppo, whitened": ({"advantage_estimator": "ppo", "kl_coef": 0.05, "normalize_advantages": True}, _WHITENED),
    "grpo": ({"advantage_estimator": "grpo", "kl_coef": 0.0}, _OUTCOME),
    "gspo": ({"advantage_estimator": "gspo", "kl_coef": 0.0}, _OUTCOME),
    "cispo": ({"advantage_estimator": "cispo", "kl_coef": 0.0}, _OUTCOME),
    "reinforce_plus_plus": ({"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.05}, _TEMPORAL),
    "reinforce_plus_plus, whitened": (
        {"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.05, "normalize_advantages": True},
        _WHITENED,
    ),
    "reinforce_plus_plus_baseline": (
        {"advantage_estimator": "reinforce_plus_plus_baseline", "kl_coef": 0.05},
        _OUTCOME,
    ),
}

#: Estimators whose rewards are normalised per prompt before.
GROUPED: Mapping[str, tuple[Settings, Claims]] = {
    "grpo, from rewards": (
        {"advantage_estimator": "grpo", "kl_coef": 0.0, "grpo_std_normalization": True},
        claims(_GROUPS, credit="outcome", scope="group", baseline="relative", standardised=True),
    ),
    "grpo, from rewards, mean only": (
        {"advantage_estimator": "grpo", "kl_coef": 0.0, "grpo_std_normalization": False},
        claims(_GROUPS, credit="outcome", scope="group", baseline="relative", standardised=False),
    ),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The function once per family, then the route."""
    try:
        target.find(PATH)
    except Unbindable as why:
        yield Unbound(PATH, "advantage", str(why))
        return
    for name, (settings, said) in FAMILIES.items():
        yield _boundary(target, PATH, name, settings, said)
    try:
        target.find(REWARDS)
        target.find(SAMPLE)
    except Unbindable as why:
        yield Unbound(f"{REWARDS} -> {PATH}", "advantage", str(why))
        return
    for name, (settings, said) in GROUPED.items():
        yield _boundary(target, f"{REWARDS} -> {PATH}", name, settings, said)


def _boundary(target: Target, path: str, name: str, settings: Settings, said: Claims) -> Boundary:
    estimator, route = str(settings["advantage_estimator"]), path != PATH
    kl = bool(settings["kl_coef"]) or estimator == "ppo"
    reads = {"reward", "length", "mask"} | ({"old_logprob", "ref_logprob"} if kl else set())
    reads |= ({"value"} if estimator == "ppo" else set()) | ({"group"} if route else set())
    outputs = {
        "advantage": Output("B T", "reward", "advantage"),
        "returns": Output("B T", "reward", "returns"),
    }
    if kl:
        outputs["kl"] = Output("B T", "nats", "kl.k1")

    def call(batch: Batch, knobs: Settings) -> Mapping[str, Tensor]:
        args = arguments(knobs, **FIXED)
        rewards = _normalised(target, batch, args) if route else batch.reward.tolist()
        data = rollout_data(batch, rewards)
        target.call(PATH, args, data)
        return {
            "advantage": back(data["advantages"], batch),
            "returns": back(data["returns"], batch),
            "kl": back(data["kl"], batch),
            "after/old_logprob": back(data["log_probs"], batch),
            "after/ref_logprob": back(data["ref_log_probs"], batch),
            "after/value": back(data["values"], batch),
            "after/mask": back(data["loss_masks"], batch).bool(),
        }

    return Boundary(
        path=path,
        stage="advantage",
        call=call,
        reads=frozenset(reads),
        outputs=outputs,
        settings={name: settings},
        claims=said,
        reach=", ".join(f"--{k.replace('_', '-')} {v}" for k, v in settings.items()),
    )


def _normalised(target: Target, batch: Batch, args: Namespace) -> list[float]:
    """Rewards after slime's own normalisation, which knows groups by their place in the list.

    Raises:
        NotApplicable: where a prompt's samples stand apart, or each prompt has one.
    """
    labels, sizes = torch.unique_consecutive(batch.group, return_counts=True)
    if len(labels) != len(set(labels.tolist())):
        raise NotApplicable("samples of a prompt stand apart: slime groups by position")
    most = int(sizes.max())
    if most == 1 and args.grpo_std_normalization:
        raise NotApplicable("slime_validate_args turns the deviation off where a prompt has one sample")
    vars(args).update(
        rewards_normalization=True, n_samples_per_prompt=most, rollout_batch_size=len(labels), reward_key=None
    )
    samples = [_sample(target, batch, row) for row in range(batch.rows)]
    manager = SimpleNamespace(custom_reward_post_process_func=None, args=args)
    _, rewards = target.call(REWARDS, manager, samples)
    return list(rewards)


def _sample(target: Target, batch: Batch, row: int) -> object:
    return target.call(
        SAMPLE,
        group_index=int(batch.group[row]),
        index=row,
        response_length=int(batch.length[row]),
        reward=float(batch.reward[row]),
        loss_mask=batch.mask[row, : int(batch.length[row])].int().tolist(),
        remove_sample=int(batch.excluded[row]) == EXCLUDED["rejected"],
    )

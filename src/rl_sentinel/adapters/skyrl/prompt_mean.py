"""SkyRL's policy loss as a mean over prompts: the trainer divides advantages by the tokens of each prompt."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.requirements import has_trained_token, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier
from rl_sentinel.adapters.skyrl.advantages import path_of, registered
from rl_sentinel.adapters.skyrl.arguments import PRODUCED_BY, TRAINER, UIDS, Arguments, arguments, trainer
from rl_sentinel.adapters.skyrl.loss_modes import MODES
from rl_sentinel.adapters.skyrl.losses import PLAIN, REGISTRY, loss_step, section
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

SCALE = f"{TRAINER}._normalize_advantages"
PROMPTS = "skyrl.train.dataset.preprocess.compute_prompt_boundaries"

_REDUCTION: Settings = {"trainer.algorithm.loss_reduction": "prompt_mean"}

_MEAN = claims(
    "ppo_utils.py, apply_loss_reduction_to_advantages_minibatch: token mean within each prompt, then average over all "
    "prompts",
    aggregation="prompt-mean",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of PPO's loss after the trainer's scaling, in releases that have this mean."""
    if not target.has(PROMPTS) or not target.has(SCALE):
        return
    try:
        functions, forms = registered(target, REGISTRY), arguments(target)
    except Unbindable as why:
        yield Unbound.because(SCALE, "policy-loss", why)
        return
    if PLAIN in functions:
        yield from bindable(target, _boundary(functions[PLAIN], forms))


def scaled(
    owner: Any,  # noqa: ANN401 - the target's class
    whole: Any,  # noqa: ANN401 - a fake with the attributes of the trainer
    prompts: Callable[[list[str]], list[tuple[int, int]]],
    data: Any,  # noqa: ANN401 - the target's batch
    uids: list[str],
) -> torch.Tensor:
    """Scale the advantages of two mini-batches, and return the scaled advantages of the second mini-batch.

    The first mini-batch has the same rows in reverse order, with other prompts.
    """
    rows = len(uids)
    both = type(data)({name: torch.cat([column.flip(0), column]) for name, column in data.items()})
    both.metadata = dict(data.metadata or {})
    ends = prompts([*(f"before-{uid}" for uid in reversed(uids)), *uids])
    after = owner._normalize_advantages(whole, both, [(0, rows), (rows, 2 * rows)], ends)  # noqa: SLF001 - the audited method
    advantages: torch.Tensor = after["advantages"][rows:]
    return advantages


def _boundary(function: Callable[..., Any], forms: Arguments) -> Boundary:
    tensors = {
        "advantages": forms.column("advantage"),
        "response_mask": forms.response_mask,
        "loss_mask": forms.loss_mask,
    }
    mode, path = MODES[PLAIN], path_of(function)
    scale = Step(
        call=scaled,
        name="scaled",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "whole": trainer(_REDUCTION),
            "prompts": Constant(Function(PROMPTS)),
            "data": forms.batch(tensors, {}),
            "uids": UIDS,
        },
        produced_by={"data": PRODUCED_BY},
    )
    loss = loss_step(path, function, forms, Earlier(Use("scaled")), section(PLAIN, mode.fields))
    return Boundary(
        path=f"{SCALE} -> {path}",
        stage="policy-loss",
        steps=(scale, loss),
        unused=frozenset({"rollout_logprob"}),
        outputs={"loss": Output("", "", "loss", at=Use("result")[0])},
        settings={"prompt_mean": {**_REDUCTION, **mode.numbers}},
        claims=mode.claims | mode.algorithm | _MEAN,
        reach="trainer.algorithm.loss_reduction=prompt_mean",
        requires=(has_trained_token, prompts_are_contiguous),
    )

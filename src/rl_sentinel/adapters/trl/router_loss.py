"""TRL's supervised trainer on a mixture of experts: the weight of the router loss in a training step."""

import functools
import inspect
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import one_rank
from rl_sentinel.adapters.trl.pair_codecs import TokenLogprobs
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.supervised import SFT, step_boundary, trainers_of_ranks
from rl_sentinel.adapters.trl.supervised_trainer import alone, train_rank
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: The router's loss of every batch.
ROUTER = 2.0

#: Field of the model's configuration -> the coefficient that is set.
COEFFICIENT: Settings = {"router_aux_loss_coef": 0.25}

_DOC = (
    "sft_trainer.py, aux_loss_enabled; transformers, MixtralForCausalLM.forward: with output_router_logits, the loss "
    "that the model returns includes router_aux_loss_coef times the auxiliary loss"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step, in releases that add the router loss."""
    path = f"{SFT}.compute_loss"
    if not target.has(path) or target.fails(path):
        return
    source = inspect.getsource(inspect.getmodule(target.find(SFT)))  # type: ignore[arg-type]  # a class has a module
    if "self.aux_loss_enabled" in source:
        plain: Settings = {"loss_type": "nll"} if "loss_type" in fields_of(target, SFT) else {}
        yield from bindable(target, _router(path, plain, masked="completion_mask" in source))


def acting_coefficient(entry: Any, trainers: list[Any], coefficient: float) -> dict[str, Tensor]:  # noqa: ANN401 - a method, trainers
    """Take a training step with a router loss of 0, and one with the router loss :data:`ROUTER`.

    Returns ``loss``: the loss of the first step; and ``coefficient``: the factor of the router loss in the second.
    """
    (trainer,) = trainers
    losses = []
    for router in (0.0, ROUTER):
        own = copy(trainer)
        own.model = own.model_wrapped = deepcopy(trainer.model)
        own.model.config.router_aux_loss_coef = coefficient
        own.model.forward = functools.partial(routed, own.model.forward, coefficient, router)
        own.aux_loss_enabled = True
        for name in {"aux_loss_coef", *COEFFICIENT} & set(vars(own)):
            setattr(own, name, coefficient)
        losses.append(train_rank(entry, alone(own)))
    return {"loss": losses[0], "coefficient": (losses[1] - losses[0]).detach() / ROUTER}


def routed(forward: Callable[..., Any], coefficient: float, router: float, *inputs: Any, **more: Any) -> Any:  # noqa: ANN401 - as a model
    """The outputs of a model whose loss includes the router loss, as in transformers."""
    more.pop("output_router_logits", None)
    found = forward(*inputs, **more)
    found.aux_loss = torch.tensor(router)
    if getattr(found, "loss", None) is not None:
        found.loss = found.loss + coefficient * router
    return found


def _router(path: str, plain: Settings, *, masked: bool) -> Boundary:
    (name,) = COEFFICIENT
    trainers = trainers_of_ranks(plain, {"logprobs": TokenLogprobs("logprob", leaf=False)}, masked=masked, alone=True)
    outputs = {
        "step": Output("", at=Use("trained")["loss"]),
        name: Output("", "", f"setting.{name}", at=Use("trained")["coefficient"], form=Number()),
    }
    made = step_boundary(
        path,
        "router",
        acting_coefficient,
        trainers,
        outputs,
        claims(_DOC),
        settings={**plain, **COEFFICIENT},
        masked=masked,
        stage="config",
    )
    (step,) = made.steps
    steps = (replace(step, arguments={**step.arguments, "coefficient": Knob(name)}),)
    return replace(made, steps=steps, reads=frozenset(), requires=(*made.requires, one_rank))

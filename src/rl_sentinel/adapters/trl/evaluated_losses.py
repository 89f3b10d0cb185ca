"""The loss that TRL's GRPO trainers log in an evaluation: the accumulation of training steps must not change it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO
from rl_sentinel.adapters.trl.loss_families import Family
from rl_sentinel.adapters.trl.losses import clipping_subclasses, grpo, release_family
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Loss families that are evaluated: one for each way to divide the loss.
EVALUATED = ("no loss type", "default", "grpo", "bnpo", "dr_grpo", "cispo")

#: The setting that only training steps may read.
ACCUMULATION = "gradient_accumulation_steps"

#: The class attribute that the trainer itself need not define.
ENTRY = "prediction_step"

_SAYS = (
    "transformers, TrainingArguments, gradient_accumulation_steps: steps to accumulate the gradients for; "
    "Trainer.evaluation_loop: the loss of an evaluation is the mean of those of prediction_step, which accumulates none"
)
_PRODUCER = (
    "transformers, Trainer.evaluation_loop: prediction_step on each batch with the model in evaluation mode, also "
    "between training steps; grpo_trainer.py, _prepare_inputs: an evaluation scores each batch, without a buffer"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of an evaluation's loss, of GRPO and of its subclasses with a clipped loss.

    :mod:`losses` reports a trainer that fails.
    """
    path = f"{GRPO}.{ENTRY}"
    if not target.has(path) or target.fails(path) or not target.has(f"{GRPO}._compute_loss"):
        return
    for owner in (GRPO, *clipping_subclasses(target)):
        loss = f"{owner}._compute_loss"
        for name in EVALUATED:
            family = release_family(target, name, loss)
            if family is not None and "prompts" not in source_of(target.find(loss)):
                yield from bindable(target, _evaluated(target, owner, name, family))


def evaluated_loss(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    policy: object,
    inputs: dict[str, Any],
    steps: int,
) -> Tensor:
    """The loss of a scored batch in an evaluation that a training run with ``steps`` accumulation steps starts."""
    learner.args.gradient_accumulation_steps = learner.current_gradient_accumulation_steps = steps
    learner.model.training = False
    learner._prepare_inputs = dict  # noqa: SLF001 - the batch has been scored
    loss: Tensor = entry(learner, policy, inputs, True)[0]  # noqa: FBT003 - as evaluation_loop
    return loss


def _evaluated(target: Target, owner: str, name: str, family: Family) -> Boundary:
    derived = "" if owner == GRPO else owner
    trained = grpo(target, f"{owner}._compute_loss", name, family, derived)
    *before, loss = trained.steps
    entry = f"{owner}.{ENTRY}" if ENTRY in vars(target.find(owner)) else f"{GRPO}.{ENTRY}"
    arguments = {
        "entry": Constant(Function(entry)),
        "learner": loss.arguments["self"],
        "policy": loss.arguments["model"],
        "inputs": loss.arguments["inputs"],
        "steps": Knob(ACCUMULATION),
    }
    step = replace(loss, call=evaluated_loss, arguments=arguments, each=(), produced_by={"inputs": _PRODUCER})
    return replace(
        trained,
        path=entry,
        stage="batch",
        steps=(*before, step),
        outputs={"loss": Output("", "", at=Use("loss"))},
        settings={f"loss of {name}{', ' if derived else ''}{_package(derived)}": {**family.settings, ACCUMULATION: 1}},
        claims=claims(_SAYS, inert={ACCUMULATION: (1, 2)}),
        reach=f"trainer.evaluate() or eval_strategy with {ACCUMULATION} above 1",
    )


def _package(path: str) -> str:
    """The package of a subclass, which sets its boundary apart from that of the trainer whose method it inherits."""
    return ".".join(path.split(".")[2:3])

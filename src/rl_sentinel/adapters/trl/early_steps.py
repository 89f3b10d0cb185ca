"""GRPO's first training steps in TRL: what a step reports of micro-batches that sample, score and train by themselves."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, group_sizes
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, Completions, Prompts, micro_batch_count, trainer
from rl_sentinel.adapters.trl.early_losses import PATH, KnownModel, ready_to_sample
from rl_sentinel.adapters.trl.ranks import RankAccelerator
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.scoring import pads_to_the_longest, rollout_conditions
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_SETTINGS: Settings = {"kl_loss_coef": 0.25}

_SCALED = claims(
    "transformers, Trainer.training_step: the loss is divided by the accumulation steps, as one large batch",
    denominator="given",
) | claims("grpo_trainer.py, compute_loss: advantages of the rewards of a prompt", on_policy_gradient="other")

_PRODUCER = "transformers, Trainer.training_step: each micro-batch has other prompts, with all their completions"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The step of releases whose loss generates."""
    if not target.has(PATH) or target.fails(PATH) or "reward_funcs" not in source_of(target.find(PATH)):
        return
    yield from bindable(target, _steps())


def prompts_stay_whole(inputs: Inputs) -> str:
    """Each micro-batch has all completions of its prompts."""
    sizes, parts = group_sizes(inputs), inputs.layout.micro_batches
    return "" if len(sizes) % parts == 0 else "a micro-batch would have some completions of a prompt only"


def _steps() -> Boundary:
    models: dict[str, Codec] = {"logprobs": Column("logprob"), "completions": Completions()}
    other: dict[str, Codec] = {"logprobs": Column("ref_logprob"), "completions": Completions()}
    at = {"completions": "rollout.completions"}
    parts: dict[str, Codec] = {
        "trainer": trainer("grpo", _SETTINGS),
        "micro_batches": micro_batch_count(),
        "policy": Object(KnownModel, models, at),
        "reference": Object(KnownModel, other, at),
        "rewards": Column("reward", PerRow("list")),
        "rows": Prompts(),
        "generations": Derived(lambda inputs: max(group_sizes(inputs))),
    }
    places = {"trainer": "", "micro_batches": "args.gradient_accumulation_steps", "policy": "known"}
    places |= {"reference": "ref_model", "rewards": "reward_funcs.0.values", "rows": "prompts"}
    places |= {"generations": "num_generations"}
    step = Step(
        call=accumulated,
        name="loss",
        arguments={
            "entry": Constant(Function(PATH)),
            "parts": EachCut(Object(part_of_step, parts, at=places), "micro_batches"),
        },
        produced_by={"parts": _PRODUCER},
    )
    return Boundary(
        path=PATH,
        stage="policy-loss",
        steps=(step,),
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings={"accumulated": _SETTINGS},
        claims=_SCALED,
        reach="gradient_accumulation_steps above 1",
        requires=(
            *rollout_conditions(masked=False),
            pads_to_the_longest,
            equal_micro_batches,
            prompts_stay_whole,
        ),
    )


def part_of_step(  # noqa: PLR0913 - a trainer, and what its models and functions answer
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    policy: KnownModel,
    reference: KnownModel,
    rewards: list[float],
    rows: list[dict[str, str]],
    generations: int,
) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before one micro-batch of an optimizer step."""
    ready = ready_to_sample(trainer, reference, rewards, generations)
    ready.accelerator = RankAccelerator(trainer.accelerator, 0, 1)
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    ready.known, ready.prompts = policy, rows
    return ready


def accumulated(entry: Callable[..., Any], parts: list[Any]) -> Tensor:  # noqa: ARG001 - the method that each step enters
    """The sum of what the training steps of the micro-batches differentiate."""
    for part in parts:
        part.training_step(part.known, part.prompts[:: part.num_generations], None)
    return sum((loss for part in parts for loss in part.accelerator.losses), Tensor([0.0]).sum())

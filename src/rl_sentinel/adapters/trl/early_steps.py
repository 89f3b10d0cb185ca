"""GRPO's training step in early TRL releases, where each micro-batch samples and scores its completions."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import (
    Completions,
    trainer,
    trains_every_completion,
    trains_whole_completions,
)
from rl_sentinel.adapters.trl.early_losses import PATH, KnownModel, ready_to_sample
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Completions of each prompt.
TWICE = 2

_SETTINGS: Settings = {"kl_loss_coef": 0.25}

_SCALED = claims(
    "transformers, Trainer.training_step: the loss is divided by the accumulation steps, as one large batch",
    denominator="given",
) | claims("grpo_trainer.py, compute_loss: advantages of the rewards of a prompt", on_policy_gradient="other")

_PRODUCER = "transformers, Trainer.training_step: each micro-batch has other prompts, with all their completions"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step, in releases whose loss method also samples the completions."""
    if not target.has(PATH) or target.fails(PATH) or "reward_funcs" not in source_of(target.find(PATH)):
        return
    yield from bindable(target, _steps())


class TwicePolicy(KnownModel):
    """A fake model that samples the same completion twice for each prompt."""

    def __init__(self, logprobs: Tensor, completions: list[list[int]]) -> None:
        """Store ``[B, T]`` log-probs of one completion per prompt, and the token ids of these completions."""
        super().__init__(logprobs.repeat_interleave(TWICE, 0), [ids for ids in completions for _ in range(TWICE)])
        self.single, self.asked = logprobs, completions


def _steps() -> Boundary:
    at = {"logprobs": "single", "completions": "asked"}
    parts: dict[str, Codec] = {
        "trainer": trainer("grpo", _SETTINGS),
        "micro_batches": MICRO_BATCHES,
        "policy": Object(TwicePolicy, {"logprobs": Column("logprob"), "completions": Completions()}, at),
        "reference": Object(TwicePolicy, {"logprobs": Column("ref_logprob"), "completions": Completions()}, at),
    }
    places = {"trainer": "", "micro_batches": "args.gradient_accumulation_steps"}
    places |= {"policy": "known", "reference": "ref_model"}
    return one_call(
        path=PATH,
        stage="policy-loss",
        call=accumulated,
        name="loss",
        arguments={
            "entry": Constant(Function(PATH)),
            "parts": EachCut(Object(part_of_step, parts, at=places), "micro_batches"),
        },
        produced_by={"parts": _PRODUCER},
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings={"accumulated": _SETTINGS},
        claims=_SCALED,
        reach="gradient_accumulation_steps above 1",
        requires=(
            no_empty_response,
            trains_whole_completions,
            trains_every_completion,
            no_extra_padding,
            equal_micro_batches,
        ),
    )


def part_of_step(trainer: Any, micro_batches: int, policy: TwicePolicy, reference: TwicePolicy) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before one micro-batch of an optimizer step. The completions of a prompt have different rewards."""
    ready = ready_to_sample(trainer, reference, [0.0, 1.0] * len(policy.asked), TWICE)
    ready.accelerator = RankAccelerator(trainer.accelerator, 0, 1)
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    ready.known = policy
    return ready


def accumulated(entry: Callable[..., Any], parts: list[Any]) -> Tensor:  # noqa: ARG001 - the method that each step enters
    """Run the training step of each micro-batch, and return the sum of the losses passed to ``backward``."""
    for part in parts:
        prompts = [{"prompt": "w1"} for _ in part.known.asked]
        part.training_step(part.known, prompts, None)
    return sum((loss for part in parts for loss in part.accelerator.losses), Tensor([0.0]).sum())

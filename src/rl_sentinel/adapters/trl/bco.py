"""TRL's BCO on responses labelled desirable or not: a training step over the micro-batches of an optimizer step."""

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.kto import ALTERNATING, LabelledFeatures
from rl_sentinel.adapters.trl.pair_codecs import TokenLogprobs, as_pairs, rows_are_pairs, tokens_have_probabilities
from rl_sentinel.adapters.trl.preference_families import Family
from rl_sentinel.adapters.trl.preference_trainers import train_on_logprobs
from rl_sentinel.adapters.trl.preferences import SCALED, Release, families_of, ready_trainer, trainer_path
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

BCO = "trl.trainer.bco_trainer.BCOTrainer"
BCO_NOW = "trl.experimental.bco.bco_trainer.BCOTrainer"

BCO_FAMILIES: Mapping[str, Family] = {
    "default": Family({"beta": 0.5}, claims("bco_trainer.py, bco_loss: binary classification of the implicit rewards")),
}

_PRODUCER = "bco_trainer.py: prompts, completions and labels of the tokenized data set; the trainer's own collator"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """BCO's step."""
    for found in families_of(target, trainer_path(target, BCO, BCO_NOW), BCO_FAMILIES):
        if isinstance(found, Unbound):
            yield found
        else:
            yield from bindable(target, _training_step(*found))


def _training_step(release: Release, name: str, family: Family) -> Boundary:
    entry = f"{release.path}.compute_loss"
    before = Step(call=itself, name="trainer", arguments={"0": ready_trainer(release, family)})
    step = Step(
        call=learn_at_a_fixed_point,
        name="loss",
        arguments={
            "entry": Constant(Function(entry)),
            "learner": Earlier(Use("trainer")),
            "features": LabelledFeatures(whole='"completion_labels"' in release.source),
            "logprobs": TokenLogprobs("logprob"),
            "ref_logprobs": TokenLogprobs("ref_logprob", leaf=False),
        },
        each=("micro_batch",),
        produced_by={"features": _PRODUCER},
    )
    return Boundary(
        path=entry,
        stage="policy-loss",
        steps=(before, step),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum")},
        settings={name: family.settings},
        claims=ALTERNATING | SCALED | family.claims,
        reach="every step",
        requires=(rows_are_pairs, every_row_trains, tokens_have_probabilities),
        domain=as_pairs,
    )


def learn_at_a_fixed_point(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor,
) -> Tensor:
    """The loss of one micro-batch, with the running mean of the rewards as it is after many steps: it stays at 0."""
    learner.running = SimpleNamespace(mean=0.0, update=_nothing)
    return train_on_logprobs(entry, learner, features, logprobs, ref_logprobs)


def _nothing(*_arguments: object, **_more: object) -> None:
    """Do not move the mean."""

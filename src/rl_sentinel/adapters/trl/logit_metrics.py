"""Logit metrics that TRL's trainers of pairs and single responses log: means, entropy, token accuracy."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding, PairFeatures, as_pairs, rows_are_pairs
from rl_sentinel.adapters.trl.preference_families import (
    CPO_FAMILIES,
    DPO_FAMILIES,
    KTO_FAMILIES,
    ORPO_FAMILIES,
    Family,
)
from rl_sentinel.adapters.trl.preference_trainers import train_one_batch
from rl_sentinel.adapters.trl.preferences import (
    CPO,
    CPO_NOW,
    DPO,
    ORPO,
    ORPO_NOW,
    PAIRED,
    Release,
    families_of,
    ready_trainer,
    same,
    trainer_path,
)
from rl_sentinel.adapters.trl.token_model import answer_with_logits
from rl_sentinel.adapters.trl.unpaired import ALTERNATING, KTO, KTO_BEFORE, LabelledFeatures, logged_numbers
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Logged name -> what it is: means of logits, then what their distribution says.
LEVELS: Mapping[str, str] = {
    "logits/chosen": "mean logit of preferred responses",
    "logits/rejected": "mean logit of other responses",
}
DISTRIBUTIONS: Mapping[str, str] = {
    "entropy": "entropy of trained tokens",
    "mean_token_accuracy": "accuracy of preferred responses",
}

_LOGS = (
    "docs/source/dpo_trainer.md, Logged metrics: average logits of the tokens of chosen and of rejected responses, "
    "average entropy; dpo_trainer.py: token accuracy for the chosen completions"
)

#: Each trainer's places in the releases, the settings under which it is asked, and whether its rows are pairs.
TRAINERS: tuple[tuple[tuple[str, ...], Family, bool], ...] = (
    ((DPO,), DPO_FAMILIES["default"], True),
    ((CPO, CPO_NOW), CPO_FAMILIES["default"], True),
    ((ORPO, ORPO_NOW), ORPO_FAMILIES["default"], True),
    ((KTO, KTO_BEFORE), KTO_FAMILIES["default"], False),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The numbers of each trainer that the release logs; a trainer that cannot be built is reported with its loss."""
    for places, family, paired in TRAINERS:
        for found in families_of(target, trainer_path(target, *places), {"default": family}):
            if isinstance(found, Unbound):
                continue
            release, _, _ = found
            for name, numbers in {"logged logits": LEVELS, "logged of logits": DISTRIBUTIONS}.items():
                logged = {n: what for n, what in numbers.items() if f'{n}"]' in release.source}
                if logged:
                    yield from bindable(target, _numbers(release, family, name, logged, paired=paired))


def _numbers(release: Release, family: Family, name: str, logged: Mapping[str, str], *, paired: bool) -> Boundary:
    entry = f"{release.path}.compute_loss"
    features: Codec = (
        PairFeatures(whole=release.whole, names=release.names, prompts=1)
        if paired
        else LabelledFeatures(whole='"completion_labels"' in release.source, prompts=1)
    )
    step = Step(
        call=learn_logits,
        name="loss",
        arguments={
            "entry": Constant(Function(entry)),
            "learner": Earlier(Use("trainer")),
            "features": features,
            "logits": Column("logits", NoPadding(), leaf=True),
            "tokens": Column("token", NoPadding()),
            "level": Constant(logged.keys() <= LEVELS.keys()),
        },
        produced_by={"features": "the trainer's own data collator, from token ids as its tokenized data set has them"},
    )
    return Boundary(
        path=entry,
        stage="policy-loss",
        steps=(
            Step(call=same, name="trainer", arguments={"0": ready_trainer(release, family)}),
            step,
            Step(call=logged_numbers, name="logs", arguments={"learner": Earlier(Use("trainer"))}),
        ),
        outputs={n: Output("", "nats", at=Use("logs")[n], form=Number()) for n in logged},
        settings={name: family.settings},
        claims=(PAIRED if paired else ALTERNATING) | claims(_LOGS, output_algorithms=dict(logged)),
        reach="every step",
        requires=(rows_are_pairs, every_row_trains),
        domain=as_pairs,
    )


def learn_logits(  # noqa: PLR0913 - a trainer, its batch, and what the model answers
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logits: Tensor,
    tokens: Tensor,
    *,
    level: bool,
) -> Tensor:
    """The loss of a batch whose policy, and reference, have these logits.

    ``entry`` is the method of the target that the step enters.
    """
    answer_with_logits(learner.model, logits, tokens, level=level)
    if getattr(learner, "ref_model", None) is not None:
        answer_with_logits(learner.ref_model, logits, tokens, level=level)
    return train_one_batch(entry, learner, learner.data_collator(features))

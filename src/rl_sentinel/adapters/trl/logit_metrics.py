"""TRL's logit metrics of preference trainers: mean logits, entropy, token accuracy."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.pairs import rows_are_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.kto import (
    ALTERNATING,
    KTO,
    KTO_EXPERIMENTAL,
    LabeledFeatures,
    logged_metrics,
    takes_whole,
)
from rl_sentinel.adapters.trl.pair_codecs import NoPadding, PairFeatures, TripleFeatures, as_pairs
from rl_sentinel.adapters.trl.preference_families import (
    CPO_FAMILIES,
    DPO_FAMILIES,
    KTO_FAMILIES,
    ORPO_FAMILIES,
    TPO_FAMILIES,
    Family,
)
from rl_sentinel.adapters.trl.preference_trainers import train_one_batch
from rl_sentinel.adapters.trl.preferences import (
    CPO,
    CPO_EXPERIMENTAL,
    DPO,
    ORPO,
    ORPO_EXPERIMENTAL,
    PAIRED,
    TPO,
    Release,
    default_releases,
    ready_trainer,
)
from rl_sentinel.adapters.trl.token_model import set_logits
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Logged name -> algorithm of the metric: means of logits, then metrics of their distribution.
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

#: Paths of each trainer by release, its settings, and whether its rows are pairs.
TRAINERS: tuple[tuple[tuple[str, ...], Family, bool], ...] = (
    ((DPO,), DPO_FAMILIES["default"], True),
    ((CPO, CPO_EXPERIMENTAL), CPO_FAMILIES["default"], True),
    ((ORPO, ORPO_EXPERIMENTAL), ORPO_FAMILIES["default"], True),
    ((KTO, KTO_EXPERIMENTAL), KTO_FAMILIES["default"], False),
    ((TPO,), TPO_FAMILIES["smoothed"], True),  # without the third response, over which entropy is averaged too
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics that each trainer logs.

    Trainers that cannot be built are reported by :mod:`preferences`.
    """
    for release, family, paired in default_releases(target, TRAINERS):
        for name, metrics in {"logged logits": LEVELS, "logged of logits": DISTRIBUTIONS}.items():
            logged = {n: algorithm for n, algorithm in metrics.items() if stores(release.source, n)}
            if logged:
                yield from bindable(target, _metrics(release, family, name, logged, paired=paired))


def stores(source: str, name: str) -> bool:
    """Whether the source of a trainer stores the metric, instead of only reading it for evaluation.

    Example:
        >>> from rl_sentinel.adapters.trl.logit_metrics import stores
        >>> stores('metrics[f"{prefix}entropy"] = 1', "entropy"), stores('metrics["entropy_sum"] = 1', "entropy")
        (True, True)
        >>> stores('{"eval_entropy": metrics["entropy"]}', "entropy")
        False
    """
    return bool(re.search(rf'(?<!: metrics)\[f?"(\{{\w+\}}/?)?{name}(_sum)?"\]', source))


def _metrics(release: Release, family: Family, name: str, logged: Mapping[str, str], *, paired: bool) -> Boundary:
    entry = f"{release.path}.compute_loss"
    pairs = TripleFeatures if '"reference_ids"' in release.source else PairFeatures
    features: Codec = (
        pairs(whole=release.whole, names=release.names, prompts=1)
        if paired
        else LabeledFeatures(whole=takes_whole(release), prompts=1)
    )
    step = Step(
        call=train_on_logits,
        name="loss",
        arguments={
            "entry": Constant(Function(entry)),
            "learner": Earlier(Use("trainer")),
            "features": features,
            "logits": Column("logits", NoPadding(), leaf=True),
            "tokens": Column("token", NoPadding()),
            "level": Constant(logged.keys() <= LEVELS.keys()),
        },
        produced_by={"features": "the trainer's own data collator, on token ids of a tokenized data set"},
    )
    return Boundary(
        path=entry,
        stage="policy-loss",
        steps=(
            Step(call=itself, name="trainer", arguments={"0": ready_trainer(release, family)}),
            step,
            Step(call=logged_metrics, name="logs", arguments={"learner": Earlier(Use("trainer"))}),
        ),
        outputs={
            n: Output("", "nats", over="live" if n in LEVELS else "", at=Use("logs")[n], form=Number()) for n in logged
        },
        settings={name: family.settings},
        claims=(PAIRED if paired else ALTERNATING) | claims(_LOGS, output_algorithms=dict(logged)),
        reach="every step",
        requires=(rows_are_pairs, every_row_trains),
        domain=as_pairs,
    )


def train_on_logits(  # noqa: PLR0913 - a trainer, its batch, and the model's logits
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logits: Tensor,
    tokens: Tensor,
    *,
    level: bool,
) -> Tensor:
    """Train on a batch for which policy and reference return these logits, and return the loss.

    ``entry`` is not called here: it names the audited method, which the training step calls.
    """
    set_logits(learner.model, logits, tokens, level=level)
    if getattr(learner, "ref_model", None) is not None:
        set_logits(learner.ref_model, logits, tokens, level=level)
    return train_one_batch(entry, learner, learner.data_collator(features))

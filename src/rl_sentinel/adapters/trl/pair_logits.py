"""Mean logits that TRL's KTO and BCO log, over micro-batches and ranks with any number of desirable responses."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_row_trains
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.kto import logged_metrics
from rl_sentinel.adapters.trl.logit_metrics import LEVELS, stores
from rl_sentinel.adapters.trl.pair_accumulation import pairs_of_one_length
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.pair_ranks import (
    LOGS,
    TRAINERS,
    features_of,
    learn_on_ranks,
    rows_are_pairs_of_ranks,
    step_of_micro_batches,
    step_of_ranks,
)
from rl_sentinel.adapters.trl.preference_families import Family
from rl_sentinel.adapters.trl.preference_trainers import train_one_batch
from rl_sentinel.adapters.trl.preferences import Release, default_releases
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.token_model import set_logits
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the logged means of each trainer whose rows are not pairs.

    A trainer that cannot be built is reported by the module of its loss.
    """
    for release, family, _ in default_releases(target, (one for one in TRAINERS if not one[2])):
        names = [name for name in LEVELS if stores(release.source, name)]
        if names:
            yield from bindable(
                target, _over_micro_batches(release, family, names), _over_ranks(release, family, names)
            )


def _logits() -> dict[str, Codec]:
    return {"logits": Column("logits", NoPadding()), "tokens": Column("token", NoPadding())}


def _over_micro_batches(release: Release, family: Family, names: list[str]) -> Boundary:
    step = step_of_micro_batches(release, family, logs_of_micro_batches, _features(release), _logits())
    made = _boundary(release, family, step, "logged logits over micro-batches", names)
    reach = "gradient_accumulation_steps above 1"
    return replace(made, reach=reach, requires=(rows_are_pairs_of_ranks, equal_micro_batches, every_row_trains))


def _over_ranks(release: Release, family: Family, names: list[str]) -> Boundary:
    step = step_of_ranks(release, family, logs_of_ranks, _features(release), _logits())
    made = _boundary(release, family, step, "logged logits over ranks", names)
    return replace(made, reach="several processes", requires=(rows_are_pairs_of_ranks, every_row_trains))


def _features(release: Release) -> Codec:
    return replace(features_of(release, paired=False), prompts=1)


def _boundary(release: Release, family: Family, step: Step, setting: str, names: list[str]) -> Boundary:
    """The boundary of logged means. The rows have equal lengths, so that padding cannot enter the means."""
    return Boundary(
        path=f"{release.path}.compute_loss",
        stage="policy-loss",
        steps=(step,),
        outputs={n: Output("", "nats", over="all", at=Use("logs")[n], form=Number()) for n in names},
        settings={setting: family.settings},
        claims=claims(LOGS, pairing="adjacent"),
        domain=pairs_of_one_length,
    )


def logs_of_micro_batches(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logits: Tensor,
    tokens: Tensor,
) -> Mapping[str, Any]:
    """Take an optimizer step over these responses, split into equal micro-batches, and return the logged metrics.

    ``entry`` is the audited method, which the step calls.
    """
    learner.accelerator = RankAccelerator(learner.accelerator, 0, 1)
    _know(learner, logits, tokens)
    size = len(features) // learner.args.gradient_accumulation_steps
    for start in range(0, len(features), size):
        train_one_batch(entry, learner, learner.data_collator(features[start : start + size]))
    return logged_metrics(learner)


def logs_of_ranks(entry: Callable[..., Any], learners: list[Any], logits: Tensor, tokens: Tensor) -> Mapping[str, Any]:
    """Take a training step on each rank, and return the metrics that rank 0 logs."""
    return learn_on_ranks(entry, learners, len(logits), lambda learner, own: _know(learner, logits[own], tokens[own]))


def _know(learner: Any, logits: Tensor, tokens: Tensor) -> None:  # noqa: ANN401 - a trainer
    """Set the logits that policy and reference compute."""
    set_logits(learner.model, logits, tokens, level=True)
    if getattr(learner, "ref_model", None) is not None:
        set_logits(learner.ref_model, logits, tokens, level=True)

"""Metrics that TRL's preference trainers log in an evaluation, and the mode under which they log them."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.pairs import rows_are_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.kto import ALTERNATING
from rl_sentinel.adapters.trl.log_modes import logged_elsewhere
from rl_sentinel.adapters.trl.pair_codecs import as_pairs, tokens_have_probabilities
from rl_sentinel.adapters.trl.pair_ranks import TRAINERS, features_of, log_probs, names_of
from rl_sentinel.adapters.trl.preference_families import Family
from rl_sentinel.adapters.trl.preference_trainers import train_one_batch
from rl_sentinel.adapters.trl.preferences import LOGGED, PAIRED, Release, default_releases, ready_trainer
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.token_model import set_logprobs
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

_MODES = (
    "docs/source/dpo_trainer.md, Logged metrics: the same in training and in evaluation; transformers, "
    "Trainer.evaluation_loop: metrics of an evaluation start with eval_"
)
_EVALUATED = "transformers, Trainer.evaluation_loop: prediction_step on each batch, without gradients; then Trainer.log"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of an evaluation step and a training step of each trainer.

    A trainer that cannot be built is reported by the module of its loss.
    """
    for release, family, paired in default_releases(target, TRAINERS):
        yield from bindable(target, _evaluation(target, release, family, paired=paired))


def _evaluation(target: Target, release: Release, family: Family, *, paired: bool) -> Boundary:
    trainer = target.find(release.path)
    entry = "prediction_step" if "prediction_step" in vars(trainer) else "compute_loss"
    names = names_of(release, paired=paired) if family.rewards else []
    elsewhere = Output("", "count", "logged_elsewhere", at=Use("logs")["elsewhere"], form=Number())
    logged = {f"eval_{n}": Output("", "nats", at=Use("logs")[n], form=Number()) for n in names}
    return one_call(
        path=f"{release.path}.{entry}",
        stage="batch",
        call=evaluate_and_train,
        name="logs",
        arguments={
            "entry": Constant(Function(f"{release.path}.compute_loss")),
            "learner": ready_trainer(release, family),
            "features": features_of(release, paired=paired),
            "names": Constant(tuple(names)),
            **log_probs(release),
        },
        produced_by={"features": _EVALUATED},
        outputs={"step": Output("", at=Use("logs")["step"]), "elsewhere": elsewhere, **logged},
        settings={"evaluation": family.settings},
        claims=(PAIRED if paired else ALTERNATING)
        | claims(_MODES, output_algorithms={f"eval_{n}": LOGGED[n] for n in names}),
        reach="eval_strategy=steps",
        requires=(rows_are_pairs, every_row_trains, tokens_have_probabilities),
        domain=as_pairs,
    )


def evaluate_and_train(  # noqa: PLR0913 - a trainer, its batch, and the log-probs of its models
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    names: tuple[str, ...],
    logprobs: Tensor,
    ref_logprobs: Tensor | None = None,
) -> dict[str, Any]:
    """Evaluate a batch, then train on it.

    Returns the metrics of the evaluation by name; ``elsewhere``: how many metrics have the wrong mode; and ``step``:
    the loss of the training step. A metric that is not logged is NaN. ``entry`` is the audited method, which both
    steps call.
    """
    learner.accelerator = RankAccelerator(learner.accelerator, 0, 1)
    set_logprobs(learner.model, logprobs)
    if ref_logprobs is not None:
        set_logprobs(learner.ref_model, ref_logprobs)
    if hasattr(learner, "running"):  # BCO's mean of rewards, which is an integer before the first step only
        learner.running.mean = float(learner.running.mean)
    batch, losses = learner.data_collator(features), list[Tensor]()
    elsewhere = logged_elsewhere(
        learner,
        lambda: learner.prediction_step(learner.model, dict(batch), True),  # noqa: FBT003 - as evaluation_loop
        lambda: losses.append(train_one_batch(entry, learner, dict(batch))),
    )
    evaluated = learner.state.log_history[0]
    return {"elsewhere": elsewhere, "step": losses[0], **{n: evaluated.get(f"eval_{n}", float("nan")) for n in names}}

"""Metrics that TRL's preference trainers log, over ranks and micro-batches."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.bco import BCO, BCO_EXPERIMENTAL, BCO_FAMILIES
from rl_sentinel.adapters.trl.kto import KTO, KTO_EXPERIMENTAL, LabeledFeatures, logged_metrics, takes_whole
from rl_sentinel.adapters.trl.pair_codecs import PairFeatures, TokenLogprobs, as_pairs, tokens_have_probabilities
from rl_sentinel.adapters.trl.preference_families import (
    CPO_FAMILIES,
    DPO_FAMILIES,
    KTO_FAMILIES,
    ORPO_FAMILIES,
    Family,
)
from rl_sentinel.adapters.trl.preference_trainers import train_on_logprobs, train_one_batch
from rl_sentinel.adapters.trl.preferences import (
    CPO,
    CPO_EXPERIMENTAL,
    DPO,
    ORPO,
    ORPO_EXPERIMENTAL,
    Release,
    default_releases,
    ready_trainer,
)
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.token_model import set_logprobs
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

#: Logged names, each a mean over all pairs or responses.
LOGGED = (
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "rewards/accuracies",
    "logps/chosen",
    "logps/rejected",
)

#: Paths of each trainer by release, the settings under which it is called, and whether its rows are pairs.
TRAINERS: tuple[tuple[tuple[str, ...], Family, bool], ...] = (
    ((DPO,), DPO_FAMILIES["default"], True),
    ((CPO, CPO_EXPERIMENTAL), CPO_FAMILIES["default"], True),
    ((ORPO, ORPO_EXPERIMENTAL), ORPO_FAMILIES["default"], True),
    ((KTO, KTO_EXPERIMENTAL), KTO_FAMILIES["default"], False),
    ((BCO, BCO_EXPERIMENTAL), BCO_FAMILIES["default"], False),
)

LOGS = (
    "docs/source/dpo_trainer.md, Logged metrics: means over the batch of an optimizer step, which all processes share"
)

IN_ORDER = "transformers, Trainer: micro-batches of consecutive responses, each with any number of desirable responses"

BATCHES = "accelerate, BatchSamplerShard: the processes take different batches of the data set, all of one size"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics of each trainer over ranks and, if its rows are not pairs, over micro-batches.

    A trainer that cannot be built is reported by the module of its loss.
    """
    for release, family, paired in default_releases(target, TRAINERS):
        names = names_of(release, paired=paired)
        yield from bindable(target, *_over_ranks(release, family, names, paired=paired))
        if not paired:
            means = [name for name in names if name != "rewards/margins"]  # needs both labels
            yield from bindable(target, *_over_micro_batches(release, family, means))


def rows_are_pairs_of_ranks(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide into pairs on each rank; empty otherwise."""
    rows, ranks = inputs.mini_batch.rows, inputs.layout.ranks
    return "" if rows and rows % (2 * ranks) == 0 else "the rows do not divide into pairs for each rank"


def names_of(release: Release, *, paired: bool) -> list[str]:
    """The names of :data:`LOGGED` that the source of a trainer has."""
    return [n for n in LOGGED if f'{n}"' in release.source or (not paired and f'"{n}_sum"' in release.source)]


def features_of(release: Release, *, paired: bool) -> PairFeatures:
    """The rows of the data set: pairs, or single responses with alternating labels."""
    if paired:
        return PairFeatures(whole=release.whole, names=release.names)
    return LabeledFeatures(whole=takes_whole(release))


def log_probs(release: Release) -> dict[str, Codec]:
    """The log-probs of all rows under the model and, if the trainer has one, under the reference model."""
    columns = {"logprobs": "logprob", **({"ref_logprobs": "ref_logprob"} if release.reference else {})}
    return {name: TokenLogprobs(column, leaf=False) for name, column in columns.items()}


def step_of_ranks(
    release: Release, family: Family, call: Callable[..., Any], features: Codec, columns: Mapping[str, Codec]
) -> Step:
    """A step that collects the logged metrics of all ranks with ``call``; each rank has a part of the rows."""
    parts: dict[str, Codec] = {
        "trainer": ready_trainer(release, family),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1], frozenset({"ranks"})),
        "features": features,
    }
    at = {"trainer": "", "rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    return Step(
        call=call,
        name="logs",
        arguments={
            "entry": Constant(Function(f"{release.path}.compute_loss")),
            "learners": EachCut(Object(ready_on_rank, parts, at=at), "ranks"),
            **columns,
        },
        produced_by={"learners": BATCHES},
    )


def _over_ranks(release: Release, family: Family, names: list[str], *, paired: bool) -> Iterator[Boundary]:
    if not names:
        return
    features = features_of(release, paired=paired)
    step = step_of_ranks(release, family, logs_of_ranks, features, log_probs(release))
    made = _boundary(release, family, step, "logged over ranks", names)
    yield replace(made, reach="several processes", requires=(rows_are_pairs_of_ranks, *made.requires))


def step_of_micro_batches(
    release: Release, family: Family, call: Callable[..., Any], features: Codec, columns: Mapping[str, Codec]
) -> Step:
    """A step that collects the logged metrics of an optimizer step over several micro-batches with ``call``."""
    arguments: dict[str, Codec] = {
        "entry": Constant(Function(f"{release.path}.compute_loss")),
        "learner": ready_trainer(release, family),
        "features": features,
        **columns,
    }
    return Step(call=call, name="logs", arguments=arguments, produced_by={"features": IN_ORDER})


def _over_micro_batches(release: Release, family: Family, names: list[str]) -> Iterator[Boundary]:
    if not names:
        return
    features = features_of(release, paired=False)
    step = step_of_micro_batches(release, family, logs_of_micro_batches, features, log_probs(release))
    made = _boundary(release, family, step, "logged over micro-batches", names)
    reach = "gradient_accumulation_steps above 1"
    yield replace(made, reach=reach, requires=(rows_are_pairs_of_ranks, equal_micro_batches, *made.requires))


def _boundary(release: Release, family: Family, step: Step, setting: str, names: list[str]) -> Boundary:
    return Boundary(
        path=f"{release.path}.compute_loss",
        stage="policy-loss",
        steps=(step,),
        outputs={n: Output("", "nats", over="all", at=Use("logs")[n], form=Number()) for n in names},
        settings={setting: family.settings},
        claims=claims(LOGS, pairing="adjacent"),
        requires=(every_row_trains, tokens_have_probabilities),
        domain=as_pairs,
    )


def ready_on_rank(trainer: Any, rank: int, ranks: int, features: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of a rank before an optimizer step on these features."""
    trainer.accelerator = RankAccelerator(trainer.accelerator, rank, ranks)
    trainer.model, trainer.features = deepcopy(trainer.model), features
    if getattr(trainer, "ref_model", None) is not None:
        trainer.ref_model = deepcopy(trainer.ref_model)
    return trainer


def learn_on_ranks(
    entry: Callable[..., Any],
    learners: list[Any],
    rows: int,
    know: Callable[[Any, slice], None],
) -> Mapping[str, Any]:
    """Take a training step on each rank, and return the metrics that rank 0 logs.

    ``entry`` is the audited method, which the step calls. ``know`` sets what the models of a trainer compute for its
    rank's share of the ``rows``.
    """
    size = rows // len(learners)

    def learn(rank: int) -> None:
        learner = learners[rank]
        know(learner, slice(rank * size, (rank + 1) * size))
        train_one_batch(entry, learner, learner.data_collator(learner.features))

    run_on_ranks(len(learners), learn)
    return logged_metrics(learners[0])


def logs_of_ranks(
    entry: Callable[..., Any], learners: list[Any], logprobs: Tensor, ref_logprobs: Tensor | None = None
) -> Mapping[str, Any]:
    """Take a training step on each rank; the log-probs ``[B, T]`` contain the rows of all ranks."""

    def know(learner: Any, own: slice) -> None:  # noqa: ANN401 - a trainer
        set_logprobs(learner.model, logprobs[own])
        if ref_logprobs is not None:
            set_logprobs(learner.ref_model, ref_logprobs[own])

    return learn_on_ranks(entry, learners, len(logprobs), know)


def logs_of_micro_batches(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor | None = None,
) -> Mapping[str, Any]:
    """Take an optimizer step over these responses, split into equal micro-batches, and return the logged metrics.

    ``entry`` is the audited method, which the step calls; the log-probs ``[B, T]`` contain the rows of all responses.
    """
    learner.accelerator = RankAccelerator(learner.accelerator, 0, 1)
    size = len(features) // learner.args.gradient_accumulation_steps
    for start in range(0, len(features), size):
        train_on_logprobs(entry, learner, features[start : start + size], logprobs, ref_logprobs)
    return logged_metrics(learner)

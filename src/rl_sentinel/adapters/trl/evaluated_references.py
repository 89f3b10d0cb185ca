"""TRL's DPO and KTO with precomputed reference log-probs: those of a data set that is passed to an evaluation."""

import contextlib
import io
import uuid
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.pairs import rows_are_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.kto import KTO
from rl_sentinel.adapters.trl.pair_accumulation import pairs_of_one_length
from rl_sentinel.adapters.trl.pair_codecs import TokenLogprobs, tokens_have_probabilities
from rl_sentinel.adapters.trl.pair_ranks import features_of
from rl_sentinel.adapters.trl.precomputed import COLUMNS, FLAGS, KTO_COLUMNS
from rl_sentinel.adapters.trl.preference_families import DPO_FAMILIES, KTO_FAMILIES, Family
from rl_sentinel.adapters.trl.preferences import DPO, Release, default_releases, ready_trainer
from rl_sentinel.adapters.trl.token_model import set_logprobs
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_TRAINERS: tuple[tuple[tuple[str, ...], Family, bool], ...] = (
    ((DPO,), DPO_FAMILIES["default"], True),
    ((KTO,), KTO_FAMILIES["default"], False),
)

#: The methods that compute the columns of an evaluation; the second one in earlier releases.
_METHODS = ("evaluate", "get_eval_dataloader")

_SAYS = claims(
    "dpo_trainer.py, ref_model: by default the initial model; dpo_config.py, precompute_ref_log_probs: without a "
    "reference model in training, so a data set that comes later has the same reference, or is refused",
    conserves=True,
)

#: Setting -> the optimizer steps before the evaluation.
_STEPS = {"evaluated before training": 0, "evaluated after a step": 1}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of an evaluation that precomputes reference log-probs, in releases that do so.

    A trainer that cannot be built is reported by the module of its loss.
    """
    for release, family, paired in default_releases(target, _TRAINERS):
        methods = vars(target.find(release.path))
        method = next((name for name in _METHODS if name in methods), "")
        names = COLUMNS if paired else (KTO_COLUMNS,)
        found = next((one for one in names if f'"{one[0]}"' in release.source), None)
        if method and found and "precompute_ref_log_probs" in release.known:
            yield from bindable(
                target, _evaluation(release, family, method, found if paired else found[:1], paired=paired)
            )


def evaluated_references(  # noqa: PLR0913 - a trainer, its data set, and the log-probs of its model at two times
    method: Callable[..., Any],  # noqa: ARG001 - names the audited code
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor,
    names: tuple[str, ...],
    steps: int,
) -> Tensor:
    """Evaluate a data set without a reference model; return the reference log-probs ``[B, T]`` that the loss gets.

    The model has ``ref_logprobs`` at first, and ``logprobs`` after a step. Where the loss gets other numbers per
    response than the sums of the first ones, the difference is spread over the response. A data set that is refused
    after a step has no wrong reference. ``method`` names the audited code, which the evaluation calls.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    learner = copy(learner)
    learner.ref_model, learner.args, learner.state = None, copy(learner.args), copy(learner.state)
    learner.state.global_step, learner.state.log_history = steps, []
    for holder in (learner, learner.args):
        for flag in FLAGS:
            if hasattr(holder, flag):
                setattr(holder, flag, True)
    learner.args.per_device_eval_batch_size = len(features)
    learner._prepare_dataset = lambda dataset, *_more: dataset  # noqa: SLF001 - the rows have token ids
    set_logprobs(learner.model, logprobs if steps else ref_logprobs)
    batches, evaluate_batch = list[dict[str, Any]](), learner.prediction_step

    def recorded(model: object, inputs: dict[str, Any], *options: object, **more: object) -> Any:  # noqa: ANN401 - a loss
        batches.append(dict(inputs))
        return evaluate_batch(model, inputs, *options, **more)

    learner.prediction_step = recorded
    rows = Dataset.from_list(features)
    rows._fingerprint = uuid.uuid4().hex  # noqa: SLF001 - cached columns of rows with this name are reused
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            learner.evaluate(rows)
    except ValueError:
        if steps:
            return ref_logprobs
        raise
    batch = batches[0]
    if names[0] not in batch:  # a collator that drops the columns: the loss computes them in the same way
        batch = dict(zip(names, learner.compute_ref_log_probs(batch), strict=True))
    found = torch.stack([torch.as_tensor(batch[name]) for name in names], 1).flatten().to(ref_logprobs)
    sums = ref_logprobs.sum(1)
    wrong = ~torch.isclose(found, sums, rtol=1e-4, atol=1e-4)
    return ref_logprobs + (torch.where(wrong, found - sums, 0.0) / ref_logprobs.shape[1]).unsqueeze(1)


def _evaluation(release: Release, family: Family, method: str, names: tuple[str, ...], *, paired: bool) -> Boundary:
    settings: dict[str, Settings] = {name: {**family.settings, "steps": steps} for name, steps in _STEPS.items()}
    return one_call(
        path=f"{release.path}.{method}",
        stage="batch",
        call=evaluated_references,
        name="references",
        arguments={
            "method": Constant(Function(f"{release.path}.{method}")),
            "learner": ready_trainer(release, family),
            "features": features_of(release, paired=paired),
            "logprobs": TokenLogprobs("logprob", leaf=False),
            "ref_logprobs": TokenLogprobs("ref_logprob", leaf=False),
            "names": Constant(names),
            "steps": Knob("steps"),
        },
        produced_by={
            "features": "dpo_trainer.py and kto_trainer.py, evaluate: rows of the data set after tokenization"
        },
        outputs={"ref_logprob": Output("B T", "nats", "ref_logprob", at=Use("references"))},
        settings=settings,
        claims=_SAYS,
        reach="precompute_ref_log_probs=True without PEFT, and evaluate(a data set) after a step",
        requires=(rows_are_pairs, every_row_trains, tokens_have_probabilities),
        domain=pairs_of_one_length,
    )

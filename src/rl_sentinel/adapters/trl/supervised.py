"""TRL's supervised fine-tuning: loss and logged metrics of an optimizer step on a prepared data set."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_parts, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import one_rank, trains_whole_completions
from rl_sentinel.adapters.trl.pair_codecs import NoPadding, PairFeatures, TokenLogprobs, trains_with_probability
from rl_sentinel.adapters.trl.preference_trainers import make_supervised_trainer
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.supervised_trainer import count_wrong_modes, start_optimizer_step, train_ranks
from rl_sentinel.adapters.trl.token_model import FIRST, LARGEST, PROMPT
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs, Sizes

SFT = "trl.trainer.sft_trainer.SFTTrainer"

_PRODUCER = (
    "sft_trainer.py, _prepare_dataset: ids of prompt and completion, and a mask or labels of the trained tokens; "
    "the trainer's own collator, and get_batch_samples of transformers, which counts the labels of an optimizer step"
)

_MEAN = claims(
    "transformers, Trainer.get_batch_samples: num_items_in_batch counts the labels of all micro-batches and ranks",
    aggregation="token-mean",
    denominator="given",
)

#: Setting -> fields of the configuration, and the algorithm.
LOSSES: Mapping[str, tuple[Settings, str]] = {
    "default": ({}, "negative log-likelihood"),
    "dft": ({"loss_type": "dft"}, "dynamic fine-tuning"),
    "chunked": ({"loss_type": "chunked_nll"}, "negative log-likelihood"),
}

#: Logged name -> algorithm of the metric.
LOGGED = {"entropy": "entropy of trained tokens", "mean_token_accuracy": "accuracy of trained tokens"}

_LOGS = "docs/source/sft_trainer.md, Logged metrics: average entropy and accuracy of the tokens that train"

_MODES = (
    "transformers, Trainer.evaluate and DefaultFlowCallback.on_step_end: an evaluation that the user starts, and one "
    "that is scheduled after a step whose metrics are not logged yet"
)


@dataclass(frozen=True, slots=True)
class Examples(PairFeatures):
    """One dict per row: token ids of prompt and response, and the mask of the response.

    With ``masked``, a response may have untrained tokens, and prompts have several lengths.
    """

    masked: bool = True

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``length``, which determines the length of each response."""
        return frozenset({"length"})

    def put(self, inputs: Inputs) -> list[dict[str, Any]]:
        """One dict of token ids and mask per row."""
        batch, width = inputs.batch, inputs.batch.width
        rows = []
        for row, (length, mask) in enumerate(zip(batch.length.tolist(), batch.mask.tolist(), strict=True)):
            ids = [FIRST + row * width + n for n in range(length)]
            prompt = self.prompt(ids) if self.masked else [PROMPT]
            rows.append({"prompt": prompt, "response": ids, "trained": [int(m) for m in mask[:length]]})
        return rows

    def sizes(self, value: list[dict[str, Any]]) -> Sizes:
        """The number of rows, and the lengths."""
        return Sizes(rows=len(value), length=torch.tensor([len(row["response"]) for row in value]))

    def responses(self, value: list[dict[str, Any]]) -> list[list[int]]:
        """The trained token ids of each row."""
        return [[token for token, m in zip(row["response"], row["trained"], strict=True) if m] for row in value]


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss under each setting, of the metrics that it logs, and of the mode in which it logs them."""
    path = f"{SFT}.compute_loss"
    if not target.has(path):
        return
    if not target.fails(SFT) and "compute_loss" not in vars(target.find(SFT)):
        return  # the loss of transformers
    if why := target.fails(path):
        yield Unbound(path, "policy-loss", why)
        return
    trainer = target.find(SFT)
    source = inspect.getsource(inspect.getmodule(trainer))  # type: ignore[arg-type]  # a class has a module
    known = fields_of(target, SFT)
    masked = "completion_mask" in source or "assistant_masks" in source
    for name, (settings, algorithm) in LOSSES.items():
        if set(settings) <= set(known) and all(f'"{value}"' in source for value in settings.values()):
            yield from bindable(target, _loss(path, name, settings, algorithm, masked=masked))
    logged = {n: algorithm for n, algorithm in LOGGED.items() if f'["{n}"]' in source}
    if logged:
        yield from bindable(target, _metrics(path, logged, masked=masked, by_mode='"train": defaultdict' in source))
    if "self._metrics" in source:
        yield from bindable(target, _modes(path, masked=masked))


def trainers_of_ranks(
    settings: Settings, outputs: Mapping[str, Codec], *, masked: bool, alone: bool = False
) -> EachCut:
    """The trainers of all ranks; with ``alone``, each rank has one micro-batch."""
    built: dict[str, Codec] = {"trainer": Constant(Function(SFT)), **{name: IfSet(name) for name in settings}}
    at = {"trainer": "__class__", **{name: f"args.{name}" for name in settings}}
    parts: dict[str, Codec] = {
        "trainer": Object(make_supervised_trainer, built, at=at, shared=True),
        "micro_batches": Constant(1) if alone else MICRO_BATCHES,
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1], frozenset({"ranks"})),
        "examples": Examples(masked=masked),
        **outputs,
    }
    places = {"trainer": "", "micro_batches": "args.gradient_accumulation_steps"}
    places |= {"rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    return EachCut(Object(start_optimizer_step, parts, at=places), "ranks")


def step_boundary(  # noqa: PLR0913 - the parts in which the boundaries differ
    path: str,
    name: str,
    call: Any,  # noqa: ANN401 - a function
    trainers: EachCut,
    outputs: Mapping[str, Output],
    claimed: Claims,
    *,
    settings: Settings,
    masked: bool,
    stage: Any = "policy-loss",  # noqa: ANN401 - a stage
) -> Boundary:
    """The boundary of a function that runs an optimizer step of these trainers."""
    whole = () if masked else (trains_whole_completions,)
    return one_call(
        path=path,
        stage=stage,
        call=call,
        name="trained",
        arguments={"entry": Constant(Function(path)), "trainers": trainers},
        produced_by={"trainers": _PRODUCER},
        outputs=outputs,
        settings={name: settings},
        claims=claimed,
        reach=", ".join(f"{k}={v}" for k, v in settings.items()) or "every step",
        requires=(
            equal_parts,
            no_empty_response,
            every_row_trains,
            *whole,
            *(() if "logits" in name else (tokens_have_probabilities,)),
        ),
        domain=trains_with_probability,
    )


def tokens_have_probabilities(inputs: Inputs) -> str:
    """The reason to skip a batch with a log-prob near 0, or above, at a trained token; empty otherwise.

    The fake model gives the remaining probability to another token.
    """
    certain = (inputs.batch.logprob > LARGEST) & inputs.batch.mask
    return "the probability of a token is not below 1" if bool(certain.any()) else ""


def _loss(path: str, name: str, settings: Settings, algorithm: str, *, masked: bool) -> Boundary:
    trainers = trainers_of_ranks(settings, {"logprobs": TokenLogprobs("logprob", leaf=False)}, masked=masked)
    outputs = {"loss": Output("", "", "loss", at=Use("trained")["loss"])}
    claimed = _MEAN | claims(f"sft_config.py, loss_type {settings.get('loss_type', 'nll')!r}", algorithm=algorithm)
    return step_boundary(path, name, train_ranks, trainers, outputs, claimed, settings=settings, masked=masked)


def _metrics(path: str, logged: Mapping[str, str], *, masked: bool, by_mode: bool) -> Boundary:
    model_outputs: dict[str, Codec] = {"logits": Column("logits", NoPadding()), "tokens": Column("token", NoPadding())}
    place = Use("trained")["trainer"].attribute("_metrics")
    place = place["train"] if by_mode else place
    units = {"entropy": "nats"}
    outputs = {n: Output("", units.get(n, ""), over="live", at=place[n], form=Logged()) for n in logged}
    claimed = claims(_LOGS, output_algorithms=dict(logged))
    trainers = trainers_of_ranks({}, model_outputs, masked=masked, alone=True)
    return step_boundary(path, "logged of logits", train_ranks, trainers, outputs, claimed, settings={}, masked=masked)


def _modes(path: str, *, masked: bool) -> Boundary:
    trainers = trainers_of_ranks({}, {"logprobs": TokenLogprobs("logprob", leaf=False)}, masked=masked, alone=True)
    outputs = {
        "step": Output("", at=Use("trained")["step"]),
        **{
            name: Output("", "count", "logged_elsewhere", at=Use("trained")[name], form=Number())
            for name in ("elsewhere", "mixed")
        },
    }
    boundary = step_boundary(
        path,
        "evaluation",
        count_wrong_modes,
        trainers,
        outputs,
        claims(_MODES),
        settings={},
        masked=masked,
        stage="batch",
    )
    return replace(boundary, reach="trainer.evaluate(), and eval_strategy", requires=(*boundary.requires, one_rank))

"""PPO in TRL before 0.12: the forward pass, the KL that a step logs, and the boundaries of the other PPO modules."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import every_row_trains, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import ppo_losses, ppo_rollouts, ppo_steps
from rl_sentinel.adapters.trl.pair_codecs import NoPadding, trains_with_probability
from rl_sentinel.adapters.trl.ppo_fakes import AttendingModel, collate
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.token_model import PROMPT, token_ids
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Refused

PPO = "trl.trainer.ppo_trainer.PPOTrainer"
CONFIG = "trl.trainer.ppo_config.PPOConfig"

#: Names that old releases import from transformers, and that only generation calls.
FORMER_NAMES = ("top_k_top_p_filtering",)

#: Value of ``kl_penalty`` -> KL estimator.
PENALTIES: Mapping[str, str] = {"kl": "k1", "abs": "abs", "mse": "k2"}

#: Setting -> rows of a forward pass; by default, the last pass of a batch has one row.
SIZES: Mapping[str, Codec] = {
    "row by row": Constant(1),
    **{f"padding at the {side}": Derived(lambda inputs: inputs.batch.rows) for side in ("left", "right")},
}

_LAID_OUT = "ppo_trainer.py, batched_forward_pass, docstring: log-probs and values of the responses, by row"
_REPORTED = (
    "ppo_config.py, kl_penalty: the KL that penalizes the reward; logging.mdx, objective/kl: mean KL to the reference"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the forward pass, the rollouts, the losses, and the KL that a step reports."""
    path = f"{PPO}.batched_forward_pass"
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(path, "batch", why)
        return
    parameters = inspect.signature(target.find(path)).parameters
    other = "right" if "model" in parameters else "left"  # else as in the examples of the release
    for name in ("default", "row by row", f"padding at the {other}"):
        yield from bindable(target, _forward(path, name, masked=False))
    if "response_masks" in parameters:
        yield from bindable(target, _forward(path, "response masks", masked=True))
    yield from ppo_rollouts.boundaries(target, PPO)
    yield from ppo_losses.boundaries(target, PPO)
    yield from ppo_steps.boundaries(target, PPO, CONFIG)
    stats = f"{PPO}.record_step_stats"
    fields = inspect.signature(target.find(CONFIG)).parameters
    if target.has(stats) and "kl_penalty" in fields:
        yield from bindable(target, *(_reported_kl(target, name) for name in PENALTIES))


def restore_former_names() -> None:
    """Add to transformers the names that old TRL releases import; no boundary calls these functions."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        return
    for name in FORMER_NAMES:
        if not hasattr(transformers, name):
            setattr(transformers, name, removed_function)


def removed_function(*_arguments: object, **_more: object) -> None:
    """A placeholder for a function that transformers removed; only generation calls it.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"the installed transformers lacks {' or '.join(FORMER_NAMES)}: install a release that has it")


def _forward(path: str, name: str, *, masked: bool) -> Boundary:
    arguments: dict[str, Codec] = {
        **functions(entry=path, kind=PPO),
        "logprobs": Column("logprob", NoPadding()),
        "values": Column("value", NoPadding()),
        "lengths": ResponseMask(NoPadding()),
        "side": Constant(name.partition("padding at the ")[2]),
        "size": SIZES.get(name, Derived(lambda inputs: max(1, inputs.batch.rows - 1))),
    }
    if masked:
        arguments["response_masks"] = Column("mask", Ragged(), torch.int64)
    sources = (
        "ppo_trainer.py, step: queries and responses as lists of tensors; DataCollatorForLanguageModeling pads them at "
        "the padding_side of the tokenizer"
    )
    computed = Use("computed")
    outputs = {"logprob": "nats", "value": "reward"} | ({"mask": ""} if masked else {})
    return one_call(
        path=path,
        stage="batch",
        call=forward_pass,
        name="computed",
        arguments=arguments,
        explain=as_refusal,
        produced_by={"logprobs": sources},
        outputs={
            name: Output("B T", unit, name, at=computed[name], form=AsReturned()) for name, unit in outputs.items()
        },
        settings={name: {}},
        claims=claims(_LAID_OUT, conserves=True),
        reach="step(queries, responses, scores" + (", response_masks)" if masked else ")"),
        requires=(no_empty_response,),
        domain=valid_responses,
    )


def valid_responses(batch: Batch) -> Batch:
    """The batch with at least one token per response, and with log-probs below 0."""
    return trains_with_probability(with_columns(batch, length=batch.length.clamp(min=1)), rows=False)


def forward_pass(  # noqa: PLR0913 - a method and a class of the target, and a step's data
    entry: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    logprobs: Tensor,
    values: Tensor,
    lengths: Tensor,
    side: str,
    size: int,
    response_masks: list[Tensor] | None = None,
) -> dict[str, Tensor]:
    """Run the trainer's forward pass; return ``[B, T]`` log-probs and values of the responses, and the mask, if any.

    ``side`` is the side of the padding; if it is empty, releases whose trainer collates the rows pad at the right, and
    others at the left.
    """
    rows, width = logprobs.shape
    counts = lengths.sum(1).tolist()
    ids = token_ids(rows, width)
    queries = [torch.full((1 + b % 2,), PROMPT) for b in range(rows)]
    responses = [row[:n] for row, n in zip(ids, counts, strict=True)]
    sequences = [torch.cat(pair) for pair in zip(queries, responses, strict=True)]
    model = AttendingModel(logprobs, values)
    self = bare_instance(kind, config=SimpleNamespace(mini_batch_size=size), is_encoder_decoder=False)
    if "model" not in inspect.signature(entry).parameters:
        self.data_collator = partial(collate, side=side or "right")
        return collating_forward_pass(partial(entry, self, queries, responses), self, model, width)
    data = collate([{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in sequences], side or "left")
    masks = {} if response_masks is None else {"response_masks": [mask.clone() for mask in response_masks]}
    results = entry(self, model, queries, responses, data, **masks)
    logprobs = results[0].round(decimals=5)  # log-softmax rounds at the seventh decimal
    columns = {"logprob": logprobs, "value": results[1 + (len(results) > 3)], "mask": results[-1].float()}
    if not masks:  # the mask says which positions are the response
        return {name: _trained(tensor, results[-1], rows, width) for name, tensor in columns.items()}
    return {name: _responses(tensor, counts, width) for name, tensor in columns.items()}


def collating_forward_pass(entry: Callable[[], Any], trainer: Any, model: Any, width: int) -> dict[str, Tensor]:  # noqa: ANN401 - a trainer, a model
    """Run the forward pass in releases whose trainer collates the rows, and stack the returned rows."""
    rows = len(model.backbone.logprobs)
    trainer.__dict__ |= {"model": model, "ref_model": model}
    trainer.accelerator = SimpleNamespace(device="cpu")
    trainer.config.batch_size, trainer.config.forward_batch_size = rows, trainer.config.mini_batch_size
    logprobs, _, values = entry()
    columns = {"logprob": [row.round(decimals=5) for row in logprobs], "value": values}
    missing = [model.values.new_full((width,), torch.nan)] * (rows - len(logprobs))
    return {
        name: torch.stack([*(pad(row, (0, width - len(row)), value=torch.nan) for row in column), *missing])
        for name, column in columns.items()
    }


def _responses(tensor: Tensor, counts: list[int], width: int) -> Tensor:
    """Each response, which ends its row, at the start of the row; a missing row contains NaN."""
    rows = [pad(row[len(row) - n :], (0, width - n)) for row, n in zip(tensor, counts, strict=False)]
    missing = [tensor.new_full((width,), torch.nan)] * (len(counts) - len(rows))
    return torch.stack([*rows, *missing])


def _trained(tensor: Tensor, mask: Tensor, rows: int, width: int) -> Tensor:
    """The trained positions at the start of each row, then NaN; a missing row contains NaN."""
    found = tensor.new_full((rows, width), torch.nan)
    for own, row, trains in zip(found, tensor, mask.bool(), strict=False):
        kept = row[trains][:width]
        own[: len(kept)] = kept
    return found


def as_refusal(error: Exception, _arguments: Mapping[str, Any]) -> Exception:
    """Treat an error about tensor sizes as a refusal of the batch: TRL stops instead of training on wrong data."""
    return Refused(str(error)) if isinstance(error, RuntimeError) and "size" in str(error) else error


def _reported_kl(target: Target, penalty: str) -> Boundary:
    """The boundary of the KL that a step reports, under one estimator of the KL penalty."""
    rewards = f"{PPO}.compute_rewards"
    with_kls = "kls" in source_of(target.find(f"{PPO}.record_step_stats"))
    settings: Settings = {"kl_penalty": penalty}
    trainer = Object(
        make_ppo,
        {"kind": Constant(Function(PPO)), "kl_penalty": Knob("kl_penalty")},
        at={"kind": "__class__", "kl_penalty": "config.kl_penalty"},
    )
    data: dict[str, Codec] = {
        "scores": Column("reward", PerRow()),
        "logprobs": Column("logprob", NoPadding()),
        "ref_logprobs": Column("ref_logprob", NoPadding()),
        "masks": Column("mask", NoPadding(), torch.int64),
    }
    first = Step(call=rewards, name="shaped", arguments={"self": trainer, **data})
    result = Use("shaped")
    rest: dict[str, Codec] = {
        "trainer": Earlier(Use("self")),
        **{name: Earlier(Use(name)) for name in data},
        "non_score_reward": Earlier(result[1]),
        **({"kls": Earlier(result[2])} if with_kls else {}),
    }
    second = Step(
        call=record_stats, name="stats", arguments={"entry": Constant(Function(f"{PPO}.record_step_stats")), **rest}
    )
    return Boundary(
        path=f"{rewards} -> {PPO}.record_step_stats",
        stage="metric",
        steps=(first, second),
        unused=frozenset({"reward"}),
        outputs={
            "objective/kl": Output(
                "", "nats", "kl.mean", over="rows", at=Use("stats")["objective/kl"], form=AsReturned()
            )
        },
        settings={f"kl_penalty={penalty}": settings},
        claims=claims(_REPORTED, kl=PENALTIES[penalty], output_pairs={"objective/kl": "logprob against ref_logprob"}),
        reach=f"kl_penalty={penalty}",
        requires=(has_trained_token, every_row_trains),
        domain=trains_with_probability,
    )


def make_ppo(kind: Any, kl_penalty: str) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer with the attributes that the computation of rewards and statistics reads."""
    config = SimpleNamespace(kl_penalty=kl_penalty, use_score_scaling=False, score_clip=None)
    return bare_instance(kind, config=config, kl_ctl=SimpleNamespace(value=0.25))


def record_stats(entry: Callable[..., Any], trainer: Any, scores: Tensor, **data: Any) -> dict[str, Any]:  # noqa: ANN401 - a trainer, its data
    """Record a step, and return its statistics. Some releases expect the scores as a list, others as one tensor."""
    tokens = [torch.zeros(2) for _ in scores]
    train = {"val/error": torch.zeros(1), "returns/var": torch.ones(1)}
    stacked = "torch.stack(data" in source_of(entry)
    in_form = list(scores) if stacked else scores
    stats: dict[str, Any] = entry(
        trainer, kl_coef=0.25, scores=in_form, queries=tokens, responses=tokens, train_stats=train, **data
    )
    return stats

"""Arguments of TRL's single-method training loops: sampled responses, and the columns that the laws change."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column, PromptIds
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived, IfSet
from rl_sentinel.adapters.trl.loop_fakes import Responses
from rl_sentinel.adapters.trl.loop_trainer import Loop, nothing, run_loop
from rl_sentinel.adapters.trl.token_model import LARGEST
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Output, Step
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.search.transforms import padded

#: Neutral name of a setting -> its field in the configuration.
FIELDS: Mapping[str, str] = {
    "clip_low": "cliprange",
    "value_clip": "cliprange_value",
    "penalty": "missing_eos_penalty",
    "estimator": "kl_estimator",
}

#: Settings that only formulas read.
DESCRIBED = frozenset({"clip_high"})

#: The log-prob of every token where a boundary compares no policies.
FLAT = -1.0

_PRODUCERS = {
    "known": "train: generate and the forward passes of policy, reference, value and reward model; after EOS padding, "
    "or tokens where generation does not stop",
    "loop": "__init__: batch sizes from per_device_train_batch_size and gradient_accumulation_steps",
}


def flat(number: float) -> Derived:
    """A tensor ``[B, T]`` with the same number at every token."""
    follows = frozenset({"extra"})
    return Derived(lambda i: torch.full((i.batch.rows, i.batch.width + i.layout.extra), number), follows)  # type: ignore[arg-type]  # names of axes


def tokens_of(columns: frozenset[str], compute: Callable[[Batch], Tensor], why: str) -> Computed:
    """A tensor ``[B, T]``, computed from columns of the batch after the layout's extra padding is added."""

    def compute_padded(inputs: Inputs) -> Tensor:
        extra = inputs.layout.extra
        return compute(padded(inputs.batch, extra) if extra else inputs.batch)

    return Computed(columns, compute_padded, why)


def responses(**known: Codec) -> Object:
    """Sampled responses that all end, one per prompt, with the same number in each column that is not ``known``."""
    others: dict[str, Codec] = {
        "mask": Column("mask", dtype=torch.int64),
        "ended": Derived(lambda inputs: torch.ones(inputs.batch.rows, dtype=torch.bool)),
        "prompts": Derived(lambda inputs: list(range(inputs.batch.rows))),
        **dict.fromkeys(("logprobs", "old_logprobs", "ref_logprobs"), flat(FLAT)),
        **dict.fromkeys(("values", "old_values"), flat(0.0)),
        "scores": Derived(lambda inputs: torch.zeros(inputs.batch.rows)),
    }
    return Object(Responses, others | known)


def loop_step(  # noqa: PLR0913 - a method, its configuration, its batch, and how that is cut
    path: str,
    settings: Settings,
    known: Mapping[str, Codec],
    fixed: Settings | None = None,
    *,
    parts: bool = False,
    grouped: bool = False,
) -> Step:
    """A step that trains the loop on one batch.

    Args:
        path: the method.
        settings: settings of the boundary, by neutral name.
        known: the parts of the responses that the boundary reads.
        fixed: fields of the configuration that do not affect the boundary's outputs, or that its formula implies.
        parts: whether the rows may be cut into micro-batches.
        grouped: whether prompts have several responses.
    """
    trainer = path.rpartition(".")[0]
    fields = {FIELDS.get(name, name): name for name in settings if name not in DESCRIBED}
    kind: dict[str, Codec] = {"0": Constant(Function(trainer))}
    kind |= {name: Constant(value) for name, value in (fixed or {}).items()}
    loop = Object(
        Loop,
        kind | {field: IfSet(name) for field, name in fields.items()},
        at={"0": "kind"}
        | {name: f"args.{name}" for name in fixed or {}}
        | {field: f"args.{field}" for field in fields},
        shared=True,
    )
    return Step(
        call=run_loop,
        name="trained",
        arguments={
            "entry": Constant(Function(path)),
            "loop": loop,
            "known": responses(**({"prompts": PromptIds("list")} if grouped else {}), **known),
            "micro_batches": MICRO_BATCHES if parts else Constant(1),
            "mini_batches": Constant(1),
        },
        produced_by=_PRODUCERS,
        fakes={f"{trainer.rpartition('.')[0]}.gc.collect": nothing},
    )


#: The outcome, as the reward model returns it.
SCORES = Column("reward", PerRow())

#: Responses that end with EOS; the others are cut off.
ENDED = Column("scored", PerRow())


def with_final_state(batch: Batch) -> Tensor:
    """The values of a batch; after the last token of a response, the value is the outcome."""
    final = torch.arange(batch.width) == batch.length.unsqueeze(1)
    return torch.where(final, batch.reward.unsqueeze(1), batch.value)


VALUES = tokens_of(
    frozenset({"value", "reward"}), with_final_state, "the value of the final state is the outcome, not a column"
)


def penalized(penalty: float) -> Computed:
    """Scores such that subtracting the penalty for a missing EOS gives the outcome."""
    return Computed(
        frozenset({"reward", "scored"}),
        lambda inputs: torch.where(inputs.batch.scored, inputs.batch.reward, inputs.batch.reward + penalty),
        "the score contains the penalty that the trainer subtracts",
    )


#: The result of a step.
TRAINED = Use("trained")


def tensor(name: str, unit: str, quantity: str) -> Output:
    """An output ``[B, T]``: the value of a local variable of ``train`` at the time of its log call."""
    return Output("B T", unit, quantity, at=TRAINED[name], form=AsReturned())


def logged(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """These outputs, read from the numbers that ``train`` logs."""
    return {name: replace(output, at=TRAINED["logs"][name]) for name, output in outputs.items()}


def sampled(batch: Batch) -> Batch:
    """Give each response at least one token, train every token, and make all log-probs negative."""
    changed: dict[str, Tensor] = {}
    if bool((batch.length == 0).any()):
        batch = with_columns(batch, length=batch.length.clamp(min=1))
    if not torch.equal(batch.mask, batch.valid):
        changed["mask"] = batch.valid
    for name in ("logprob", "old_logprob", "ref_logprob"):
        column: Tensor = getattr(batch, name)
        if bool((column > LARGEST).any()):
            changed[name] = torch.where(column > LARGEST, -0.125 - column.abs(), column)
    return with_columns(batch, **changed) if changed else batch


def trains_as_sampled(inputs: Inputs) -> str:
    """The reason to skip a batch with an untrained response token (the loop cannot mask tokens); empty otherwise."""
    batch = inputs.batch
    return (
        ""
        if torch.equal(batch.mask, batch.valid)
        else "a token of a response is untrained, but this loop cannot mask tokens"
    )


def several_tokens(inputs: Inputs) -> str:
    """The reason to skip a mini-batch with fewer than two trained tokens; empty otherwise.

    The variance of one number is undefined.
    """
    return (
        ""
        if int(inputs.mini_batch.mask.sum()) > 1
        else "fewer than two tokens are trained, so their advantages have no variance"
    )


def fills_width(inputs: Inputs) -> str:
    """The reason to skip a batch where a response is shorter than the width; empty otherwise.

    After the last token of a shorter response, the loop stores a reward that no column contains.
    """
    full = bool(inputs.batch.mask.all()) and not inputs.layout.extra
    return "" if full else "a response is shorter than the width, and the loop stores a reward after its last token"

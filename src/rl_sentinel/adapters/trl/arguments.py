"""Build TRL's arguments from a batch: trainer with settings, dict of a micro-batch, prompts, completions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import Column, OneColumn, ResponseMask, partition
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_train
from rl_sentinel.adapters.trl.tiny_trainer import Policy, make_trainer
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.call import Call, Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.layout import Axis

GRPO = "trl.trainer.grpo_trainer.GRPOTrainer"
RLOO = "trl.trainer.rloo_trainer.RLOOTrainer"
DISTILLATION = "trl.trainer.distillation_trainer.DistillationTrainer"

#: Kind -> the trainer.
TRAINERS: Mapping[str, str] = {"grpo": GRPO, "rloo": RLOO, "distillation": DISTILLATION}

#: The kinds of trainers that sample with tools.
WITH_TOOLS = ("grpo", "distillation")

#: Neutral name of a setting -> its field in a trainer's configuration, if the names differ.
FIELDS: Mapping[str, str] = {
    "clip_low": "epsilon",
    "clip_high": "epsilon_high",
    "ratio_high": "epsilon_high",
    "ceiling": "delta",
    "length": "max_completion_length",
    "threshold": "off_policy_mask_threshold",
    "kl_loss_coef": "beta",
    "temperature": "sapo_temperature_pos",
    "negative_temperature": "sapo_temperature_neg",
}

#: Setting that is not a field of the configuration -> its place in the trainer.
PLACES: Mapping[str, str] = {"reward_weight": "reward_funcs.0.weight"}


def trainer(kind: str, settings: Settings, described: frozenset[str] = frozenset(), derived: str = "") -> Object:
    """The trainer with these settings, built once; only formulas read the settings in ``described``.

    ``derived``, if not empty, is the path of a subclass to build.
    """
    fields = {FIELDS.get(name, name): name for name in settings if name not in described}
    parts: dict[str, Codec] = {"kind": Constant(kind), **{f: IfSet(name) for f, name in fields.items()}}
    parts |= {"derived": Constant(Function(derived))} if derived else {}
    at = {"derived": "__class__", **{f: PLACES.get(f, f"args.{f}") for f in fields}}
    return Object(make_trainer, parts, at=at, shared=True)


def itself(trainer: object) -> object:
    """The argument, unchanged: a step that makes a trainer available to later steps, or a fake ``unwrap_model``."""
    return trainer


def one_rank(inputs: Inputs) -> str:
    """The reason to skip a layout with several ranks (the result is read from one process); empty for one rank."""
    return "the result is read from one process, but there are several ranks" if inputs.layout.ranks > 1 else ""


def training(kind: str, settings: Settings, described: frozenset[str] = frozenset(), derived: str = "") -> Object:
    """The trainer from :func:`trainer`, in its state at the start of an optimizer step."""
    parts = {"trainer": trainer(kind, settings, described, derived), "micro_batches": MICRO_BATCHES}
    return Object(ready_to_train, parts, at={"trainer": "", "micro_batches": "args.gradient_accumulation_steps"})


#: The fake trained model: log-probs and entropies of the batch's tokens.
POLICY = Object(Policy, {"logprobs": Column("logprob"), "entropies": Column("entropy")})


@dataclass(frozen=True, slots=True)
class CompletionMask(ResponseMask):
    """The completion mask: 1 at every token of a completion, but 0 in a row without any trained token."""

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``length``, which determines the shape of the mask."""
        return frozenset({"length"})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The mask in the layout of ``form``."""
        present = inputs.batch.valid & inputs.batch.live.unsqueeze(1)
        return self.form.lay_out(present.to(self.dtype), inputs)


@dataclass(frozen=True, slots=True)
class ToolMask(Padded):
    """The tool mask: 1 at model tokens and padding, 0 at tool tokens; all 0 in a row without any trained token."""

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"length"})

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The mask, with 1 in the padding of rows that have a trained token."""
        outside = ~inputs.batch.valid & inputs.batch.live.unsqueeze(1)
        laid = Padded.lay_out(self, torch.where(outside, torch.ones_like(column), column), inputs)
        if inputs.layout.extra:
            laid[:, column.shape[1] :] = inputs.batch.live.to(laid.dtype).unsqueeze(1)
        return laid

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The mask, with 0 in the padding; all 0 without lengths."""
        read = Padded.read(self, value, sizes)
        length = torch.zeros(read.shape[0], dtype=torch.int64) if sizes.length is None else sizes.length
        inside = torch.arange(read.shape[1]) < length.unsqueeze(1)
        return torch.where(inside, read, torch.zeros_like(read))

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """The column as it can be read back: 0 in the padding."""
        return torch.where(batch.valid & batch.live.unsqueeze(1), column, torch.zeros_like(column))


def prompt(value: int) -> Derived:
    """A prompt of one token with this value."""
    return Derived(lambda inputs: torch.full((inputs.batch.rows, 1), value, dtype=torch.int64))


def completions(*, tools: bool) -> dict[str, Codec]:
    """Codecs of the prompts and completions of a micro-batch.

    With ``tools``, a separate mask marks the tokens that the model sampled.
    """
    masks: dict[str, Codec] = {"completion_mask": Column("mask", dtype=torch.int64)}
    if tools:
        masks = {
            "completion_mask": CompletionMask(),
            "tool_mask": Column("mask", ToolMask(), dtype=torch.int64),
        }
    return {"prompt_ids": prompt(4), "prompt_mask": prompt(1), "completion_ids": Column("token"), **masks}


def micro_batch(columns: Mapping[str, Codec], *, tools: bool) -> Table:
    """The dict of a micro-batch with advantages and ``columns``."""
    return Table({**completions(tools=tools), "advantages": PerResponse("advantage"), **columns})


def trains_whole_completions(inputs: Inputs) -> str:
    """The reason to skip a batch where a completion is trained in part (only tools mask tokens); empty otherwise."""
    batch = inputs.batch
    gap = (batch.mask != batch.valid)[batch.live]
    return "tokens of a completion are untrained, but only tools mask tokens" if bool(gap.any()) else ""


def trains_every_completion(inputs: Inputs) -> str:
    """The reason to skip a batch where a completion has no trained token (no completion is masked); empty otherwise."""
    return (
        ""
        if bool(inputs.batch.live.all())
        else "a completion has no trained token, but this trainer cannot mask completions"
    )


@dataclass(frozen=True, slots=True)
class Prompts(OneColumn):
    """One dict per row with its prompt, repeated as by the data loader; rows of a group have equal prompts.

    With ``varied``, prompts of groups with an odd label have one more word.
    """

    name: str = "group"
    varied: bool = False

    @override
    def put(self, inputs: Inputs) -> list[dict[str, str]]:
        labels = inputs.batch.group.tolist()
        return [{"prompt": f"w20 w{label}" if self.varied and label % 2 else f"w{label}"} for label in labels]

    @override
    def sizes(self, value: list[dict[str, str]]) -> Sizes:
        return Sizes(rows=len(value))

    def take(self, value: list[dict[str, str]], sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ARG002 - as above
        """Group labels: rows with equal prompts get the same label."""
        return {self.name: partition([row["prompt"] for row in value])}

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {self.name: partition(batch.group)}


@dataclass(frozen=True, slots=True)
class PromptsOfRanks(OneColumn):
    """The prompts of each rank: one list per rank, of equal length."""

    name: str = "group"

    @property
    def axes(self) -> frozenset[Axis]:
        """``ranks``: the number of lists is the number of ranks."""
        return frozenset({"ranks"})

    @override
    def put(self, inputs: Inputs) -> list[list[dict[str, str]]]:
        size = inputs.batch.rows // inputs.layout.ranks
        prompts = Prompts().put(inputs)
        return [prompts[n * size : (n + 1) * size] for n in range(inputs.layout.ranks)]

    @override
    def sizes(self, value: list[list[dict[str, str]]]) -> Sizes:
        return Sizes(rows=sum(map(len, value)))

    def take(self, value: list[list[dict[str, str]]], sizes: Sizes) -> Mapping[str, Tensor]:
        """Group labels: rows with equal prompts get the same label."""
        return Prompts().take([row for rank in value for row in rank], sizes)

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return Prompts().canonical(batch)


@dataclass(frozen=True, slots=True)
class Completions(Codec):
    """Token ids as an engine returns them: one list per row, which ends with EOS unless the completion is truncated.

    ``cut`` is the column that marks truncated completions: ``"mask"`` (no trained token) or ``"scored"`` (False).
    If it is empty, no completion is truncated.
    ``filler`` is the id of all other tokens.
    """

    cut: str = ""
    filler: int = 5

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({self.cut} if self.cut else ())

    @property
    def unreadable(self) -> Mapping[str, str]:
        """``mask``, if it marks truncated completions: the ids only show which rows have no trained token."""
        return {self.cut: "the trained tokens cannot be read from the ids"} if self.cut == "mask" else {}

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``length``, which determines the length of each list."""
        return frozenset({"length"})

    def ended(self, batch: Batch) -> Tensor:
        """True where the completion is not truncated, ``[B]``."""
        if self.cut == "mask":
            return batch.live
        return batch.scored if self.cut else torch.ones(batch.rows, dtype=torch.bool)

    @override
    def put(self, inputs: Inputs) -> list[list[int]]:
        batch = inputs.batch
        rows = zip(batch.length.tolist(), self.ended(batch).tolist(), strict=True)
        return [[self.filler] * (n - 1) + [1 if done else self.filler] for n, done in rows]

    def sizes(self, value: list[list[int]]) -> Sizes:
        """The number of rows, and the lengths."""
        return Sizes(rows=len(value), length=torch.tensor([len(ids) for ids in value]))

    def take(self, value: list[list[int]], sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ARG002 - lists say it
        """``scored``, if it marks truncated completions."""
        return {"scored": torch.tensor([ids[-1] == 1 for ids in value])} if self.cut == "scored" else {}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """``scored``, if it marks truncated completions."""
        return {"scored": batch.scored} if self.cut == "scored" else {}


@dataclass(frozen=True, slots=True)
class EarlierRows(Codec):
    """The rows of the current micro-batch, taken from the result of an earlier step. That result has all rows."""

    place: Use

    def put(self, inputs: Inputs) -> Call:
        """A call that selects the micro-batch's rows; micro-batches have equal sizes and keep the order of the rows."""
        rows = inputs.batch.rows
        return Call(rows_of, (self.place, inputs.part[0] * rows, rows))


def rows_of(value: Tensor, start: int, count: int) -> Tensor:
    """``count`` rows of ``value`` from index ``start``."""
    return value[start : start + count]


def truncated_fill_width(inputs: Inputs) -> str:
    """The reason to skip a batch with a truncated completion shorter than max_completion_length; empty otherwise."""
    short = ~inputs.batch.scored & (inputs.batch.length < inputs.batch.width)
    return "a truncated completion is shorter than max_completion_length" if bool(short.any()) else ""

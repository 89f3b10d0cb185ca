"""verl's batch after a rollout: left-padded prompts, right-padded responses, token positions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from rl_sentinel.adapters.kit.causal_model import prompt_tokens
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier
from rl_sentinel.adapters.verl.arguments import MASK
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Step
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.layout import Axis

POSITIONS = "verl.utils.model.compute_position_id_with_mask"


@dataclass(frozen=True, slots=True)
class PromptAndResponse(Table):
    """Prompts, padded at the left, and responses, padded at the right, as verl's rollout returns them."""

    @property
    @override
    def shapes(self) -> frozenset[str]:
        return frozenset({"length", "prompt_length"})

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a batch of tensors
        """The sizes of the tensors, and the lengths that the attention mask marks."""
        width = value["responses"].shape[1]
        mask = value["attention_mask"]
        lengths = Sizes(length=mask[:, -width:].sum(1), prompt_length=mask[:, :-width].sum(1))
        return lengths.merge(Table.sizes(self, value))


def _prompts(inputs: Inputs, tokens: Callable[[int, int], list[int]]) -> Tensor:
    """``[B, P]``: one number per token of each prompt, after at least one 0."""
    lengths = inputs.batch.prompt_length.tolist()
    width = 1 + max(lengths)
    return torch.tensor([[0] * (width - n) + tokens(row, n) for row, n in enumerate(lengths)])


def _prompt_ids(inputs: Inputs) -> Tensor:
    return _prompts(inputs, lambda row, n: prompt_tokens(row, n, VOCABULARY))


def _responses(inputs: Inputs, column: Tensor) -> Tensor:
    """``[B, T]`` with 0 in the padding."""
    return pad(torch.where(inputs.batch.valid, column, 0), (0, inputs.layout.extra))


def _ids(inputs: Inputs) -> Tensor:
    return torch.cat([_prompt_ids(inputs), _responses(inputs, inputs.batch.token)], 1)


def _attention(inputs: Inputs) -> Tensor:
    prompts = _prompts(inputs, lambda _row, n: [1] * n)
    return torch.cat([prompts, _responses(inputs, inputs.batch.valid.long())], 1)


_EXTRA: frozenset[Axis] = frozenset({"extra"})


def positions_of(count: Callable[[Tensor], Tensor], rows: Mapping[str, Tensor]) -> Tensor:
    """The token positions that a function of the target computes from the attention mask."""
    return count(rows["attention_mask"])


def position_step() -> Step:
    """The step that computes token positions as the target's rollout does."""
    rows: dict[str, Codec] = {"responses": Column("token"), "attention_mask": Derived(_attention, _EXTRA)}
    return Step(
        call=positions_of,
        name="positions",
        arguments={"count": Constant(Function(POSITIONS)), "rows": PromptAndResponse(rows)},
        produced_by={"rows": "agent_loop.py, _agent_loop_postprocess: attention masks of prompt and response in a row"},
    )


def trainer_batch(temperature: Codec, more: Mapping[str, Codec] | None = None) -> Object:
    """The ``DataProto`` of a step after the rollout, with ``more`` tensors of the responses."""
    parts: dict[str, Codec] = {
        "prompts": Derived(_prompt_ids),
        "responses": Column("token"),
        "input_ids": Derived(_ids, _EXTRA),
        "attention_mask": Derived(_attention, _EXTRA),
        "position_ids": Earlier(Use("positions")),
        "response_mask": MASK,
        **(more or {}),
    }
    batch = {"tensors": PromptAndResponse(parts), "meta_info": Table({"temperature": temperature})}
    return Object("verl.DataProto.from_dict", batch, at={"tensors": "batch", "meta_info": "meta_info"})

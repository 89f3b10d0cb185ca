"""AReaL's mixture of experts in its Archon models: a layer with equal experts must act like a single expert."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

LAYER = "areal.experimental.models.archon.moe.moe.MoE"
ARGS = "areal.experimental.models.archon.moe.args.MoEArgs"
PATH = f"{LAYER}.forward"

#: Number of experts, and hidden size of each expert.
_EXPERTS, _HIDDEN = 4, 5

_INERT = claims(
    "moe/args.py, from_hf_config: norm_topk_prob, so that the scores of the selected experts sum to 1; transformers, "
    "Qwen3MoeSparseMoeBlock: the scores multiply the results of the experts. If all experts are equal, their number "
    "per token changes no result",
    inert={"num_experts_per_tok": (1, 2)},
)
_CALLER = "archon, qwen3 and qwen3_5, model/args.py: MoEArgs.from_hf_config of the model's configuration"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the layer with the arguments of a checkpoint's configuration."""
    if not target.has(PATH) or not target.has(f"{ARGS}.from_hf_config"):
        return
    if why := target.fails(LAYER) or target.fails(ARGS):
        yield Unbound(PATH, "batch", why)
    else:
        yield from bindable(target, _layer())


def outputs_of_layer(
    layer: Callable[..., Any], args: Any, states: Tensor, num_experts_per_tok: int  # noqa: ANN401 - a class
) -> Tensor:  # fmt: skip
    """Run a layer whose experts have equal weights; return the first entry of its output at each token, ``[B, T]``."""
    config = SimpleNamespace(
        num_experts=_EXPERTS,
        num_local_experts=_EXPERTS,
        num_experts_per_tok=num_experts_per_tok,
        norm_topk_prob=True,
        moe_intermediate_size=_HIDDEN,
    )
    made = layer(args.from_hf_config(config), dim=states.shape[-1], hidden_dim=_HIDDEN)
    getattr(made, "init_buffers", nothing)("cpu")  # in January 2026, the constructor makes the buffers
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        made.router.gate.weight.copy_(torch.randn(made.router.gate.weight.shape, generator=draws))
        for weight in (made.experts.w1, made.experts.w2, made.experts.w3):
            weight.copy_(torch.randn(weight.shape[1:], generator=draws).expand_as(weight))
    with patch.object(torch, "histc", _count):
        result: Tensor = made(states.detach().float())
    return result[..., 0].detach()


def _count(numbers: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - as torch
    """A fake ``torch.histc``, which counts integers on a GPU only."""
    return _HISTC(numbers.float(), **options).to(numbers.dtype)


_HISTC = torch.histc


def _layer() -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=outputs_of_layer,
        name="result",
        arguments={
            **functions(layer=LAYER, args=ARGS),
            "states": Column("logits"),
            "num_experts_per_tok": Knob("num_experts_per_tok"),
        },
        produced_by={"args": _CALLER},
        outputs={f"first of {VOCABULARY} states": Output("B T", "", at=Use("result"), form=Padded())},
        settings={"equal experts": {"num_experts_per_tok": 1}},
        claims=_INERT,
        reach="a mixture of experts on the Archon engine",
    )

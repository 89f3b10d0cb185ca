"""Boundary of verl's counts of the experts that a rollout used: which tokens' routing records they count."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Lengths
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

PATH = "verl.trainer.ppo.metric_utils._compute_rollout_moe_load_counts"

#: Layers with experts, and experts per token.
LAYERS, CHOSEN = 2, 2

_COUNTED = (
    "metric_utils.py, _compute_rollout_moe_load_counts, docstring: count routed experts in response tokens; "
    "agent_loop.py, _postprocess: the engine has no record of the last token, whose place stays 0"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the counts, in releases that log the load of the experts."""
    if target.has(PATH):
        yield from try_bind(target, PATH, "batch", lambda: [_counts()])


def counted_records(count: Callable[..., Tensor | None], lengths: list[int]) -> dict[str, Tensor]:
    """Count the routing records of each response: records of sampled tokens must count, and no others.

    Returns, per response, ``uses``: how often its records count, divided by how often they should, or 1 if none should;
    ``others``: 1 plus how often other records count; and ``tokens``: its length. Each token of prompt and response
    has different experts; a missing record is expert 0. Inside a response, every third token comes from a tool.
    """
    rows, width = len(lengths), max(lengths)
    last = torch.tensor(lengths).unsqueeze(1) - 1
    places = torch.arange(width).expand(rows, -1)
    sampled = (places <= last) & ((places % 3 != 1) | (places == last))
    recorded = places < last
    own = 1 + (1 + places)[..., None, None] * CHOSEN + torch.arange(CHOSEN).expand(LAYERS, -1)
    experts = torch.where(recorded[..., None, None], own, 0)
    prompt = (1 + torch.arange(CHOSEN)).expand(rows, 1, LAYERS, CHOSEN)
    number = int(own.max()) + 1
    uses, others = [], []
    for row in range(rows):
        one = slice(row, row + 1)
        found = count(torch.cat([prompt, experts], 1)[one], sampled[one].long(), number)
        counts = torch.zeros(LAYERS, number) if found is None else found.float()
        due = torch.bincount(own[one][sampled[one] & recorded[one]][:, 0].flatten(), minlength=number).float()
        total, declared = float(counts[:, due > 0].sum()), LAYERS * float(due.sum())
        uses.append(total / declared if declared else 1.0)
        others.append(1.0 + float(counts[:, due == 0].sum()))
    return {"uses": torch.tensor(uses), "others": torch.tensor(others), "tokens": torch.tensor(lengths).float()}


def _counts() -> Boundary:
    at, form = Use("counted"), PerRow()
    return one_call(
        path=PATH,
        stage="batch",
        call=counted_records,
        name="counted",
        arguments={"count": Constant(Function(PATH)), "lengths": Lengths()},
        produced_by={
            "responses": "metric_utils.py, compute_moe_lb_metrics: routed_experts and response_mask of a batch"
        },
        outputs={
            "tokens": Output("B", "tokens", at=at["tokens"], form=form),
            "counts of a record": Output("B", "uses", "uses", at=at["uses"], form=form),
            "counts of other records": Output("B", "uses", "uses", at=at["others"], form=form),
        },
        settings={"experts of the rollout": {}},
        claims=claims(_COUNTED),
        reach="trainer.use_v1=True, rollout.moe_load_balance_metrics_interval=1",
        requires=(no_empty_response,),
    )

"""Boundary of the weights that SkyRL's Megatron worker sends to the engines, in buckets of limited size."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.skyrl.worker_fakes import cpu
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

OWNER = "skyrl.backends.skyrl_train.workers.megatron.megatron_worker.MegatronWeightExtractor"
PATH = f"{OWNER}.extract_weights"

#: Bytes of a bucket, less than two weights of most cases; and the number of weights that the bridge joins.
_BUCKET, _GROUP = 12, 2

_CLAIMS = claims(
    "megatron_worker.py, MegatronWeightExtractor: extracts the weights of the model; Megatron-Bridge: the experts of a "
    "layer are exported in the call that has all of them",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the extraction of weights, in releases that divide parameters into buckets."""
    if target.has(PATH) and not target.fails(PATH) and target.has(f"{OWNER}._init_param_buckets"):
        yield from bindable(target, _boundary(target))


class Bridge:
    """A fake Megatron-Bridge: it exports a group of experts only if one call has all weights of the group."""

    def __init__(self, weights: list[Tensor], *, grouped: bool) -> None:
        """Store the weights; if ``grouped``, in groups of :data:`_GROUP` in order (the last may be smaller)."""
        self.weights, self.grouped = weights, grouped

    def get_conversion_tasks(self, _module: object) -> list[SimpleNamespace]:
        """One task per weight."""
        return [self._task(number) for number in range(len(self.weights))]

    def _task(self, number: int) -> SimpleNamespace:
        key = f"layers.{number // _GROUP}.experts" if self.grouped else None
        sizes = {"tp_size": 1, "ep_size": 1, "is_expert": self.grouped}
        mapping = SimpleNamespace(**sizes, is_grouped_export=self.grouped, group_key=key)
        return SimpleNamespace(number=number, param_weight=self.weights[number], mapping=mapping)

    def export_hf_weights(
        self, module: object, *, conversion_tasks: list[Any] | None = None, **_options: object
    ) -> Iterator[tuple[str, Tensor]]:
        """The name and the tensor of each weight, or of each whole group."""
        tasks = self.get_conversion_tasks(module) if conversion_tasks is None else conversion_tasks
        given = {task.number for task in tasks}
        size = _GROUP if self.grouped else 1
        for first in range(0, len(self.weights), size):
            numbers = [number for number in range(first, first + size) if number < len(self.weights)]
            if given.issuperset(numbers):
                yield " ".join(map(str, numbers)), torch.cat([self.weights[number] for number in numbers])


def extracted(
    method: Callable[..., Any],
    owner: Callable[..., Any],
    rows: list[dict[str, Any]],
    grouped: bool,  # noqa: FBT001 - an argument of the boundary
) -> dict[str, Any]:
    """Extract one weight per row.

    Returns the values of each weight as they are sent (infinity if it is not sent), and how often it is sent.
    """
    weights = [torch.as_tensor(row["logprobs"], dtype=torch.float32) for row in rows]
    sent, uses = [torch.full_like(weight, float("inf")) for weight in weights], torch.zeros(len(rows))
    with replaced_globals(method.__globals__, broadcast_object_across_pp_ranks=lambda value: value):
        extractor = owner(
            Bridge(weights, grouped=grouped),
            [None],
            enable_bucketing=True,
            bucket_size_threshold_GB=_BUCKET / 1024**3,
            training_dtype=torch.float32,
        )
        for chunk in method(extractor, torch.float32):
            for name, tensor in zip(chunk.names, chunk.tensors, strict=True):
                numbers = [int(number) for number in name.split()]
                for number, part in zip(numbers, tensor.split([len(weights[n]) for n in numbers]), strict=True):
                    sent[number] = part
                    uses[number] += 1
    return {"logprobs": sent, "uses": uses}


def _boundary(target: Target) -> Boundary:
    place = target.locate(OWNER).rpartition(".")[0]
    uses = Output("B", "", "uses", at=Use("extracted")["uses"], form=PerRow())
    return one_call(
        path=PATH,
        stage="batch",
        call=extracted,
        name="extracted",
        arguments={
            **functions(method=PATH, owner=OWNER),
            "rows": EachRow(Table({"logprobs": RowTokens("rollout_logprob")})),
            "grouped": Knob("grouped"),
        },
        fakes={f"{place}.torch.cuda.current_device": cpu},
        produced_by={"owner": "megatron_worker.py, init_weight_sync_state: enable_bucketing for transfer by CUDA IPC"},
        outputs={**row_outputs(Use("extracted"), "rollout_logprob"), "uses": uses},
        settings={"weights": {"grouped": False}, "groups of experts": {"grouped": True}},
        claims=_CLAIMS,
        reach="trainer.strategy=megatron; engines on the devices of the trainer; a mixture of experts",
        requires=(no_empty_response,),
    )

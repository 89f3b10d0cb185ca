"""Boundaries of the weights that SkyRL's Megatron worker sends to the engines, in buckets of limited size."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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
#: The names and shapes of the weights, with which engines read a transfer by NCCL.
METADATA = f"{OWNER}.get_weight_metadata"

#: Bytes of a bucket, less than two weights of most cases; and the number of weights that the bridge joins.
_BUCKET, _GROUP = 12, 2

_CLAIMS = claims(
    "megatron_worker.py, MegatronWeightExtractor: extracts the weights of the model; Megatron-Bridge: the experts of a "
    "layer are exported in the call that has all of them",
    conserves=True,
)
#: Setting -> which groups of :data:`_GROUP` weights are experts: the groups from this one on, every second or each one.
_EXPERTS: Mapping[str, slice] = {
    "weights": slice(0),
    "groups of experts": slice(None),
    "groups of experts between weights": slice(1, None, 2),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the extraction of weights, and of their metadata, in releases that divide weights into buckets."""
    if target.has(PATH) and not target.fails(PATH) and target.has(f"{OWNER}._init_param_buckets"):
        yield from bindable(target, _extraction(target))
        if target.has(METADATA):
            yield from bindable(target, _transfer(target))


class Bridge:
    """A fake Megatron-Bridge: it exports a group of experts only if one call has all weights of the group."""

    def __init__(self, weights: list[Tensor], kind: str) -> None:
        """Store the weights, in groups of :data:`_GROUP` in order (the last may be smaller)."""
        numbers = range(len(weights))
        self.weights, self.groups = weights, [numbers[first : first + _GROUP] for first in numbers[::_GROUP]]
        self.experts = set(self.groups[_EXPERTS[kind]])

    def get_conversion_tasks(self, _module: object) -> list[SimpleNamespace]:
        """One task per weight."""
        return [self._task(number) for number in range(len(self.weights))]

    def _task(self, number: int) -> SimpleNamespace:
        expert = self.groups[number // _GROUP] in self.experts
        key = f"layers.{number // _GROUP}.experts" if expert else None
        sizes = {"tp_size": 1, "ep_size": 1, "is_expert": expert}
        mapping = SimpleNamespace(**sizes, is_grouped_export=expert, group_key=key)
        return SimpleNamespace(number=number, param_weight=self.weights[number], mapping=mapping)

    def export_hf_weights(
        self, module: object, *, conversion_tasks: list[Any] | None = None, **_options: object
    ) -> Iterator[tuple[str, Tensor]]:
        """The name and the tensor of each weight, or of each whole group of experts."""
        tasks = self.get_conversion_tasks(module) if conversion_tasks is None else conversion_tasks
        given = {task.number for task in tasks}
        for group in self.groups:
            for numbers in [group] if group in self.experts else [[number] for number in group]:
                if given.issuperset(numbers):
                    yield " ".join(map(str, numbers)), torch.cat([self.weights[number] for number in numbers])


def extracted(
    method: Callable[..., Any], owner: Callable[..., Any], rows: list[dict[str, Any]], kind: str
) -> dict[str, Any]:
    """Extract one weight per row.

    Returns the values of each weight as they are sent (infinity if it is not sent), and how often it is sent.
    """
    weights, extractor = _extractor(method, owner, rows, kind)
    chunks = extractor(lambda made: list(method(made, torch.float32)))
    return _by_weight(weights, [pair for chunk in chunks for pair in zip(chunk.names, chunk.tensors, strict=True)])


def received(
    metadata: Callable[..., Any],
    method: Callable[..., Any],
    owner: Callable[..., Any],
    rows: list[dict[str, Any]],
    kind: str,
) -> dict[str, Any]:
    """Transfer one weight per row by NCCL: all tensors in a sequence, which the engines divide by the metadata.

    Returns the values of each weight as they are received (infinity if it is not), and how often it is received.
    """
    weights, extractor = _extractor(method, owner, rows, kind)
    about, chunks = extractor(lambda made: (metadata(made, torch.float32), list(method(made, torch.float32))))
    sizes = [int(torch.tensor(shape).prod()) for shape in about["shapes"]]
    tensors = [tensor.flatten() for chunk in chunks for tensor in chunk.tensors]
    lacking = torch.full((max(0, sum(sizes) - sum(map(len, tensors))),), torch.inf)  # announced, but never sent
    sent: Any = torch.cat([*tensors, lacking])[: sum(sizes)]
    return _by_weight(weights, list(zip(about["names"], sent.split(sizes), strict=True)))


def _extractor(
    method: Callable[..., Any], owner: Callable[..., Any], rows: list[dict[str, Any]], kind: str
) -> tuple[list[Tensor], Callable[..., Any]]:
    """The weights, and a function that calls a function with an extractor of them."""
    weights = [torch.as_tensor(row["logprobs"], dtype=torch.float32) for row in rows]

    def call(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - the result of the function
        with replaced_globals(method.__globals__, broadcast_object_across_pp_ranks=lambda value: value):
            made = owner(
                Bridge(weights, kind),
                [None],
                enable_bucketing=True,
                bucket_size_threshold_GB=_BUCKET / 1024**3,
                training_dtype=torch.float32,
            )
            return function(made)

    return weights, call


def _by_weight(weights: list[Tensor], named: list[tuple[str, Any]]) -> dict[str, Any]:
    """The values of each weight among named tensors, and how often the weight occurs."""
    values, uses = [torch.full_like(weight, float("inf")) for weight in weights], torch.zeros(len(weights))
    for name, tensor in named:
        numbers = [int(number) for number in name.split()]
        for number, part in zip(numbers, tensor.split([len(weights[n]) for n in numbers]), strict=True):
            values[number] = part
            uses[number] += 1
    return {"logprobs": values, "uses": uses}


def _extraction(target: Target) -> Boundary:
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
            "kind": Knob("kind"),
        },
        fakes={f"{place}.torch.cuda.current_device": cpu},
        produced_by={"owner": "megatron_worker.py, init_weight_sync_state: enable_bucketing for transfer by CUDA IPC"},
        outputs={**row_outputs(Use("extracted"), "rollout_logprob"), "uses": uses},
        settings={name: {"kind": name} for name in _EXPERTS},
        claims=_CLAIMS,
        reach="trainer.strategy=megatron; engines on the devices of the trainer; a mixture of experts",
        requires=(no_empty_response,),
    )


def _transfer(target: Target) -> Boundary:
    made = _extraction(target)
    (step,) = made.steps
    arguments = {**functions(metadata=METADATA), **step.arguments}
    produced = (
        "broadcast_strategy.py, _send_chunks_vllm_native: update_named_weights with the metadata, then all tensors"
    )
    return replace(
        made,
        path=f"{METADATA} -> {PATH}",
        steps=(replace(step, call=received, arguments=arguments, produced_by={"metadata": produced}),),
        settings={f"metadata, {name}": settings for name, settings in made.settings.items()},
        reach="trainer.strategy=megatron; engines on devices of their own; a mixture of experts",
    )

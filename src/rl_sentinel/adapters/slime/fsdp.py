"""slime's FSDP backend: packing and unpacking of sequences, and log-probs of packed sequences.

Newer revisions do not have this backend.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Namespace, Object, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.slime.arguments import LOSS_MASKS, RESPONSE_LENGTHS, REWARDS, samples
from rl_sentinel.adapters.slime.packing import cpu
from rl_sentinel.adapters.slime.samples import module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

PACKING = "slime.backends.fsdp_utils.data_packing"
PACK, UNPACK = f"{PACKING}.pack_sequences", f"{PACKING}.unpack_sequences"
ACTOR = "slime.backends.fsdp_utils.actor.FSDPTrainRayActor"

#: Paths of the method that computes log-probs of packed sequences, newest first.
PASSES = (f"{ACTOR}._compute_log_prob", f"{ACTOR}.compute_log_prob")

#: The samples that are packed.
DATA: Mapping[str, Codec] = {
    "tokens": Column("token", RaggedSequence()),
    "loss_masks": LOSS_MASKS,
    "rewards": REWARDS,
    "response_lengths": RESPONSE_LENGTHS,
    "advantages": samples("advantage"),
    "returns": samples("returns"),
    "rollout_log_probs": samples("rollout_logprob"),
}

_CALLER = (
    "slime/backends/fsdp_utils/actor.py, packed_data: pack_sequences of the rank's samples, one pack per micro-batch"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the packing, and the log-probs of packed sequences."""
    if not target.has(PACK) or not target.has(UNPACK):
        return
    yield from bindable(target, _packing(target))
    passes = next((path for path in PASSES if target.has(path)), "")
    if passes and not target.fails(passes):
        yield from bindable(target, _log_probs(target, passes))


def pack_and_unpack(
    pack: Callable[..., Any], unpack: Callable[..., Any], data: dict[str, Any], packs: int
) -> dict[str, list[Any]]:
    """Pack and unpack the data, and return it in the order of the samples."""
    samples_ = [sample for part in packs_of(pack, data, packs) for sample in unpack(part)]
    return _in_order(samples_, tuple(data))


def log_probs_of_packs(  # noqa: PLR0913 - functions of the target, and their arguments
    compute: Callable[..., Any],
    pack: Callable[..., Any],
    unpack: Callable[..., Any],
    actor: Any,  # noqa: ANN401 - slime's actor
    data: dict[str, Any],
    logits: list[Tensor],
    packs: int,
) -> dict[str, list[Any]]:
    """Compute the log-probs of each response with the actor and, if the actor has a reference model, with that model.

    The requested model is a fake that returns the logits of a pack's sequences. The other model is a fake that returns
    zeros.
    """
    parts = packs_of(pack, data, packs)
    # The method and its timer log their rank; the progress bar is not installed.
    with (
        replaced_globals(vars(dist), get_rank=lambda *_group: 0, barrier=nothing),
        replaced_globals(
            inspect.unwrap(compute).__globals__, tqdm=lambda items, **_options: items, get_gloo_group=nothing
        ),
    ):
        for tag, name in _MODELS.items():
            if tag != "actor" and not _has_model(compute, name):
                continue
            for other in _MODELS.values():
                setattr(actor, other, _Model(logits, parts, shown=other == name))
            compute(actor, tag, parts, **({} if tag == "actor" else {"store_prefix": f"{tag}_"}))
    return _in_order([sample for part in parts for sample in unpack(part)], tuple(_LOG_PROBS.values()))


#: Model -> attribute of the actor, and output -> key of its log-probs.
_MODELS = {"ref": "ref_model", "actor": "model"}
_LOG_PROBS = {"logprob": "log_probs", "ref_logprob": "ref_log_probs"}


def _has_model(compute: Callable[..., Any], name: str) -> bool:
    """Whether the method reads the attribute ``name``."""
    return name in inspect.unwrap(compute).__code__.co_names


class _Model:
    """A fake model: it returns the logits of each pack in turn, or zeros if ``shown`` is False."""

    def __init__(self, logits: list[Tensor], parts: list[dict[str, Any]], *, shown: bool) -> None:
        rows = [torch.cat([logits[row] for row in rows_of(part)]).unsqueeze(0) for part in parts]
        self.outputs = iter([row if shown else torch.zeros_like(row) for row in rows])

    def __call__(self, **_inputs: object) -> SimpleNamespace:
        return SimpleNamespace(logits=next(self.outputs))

    def cpu(self) -> "_Model":
        """The model itself: nothing is moved."""
        return self

    cuda = eval = cpu


def packs_of(pack: Callable[..., Any], data: dict[str, Any], packs: int) -> list[dict[str, Any]]:
    """Pack the data. The raw reward of each sample is its row index, since training does not read raw rewards."""
    plain = {key: [x.tolist() if isinstance(x, Tensor) else x for x in values] for key, values in data.items()}
    known = inspect.signature(pack).parameters
    columns = {key: values for key, values in plain.items() if key in known}
    packed: list[dict[str, Any]] = pack(**columns, raw_rewards=list(range(len(data["rewards"]))), num_packs=packs)
    return packed


def pack_fakes(target: Target) -> dict[str, Callable[..., Any]]:
    """The CPU in place of the current device, in revisions whose packing function reads the current device."""
    asks = "torch.cuda.current_device()" in module_source(target, PACKING)
    return {f"{PACKING}.torch.cuda.current_device": cpu} if asks else {}


def rows_of(part: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of a pack or of one sample
    """The row indices, which are stored as raw rewards under the key of this revision."""
    return part["raw_rewards"] if "raw_rewards" in part else part["raw_reward"]


def _in_order(samples_: list[dict[str, Any]], keys: tuple[str, ...]) -> dict[str, list[Any]]:
    rows = sorted(samples_, key=lambda row: int(rows_of(row)))
    columns = {key: [row[key] for row in rows] for key in keys if all(key in row for row in rows)}
    return columns | {"raw_rewards": [rows_of(row) for row in rows]}


def _packing(target: Target) -> Boundary:
    unpacked, form = Use("unpacked"), Ragged()
    keys = {"advantage": "advantages", "returns": "returns"}
    if "rollout_log_probs" in inspect.signature(target.find(PACK)).parameters:
        keys = {"rollout_logprob": "rollout_log_probs", **keys}
    outputs = {name: Output("B T", "", name, at=unpacked[key], form=form) for name, key in keys.items()}
    outputs |= {
        "token": Output("B T", "", "token", at=unpacked["tokens"], form=RaggedSequence()),
        "mask": Output("B T", "", "mask", at=unpacked["loss_masks"], form=Cast(form, torch.bool)),
        "sequences": Output("", "count", "rows", at=unpacked["raw_rewards"], form=_Count()),
    }
    return one_call(
        path=f"{PACK} -> {UNPACK}",
        stage="batch",
        call=pack_and_unpack,
        name="unpacked",
        arguments={**functions(pack=PACK, unpack=UNPACK), "data": Table(DATA), "packs": MICRO_BATCHES},
        fakes=pack_fakes(target),
        produced_by={"data": _CALLER},
        unused=frozenset({"prompt_length", "reward"}),
        outputs=outputs,
        claims=claims("data_packing.py, unpack_sequences: sequences from a packed batch", conserves=True, packs=True),
        reach="--train-backend fsdp",
        requires=(no_empty_response,),
    )


class _Count(PerRow):
    """The length of a list, as a scalar."""

    def read(self, value: Any, sizes: object) -> Tensor:  # noqa: ANN401, ARG002 - a list
        """The length of the list, as a tensor without axes."""
        return torch.tensor(float(len(value)))

    def source(self, expression: str, sizes: object) -> str:  # noqa: ARG002
        """The length of the list, as a Python expression."""
        return f"torch.tensor(float(len({expression})))"


def _log_probs(target: Target, path: str) -> Boundary:
    profiler = Namespace(iterate_train_log_probs=Constant(iter))
    parts: dict[str, Codec] = {
        "owner": Constant(Function(ACTOR)),
        "args": Namespace(rollout_temperature=Knob("temperature"), true_on_policy_mode=Constant(value=True)),
        "prof": profiler,
        **{name: Constant(value) for name, value in (("weights", {}), ("fsdp_cpu_offload", False))},
        **{name: Constant(value) for name, value in (("cp_rank", 0), ("cp_size", 1), ("cp_group", None))},
    }
    return one_call(
        path=path,
        stage="batch",
        call=log_probs_of_packs,
        name="computed",
        arguments={
            **functions(compute=path, pack=PACK, unpack=UNPACK),
            "actor": Object(bare_instance, parts),
            "data": Table(DATA),
            "logits": Column("logits", RaggedSequence(shift=1)),
            "packs": MICRO_BATCHES,
        },
        fakes=pack_fakes(target),
        produced_by={"data": _CALLER},
        reads=frozenset({"logits", "token", "length"}),
        outputs={
            name: Output("B T", "nats", name, at=Use("computed")[key], form=Ragged())
            for name, key in _LOG_PROBS.items()
            if name == "logprob" or _has_model(target.find(path), _MODELS["ref"])
        },
        settings={"default": {"temperature": 1.0}, "other temperature": {"temperature": 0.5}},
        claims=claims(
            "arguments.py: --rollout-temperature, the sampling temperature; actor.py, "
            "compute_log_prob, docstring: token log-probabilities for packed batches",
            output_algorithms=dict.fromkeys(_LOG_PROBS, "log-prob of the token"),
            knobs={"temperature": (0.7, 1.6)},
            packs=True,
        ),
        reach="--train-backend fsdp, --rollout-temperature",
        requires=(no_empty_response,),
    )

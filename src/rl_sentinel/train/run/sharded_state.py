"""The sharded weights and moments of several processes: each saves its share; any number of processes restores them."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.run.distributed import peer_failure_in_one_line

#: Separates the parts of a tensor's name in a file; no module's name contains it.
_SEPARATOR = "/"


def collect_shards(model: nn.Module, optimizer: torch.optim.Optimizer, *, copy: bool = False) -> dict[str, Tensor]:
    """The weights and moments of this rank, by name; without ``copy`` they share memory with model and optimizer.

    Moments that do not exist yet are created, as zeros. With ``copy`` they are copies on the CPU. Call it on all ranks.
    """
    from torch.distributed.checkpoint import state_dict as dcp  # noqa: PLC0415 - slow to import

    options = dcp.StateDictOptions(cpu_offload=copy)
    state: Any = dcp.get_state_dict(model, optimizer, options=options)  # torch's declared type is too general
    weights, moments = state
    shards = {f"weights{_SEPARATOR}{name}": weight for name, weight in weights.items()}
    for name, of_weight in moments["state"].items():
        shards |= {_SEPARATOR.join(("moments", name, kind)): value for kind, value in of_weight.items()}
    return {name: value.detach().clone() for name, value in shards.items()} if copy else shards


def save_shards(shards: Mapping[str, Tensor], folder: Path, group: Any = None) -> None:  # noqa: ANN401 - of torch
    """Write the shards of all ranks into a folder; call it on all ranks, with the process group of the calling thread.

    Raises:
        OSError: if a rank cannot write.
        SentinelError: if another rank has failed.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415 - slow to import
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415 - as above

    with _cause_of_failure():
        save(dict(shards), storage_writer=FileSystemWriter(folder), process_group=group)


def load_shards(folder: Path, into: Mapping[str, Tensor]) -> None:
    """Load into tensors, which may be sharded differently than when they were saved; call it on all ranks.

    Args:
        folder: the folder that ``save_shards`` wrote.
        into: the tensors of ``collect_shards``; changed in place.

    Raises:
        OSError: if a rank cannot read.
        RuntimeError: if a tensor is missing, or of another shape.
        SentinelError: if another rank has failed.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415 - slow to import
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415 - as above

    alone = not distributed.is_initialized()
    with _cause_of_failure(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a warning at each load by a single process
        load(dict(into), storage_reader=FileSystemReader(folder), no_dist=alone)


def read_whole(folder: Path) -> dict[str, Any]:
    """The unsharded ``weights``, and the ``optimizer`` without its settings, on the CPU; for a single process."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415 - slow to import
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata  # noqa: PLC0415 - as above

    whole: dict[str, Tensor] = {}
    for name, of in FileSystemReader(folder).read_metadata().state_dict_metadata.items():
        assert isinstance(of, TensorStorageMetadata)  # noqa: S101 - save_shards writes tensors only
        whole[name] = torch.empty(of.size, dtype=of.properties.dtype, device=CPU)
    load_shards(folder, whole)
    read: dict[str, Any] = {"weights": {}, "optimizer": {"state": {}}}
    for name, value in whole.items():
        _, weight, *moment = name.split(_SEPARATOR)
        if moment:
            read["optimizer"]["state"].setdefault(weight, {})[moment[0]] = value
        else:
            read["weights"][weight] = value
    return read


@contextmanager
def _cause_of_failure() -> Iterator[None]:
    """Raise a rank's ``OSError``, else a ``RuntimeError``; torch's own error is not an ``Exception``."""
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415 - slow to import

    try:
        with peer_failure_in_one_line():
            yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        raise next((cause for cause in causes if isinstance(cause, OSError)), RuntimeError(str(causes[0]))) from error

"""A fake process group of size one, and Megatron's parallel state for one process."""

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist


def parallel_state_of_one_process() -> Mapping[str, Callable[..., Any]]:
    """Functions of Megatron's ``parallel_state`` by name, with their results for a single process."""
    functions: dict[str, Callable[..., Any]] = {"is_pipeline_last_stage": lambda *_a, **_k: True}
    functions["get_virtual_pipeline_model_parallel_world_size"] = lambda *_a, **_k: None
    functions["get_data_parallel_src_rank"] = lambda *_a, **_k: 0
    functions["get_data_parallel_group_gloo"] = one_process_group
    for name in ("context", "data", "tensor_model", "pipeline_model"):
        functions[f"get_{name}_parallel_world_size"] = lambda *_a, **_k: 1
        functions[f"get_{name}_parallel_rank"] = lambda *_a, **_k: 0
        functions[f"get_{name}_parallel_group"] = one_process_group
    return functions


def one_process_group(*_args: object, **_options: object) -> Any:  # noqa: ANN401 - a process group
    """The default process group; without one, start a group of this process alone, which transmits nothing."""
    if not dist.is_initialized():
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - costs a second

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return dist.group.WORLD

"""A process group of size one, in which every collective returns its input."""

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist


def one_process() -> Mapping[str, Callable[..., Any]]:
    """Names of Megatron's parallel state, as they answer where there is one process."""
    ones = ("context", "data", "tensor_model", "pipeline_model")
    answers: dict[str, Callable[..., Any]] = {"is_pipeline_last_stage": lambda *_a, **_k: True}
    answers["get_virtual_pipeline_model_parallel_world_size"] = lambda *_a, **_k: None
    answers["get_data_parallel_src_rank"] = lambda *_a, **_k: 0
    answers["get_data_parallel_group_gloo"] = group
    for name in ones:
        answers[f"get_{name}_parallel_world_size"] = lambda *_a, **_k: 1
        answers[f"get_{name}_parallel_rank"] = lambda *_a, **_k: 0
        answers[f"get_{name}_parallel_group"] = group
    return answers


def group(*_args: object, **_options: object) -> Any:  # noqa: ANN401 - a process group
    """The group of this process alone, of torch's own backend that transmits nothing."""
    if not dist.is_initialized():
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - costs a second

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return dist.group.WORLD

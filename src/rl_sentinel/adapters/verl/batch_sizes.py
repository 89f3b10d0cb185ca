"""verl's batch sizes before 0.8: the sizes per rank that a worker derives from the configuration."""

import copy
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants, knobs
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config, untraced
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

FSDP, MEGATRON = "verl.workers.fsdp_workers", "verl.workers.megatron_workers"

#: Class of a worker -> its section of the configuration; empty for the whole configuration of actor and rollout.
WORKERS: Mapping[str, str] = {
    f"{FSDP}.ActorRolloutRefWorker": "",
    f"{FSDP}.CriticWorker": "critic",
    f"{MEGATRON}.ActorRolloutRefWorker": "",
    f"{MEGATRON}.CriticWorker": "critic",
}

#: Sizes over all ranks, with one response per prompt, no sequence parallelism and verl's default sharding.
_PLAIN: Settings = {
    "ppo_mini_batch_size": 16,
    "ppo_micro_batch_size": 8,
    "n": 1,
    "ranks": 2,
    "sequence": 1,
    "shards": -1,
}

#: Setting -> sizes, and a word that occurs in the source of a worker with this setting.
FAMILIES: Mapping[str, tuple[Settings, str]] = {
    "data parallel": (_PLAIN, ""),
    "sequence parallel": ({**_PLAIN, "ranks": 4, "sequence": 2}, "ulysses_sequence_parallel_size"),
    "hybrid sharding": ({**_PLAIN, "ranks": 4, "shards": 2}, "fsdp_size"),
}
#: Several responses of a prompt. The first releases count micro-batches in prompts, so their size is not claimed.
SEVERAL: Settings = {name: size for name, size in {**_PLAIN, "n": 4}.items() if name != "ppo_micro_batch_size"}

#: Setting -> the rows of a micro-batch, of a mini-batch of 16 rows on one rank, and why a worker must refuse it.
MICRO_BATCHES: Mapping[str, tuple[int, str]] = {
    "equal micro-batches": (4, ""),
    "unequal micro-batches": (6, "the loss is divided by the number of whole micro-batches, and the last is smaller"),
    "a micro-batch above the mini-batch": (32, "the loss is divided by the number of whole micro-batches, which is 0"),
}

#: Key of the result -> the option whose value must arrive there.
_PLACES = {"prompts of a mini-batch": "ppo_mini_batch_size", "rows of a micro-batch": "ppo_micro_batch_size"}

_DOCS = (
    "docs/examples/config.rst, ppo_mini_batch_size: split for updates, a global number across all workers; "
    "ray_trainer.py, _validate_config: compared with train_batch_size, in prompts; fsdp_workers.py, __init__: "
    "rollout.n responses of each prompt, shared by the data-parallel ranks"
)
_DIVIDES = (
    "fsdp_workers.py, __init__: normalized ppo_mini_batch_size should be divisible by ppo_micro_batch_size_per_gpu; "
    "dp_actor.py and dp_critic.py, before 0.8: the gradient accumulates over mini-batch // micro-batch"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the batch sizes that each worker stores.

    There are no boundaries in releases whose workers do not divide the sizes by the number of ranks.
    """
    for path, section in WORKERS.items():
        with engine_installed("vllm"):
            found = target.has(path) and not target.fails(path)
        if found:
            yield from try_bind(target, path, "config", partial(_sizes, target, path, section))
            if path.startswith(FSDP):
                yield from try_bind(target, path, "config", partial(_micro_batches, target, path, section))


class Mesh:
    """A fake of torch's device mesh, as the first rank sees it."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Store the number of ranks along each dimension."""
        self.shape = shape

    def size(self, dimension: int | None = None) -> int:
        """The number of ranks in one dimension, or in all dimensions together."""
        return int(torch.tensor(self.shape).prod()) if dimension is None else self.shape[dimension]

    def __getitem__(self, _dimension: str) -> "Mesh":
        """Return this mesh for any dimension."""
        return self

    def get_local_rank(self, *_dimension: str) -> int:
        """The local rank of the first rank, 0."""
        return 0


class Anything:
    """A fake for base classes and attributes of workers; it accepts all arguments."""

    def __init__(self, *_inputs: object, **_options: object) -> None:
        """Ignore all arguments."""


def kept_sizes(  # noqa: PLR0913 - classes of the target, and settings
    kind: Any,  # noqa: ANN401 - a class of the target
    config: Any,  # noqa: ANN401 - the trainer's configuration
    section: str,
    ranks: int,
    sequence: int,
    n: int,
) -> dict[str, float]:
    """Build a worker; return its prompts per mini-batch and its rows per micro-batch, over all data-parallel ranks."""
    parts = ranks // sequence
    with untraced():
        config = copy.deepcopy(config)  # a worker changes its configuration
    worker = bare_instance(kind, _rank=0, _world_size=ranks, _register_dispatch_collect_info=lambda *_a, **_k: None)
    with _cluster(kind, ranks, parts):
        if section:
            kind.__init__(worker, config[section])
        else:
            kind.__init__(worker, config.actor_rollout_ref, "actor_rollout_ref")
    sizes = worker.config if section else worker.config.actor
    micro = sizes.get("ppo_micro_batch_size_per_gpu") or sizes.ppo_micro_batch_size or 0
    return dict(zip(_PLACES, (sizes.ppo_mini_batch_size * parts / n, float(micro * parts)), strict=True))


@contextmanager
def _cluster(kind: Any, ranks: int, parts: int) -> Iterator[None]:  # noqa: ANN401 - a class of the target
    """Fake ranks, ``parts`` of which have different data, and fakes of the objects that a worker creates."""
    base = next(one for one in kind.__mro__ if one.__name__ == "Worker")
    state = {**parallel_state_of_one_process(), "get_data_parallel_world_size": lambda *_a, **_k: parts}
    fakes: dict[str, Any] = {
        **dict.fromkeys(_STARTED, Anything),
        "is_initialized": lambda: True,
        "get_world_size": lambda *_group: ranks,
        "get_rank": lambda *_group: 0,
        "mpu": SimpleNamespace(**state),
        "init_device_mesh": lambda _device, mesh_shape, **_names: Mesh(mesh_shape),
        "set_random_seed": lambda **_seed: None,
        "repatch": None,
        "omega_conf_to_dataclass": lambda part, *_types, **_options: part,
    }
    module = vars(sys.modules[kind.__module__])  # the last releases wrap the constructor
    places = (module, vars(torch.distributed), vars(torch.distributed.device_mesh))
    with replaced_globals(*places, **fakes), patch.object(base, "__init__", Anything.__init__):
        yield


#: Classes that a worker makes or inherits from, apart from the base of all workers.
_STARTED = (
    "DistProfilerExtension",
    "WorkerProfilerExtension",
    "DistProfiler",
    "WorkerProfiler",
    "FSDPUlyssesShardingManager",
)


def _sizes(target: Target, path: str, section: str) -> Iterator[Boundary]:
    """The boundaries of the sizes, with the settings that the worker reads."""
    source = inspect.getsource(target.find(path).__init__)
    if "ppo_mini_batch_size" not in source:
        return
    settings = {name: options for name, (options, word) in FAMILIES.items() if word in source}
    actor = f"{FSDP}.ActorRolloutRefWorker"
    if target.has(actor) and "rollout.n" in inspect.getsource(target.find(actor).__init__):
        settings["several responses"] = SEVERAL
    own = section or "actor_rollout_ref.actor"
    sharding = f"{section}.model.fsdp_config" if section else f"{own}.fsdp_config"
    micro = Knob("ppo_micro_batch_size", default=8)
    fields = {
        "actor_rollout_ref.rollout.n": Knob("n"),
        f"{own}.ppo_mini_batch_size": Knob("ppo_mini_batch_size"),
        f"{own}.ppo_micro_batch_size": micro,
        f"{own}.ulysses_sequence_parallel_size": Knob("sequence"),
        f"{sharding}.fsdp_size": Knob("shards"),
        # The defaults, in releases whose files leave the section to a dataclass.
        **{f"{sharding}.{part}_offload": Constant(value=False) for part in ("param", "optimizer")},
        **dict.fromkeys((f"actor_rollout_ref.{part}.log_prob_micro_batch_size" for part in ("rollout", "ref")), micro),
        "critic.forward_micro_batch_size": micro,
    }
    trainer = "ppo_megatron_trainer" if path.startswith(MEGATRON) else "ppo_trainer"
    yield one_call(
        path=path,
        stage="config",
        call=kept_sizes,
        name="kept",
        arguments={
            "kind": Constant(Function(path)),
            "config": default_config(target, "", fields, trainer),
            "section": Constant(section),
            **knobs("ranks", "sequence", "n"),
        },
        remembered=True,
        produced_by={"config": "ray_trainer.py, init_workers: a section of the trainer's configuration"},
        outputs=arriving_outputs(Use("kept"), _PLACES),
        settings=settings,
        claims=claims(_DOCS),
        reach=f"{own}.ppo_mini_batch_size on several ranks; rollout.n above 1",
    )


def _micro_batches(target: Target, path: str, section: str) -> Iterator[Boundary]:
    """The boundary of the sizes of micro-batches that a worker accepts, in releases that have them per rank."""
    if "ppo_micro_batch_size_per_gpu" not in inspect.getsource(target.find(path).__init__):
        return
    own = section or "actor_rollout_ref.actor"
    fields = {
        "actor_rollout_ref.rollout.n": Constant(1),
        f"{own}.ppo_mini_batch_size": Constant(_PLAIN["ppo_mini_batch_size"]),
        f"{own}.ppo_micro_batch_size": Constant(None),
        f"{own}.ppo_micro_batch_size_per_gpu": Knob("rows"),
        f"{own}.ulysses_sequence_parallel_size": Constant(1),
        "critic.forward_micro_batch_size": Constant(None),
        **{
            f"{own}.fsdp_config.{part}_offload": Constant(value=False) for part in ("param", "optimizer") if not section
        },
    }
    yield one_call(
        path=path,
        stage="config",
        call=kept_sizes,
        name="kept",
        arguments={
            "kind": Constant(Function(path)),
            "config": default_config(target, "", fields),
            **constants(section=section, ranks=1, sequence=1, n=1),
        },
        produced_by={"config": "ray_trainer.py, init_workers: a section of the trainer's configuration"},
        outputs={"accepted": Output("", "", "accepted", at=Use("kept"), form=Accepted())},
        settings={name: {"rows": rows} for name, (rows, _) in MICRO_BATCHES.items()},
        claims=claims(
            _DIVIDES,
            refused={name: why for name, (_, why) in MICRO_BATCHES.items() if why},
            accepted={name: "the micro-batches are equal" for name, (_, why) in MICRO_BATCHES.items() if not why},
        ),
        reach=f"{own}.ppo_micro_batch_size_per_gpu, without use_dynamic_bsz",
    )

"""Boundaries of verl's trainers: the maximum number of prompts that they pass to their data sets."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import constants, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.data_loader import MAIN
from rl_sentinel.adapters.verl.data_loader import PATH as LOADERS
from rl_sentinel.adapters.verl.queue_trainer import BASE
from rl_sentinel.adapters.verl.queue_trainer import TRAINER as V1_TRAINER
from rl_sentinel.adapters.verl.sft_loop import TRAINER as SFT
from rl_sentinel.adapters.verl.staleness import ROLLOUTER
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Settings of the limits, for training and for validation.
LIMITS: Settings = {"data.train_max_samples": 3, "data.val_max_samples": 2}

#: Where releases define the function that makes a data set of prompts.
CREATES = (f"{MAIN}.create_rl_dataset", "verl.trainer.ppo.utils.create_rl_dataset")

_FILES = {"data.train_files": "train", "data.val_files": "validation"}


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer that creates data sets.

    Attributes:
        creates: the possible paths of the function that creates one data set.
        reach: how a user reaches this trainer.
        config: the name of the trainer's default configuration.
        owner: a class to instantiate if the class that defines the method cannot be instantiated.
        fields: fields of the configuration that the trainer needs.
    """

    creates: tuple[str, ...]
    reach: str
    config: str = "ppo_trainer"
    owner: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


#: Method that makes the data sets -> its trainer.
TRAINERS: Mapping[str, Trainer] = {
    LOADERS: Trainer(CREATES, "a trainer that is given no data sets"),
    f"{BASE}._init_dataloader": Trainer(CREATES, "trainer.use_v1=True (the default)", owner=V1_TRAINER),
    f"{ROLLOUTER}.__init__": Trainer(
        CREATES,
        "experimental.fully_async_policy",
        fields={
            "actor_rollout_ref.hybrid_engine": False,
            "data.train_batch_size": 0,
            "data.gen_batch_size": 1,
            "async_training.staleness_threshold": 0.5,
            "async_training.trigger_parameter_sync_step": 4,
        },
    ),
    f"{SFT}._build_dataset": Trainer(
        ("verl.trainer.sft_trainer.create_sft_dataset",), "python -m verl.trainer.sft_trainer", "sft_trainer_engine"
    ),
}

_DOCS = (
    "trainer/config/data/legacy_data.yaml and sft_trainer_engine.yaml: maximum sample length to be used, set to -1 to "
    "use full dataset; main_ppo.py, run: max_samples of create_rl_dataset"
)


class _MadeError(Exception):
    """Ends the method after both data sets are created."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainers of this release, if one of its configuration files has the limits."""
    for path, trainer in TRAINERS.items():
        create = next((one for one in trainer.creates if target.has(one)), "")
        if create and target.has(path) and _has_limits(target) and not target.fails(path.rpartition(".")[0]):
            yield from try_bind(target, path, "config", partial(_limits, target, path, trainer, create))


def _has_limits(target: Target) -> bool:
    files = target.root.glob("verl/trainer/config/**/*.yaml")
    return any("\ntrain_max_samples:" in f"\n{file.read_text(encoding='utf-8')}" for file in files)


def limits_at_data_sets(
    owner: Any,  # noqa: ANN401 - classes and functions of the target, here and below
    method: Callable[..., None],
    create: Callable[..., Any],
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
) -> dict[str, float]:
    """Create the data sets of a trainer; return the limit passed to each data set.

    -1 stands for no limit, and infinity for a value that is neither an int nor a float.
    """
    arrived = dict.fromkeys(LIMITS, -1.0)
    names = iter(LIMITS)

    def record(*about: object, **more: object) -> list[int]:
        bound = inspect.signature(create).bind(*about, **more)
        bound.apply_defaults()
        name = next(names)
        limit = bound.arguments.get("max_samples", -1)
        arrived[name] = float(limit) if isinstance(limit, int | float) else float("inf")
        if name == list(LIMITS)[-1]:
            raise _MadeError
        return [0]

    own = inspect.unwrap(method)
    main = [vars(sys.modules[MAIN])] if MAIN in sys.modules else []  # some import the function when they run
    places = {id(module): module for module in (own.__globals__, create.__globals__, *main)}
    model = SimpleNamespace(tokenizer=None, processor=None)
    trainer = bare_instance(
        owner, config=config, model_config=model, tokenizer=None, processor=None, trainer_mode="sync"
    )
    parameters = list(inspect.signature(own).parameters.values())[1:]
    arguments = {p.name: config if p.name == "config" else None for p in parameters if p.default is p.empty}
    with replaced_globals(*places.values(), **{create.__name__: record}), redirect_stdout(None), suppress(_MadeError):
        own(trainer, **arguments)
    return arrived


def _limits(target: Target, path: str, trainer: Trainer, create: str) -> Iterator[Boundary]:
    fields = {**constants(**_FILES, **trainer.fields), **knobs(*LIMITS)}
    yield one_call(
        path=path,
        stage="config",
        call=limits_at_data_sets,
        name="arrived",
        arguments={
            **functions(owner=trainer.owner or path.rpartition(".")[0], method=path, create=create),
            "config": default_config(target, "", fields, trainer.config),
        },
        remembered=True,
        produced_by={"config": "verl/trainer/config: the configuration files of the release"},
        outputs=arriving_outputs(Use("arrived"), {name: name for name in LIMITS}),
        settings={"limits": LIMITS},
        claims=claims(_DOCS),
        reach=f"{trainer.reach}, data.train_max_samples=3 data.val_max_samples=2",
    )

"""AReaL's FSDP engine: an update that the weights lose if they are stored with the precision of the forward pass."""

import logging
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from rl_sentinel.adapters.areal.learning_rates import METHODS, OPTIONS, run_path
from rl_sentinel.adapters.areal.updates import ENGINE, LM_CONFIG
from rl_sentinel.adapters.kit.arriving_settings import bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

#: Names of the method that loads a language model, newest first.
LOADERS = ("_create_llm_actor_or_critic", "create_llm_actor_or_critic")

#: A learning rate that float32 holds beside a weight of 1, and bfloat16 rounds off.
RATE = 2.0**-14

#: What is measured -> the setting that it must equal.
PLACES = {"change of a weight of 1": "lr"}

_DOCS = (
    "cli_args.py, OptimizerConfig.lr: the learning rate; the first step of Adam changes each weight by this rate, "
    "whatever its gradient is (Kingma and Ba, arXiv 1412.6980, section 2.1)"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of one update of a model that the engine loads under its default data types."""
    load, build = (
        next((f"{ENGINE}.{name}" for name in names if target.has(f"{ENGINE}.{name}")), "")
        for names in (LOADERS, METHODS)
    )
    if load and build and not target.fails(load) and target.has(OPTIONS):
        yield from try_bind(target, load, "config", lambda: [_update(target, load, build)])


class Loader:
    """A fake of transformers' ``AutoModelForCausalLM``: a model with one weight, which is 1."""

    @staticmethod
    def from_pretrained(*_place: object, dtype: torch.dtype | None = None, **options: Any) -> nn.Module:  # noqa: ANN401
        """The model with weights of the type that is asked for; transformers used to call it ``torch_dtype``."""
        model = nn.Linear(1, 1, bias=False, dtype=dtype or options["torch_dtype"])
        nn.init.ones_(model.weight)
        return model


def updated_weight(  # noqa: PLR0913 - the parts of an engine
    load: Callable[..., Any],
    build: Callable[..., Any],
    owner: Any,  # noqa: ANN401 - AReaL's engine class
    config: Callable[..., Any],
    factory: Callable[..., Any],
    run: Callable[..., Any],
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Load a model, build its optimizer and let it step once; return by how much the weight falls."""
    (place,) = places
    settings = factory(type="adam", lr=options["lr"], weight_decay=0.0, warmup_steps_proportion=0.0)
    own = config(experiment_name="run", trial_name="run", path="a/model", optimizer=settings)
    attributes: dict[str, Any] = {
        "config": own,
        "optimizer_config": settings,
        "logger": logging.getLogger("areal"),
        "is_vision_model": False,
        "parallel_helper": SimpleNamespace(tp_enabled=False),
    }
    engine = bare_instance(owner, **attributes)
    with replaced_globals(load.__globals__, AutoModelForCausalLM=Loader):
        engine.model = load(engine)
    with replaced_globals(build.__globals__, get_constant_schedule_with_warmup=nothing):
        build(engine, run(total_train_epochs=1, dataset_size=4, train_batch_size=1))
    (weight,) = engine.model.parameters()
    weight.grad = torch.ones_like(weight)
    engine.optimizer.step()
    return {place: 1 - weight.item()}


def _update(target: Target, load: str, build: str) -> Boundary:
    return bind_arriving(
        load,
        updated_weight,
        {
            **functions(load=load, build=build, owner=ENGINE, config=LM_CONFIG, factory=OPTIONS),
            **functions(run=run_path(target)),
        },
        PLACES,
        settings={"a rate that bfloat16 rounds off": {"lr": RATE}},
        cite=_DOCS,
        reach="FSDP with the default optimizer (adam), and weights that move by less than the precision of dtype",
    )

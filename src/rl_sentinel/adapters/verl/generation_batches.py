"""Boundary of verl's data loader: the number of prompts that it draws at a time for generation."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.data_loader import PATH, SAMPLERS, loader_fakes, offers
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

SETTING = "data.gen_batch_size"

#: A trainer that draws one prompt at a time, until it has enough for an update.
DRAWN: Settings = {SETTING: 1, "data.train_batch_size": 2}

#: Number of prompts of the data set.
PROMPTS = 4

_DOCS = (
    "recipe/dapo/README.md: the trainer will repeat sampling with gen_batch_size until there are enough qualified "
    "groups for train_batch_size; trainer/config/data/legacy_data.yaml, gen_batch_size"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's data loader, in releases that have the setting ``gen_batch_size``."""
    if target.has(PATH) and not target.fails("torchdata.stateful_dataloader.StatefulDataLoader"):
        yield from try_bind(target, PATH, "config", lambda: _generation_batches(target))


def first_batch(
    create: Callable[..., Any],
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """The number of prompts in the first batch of a trainer's loader, for each of ``places``."""
    config.data.train_files = config.data.val_files = PROMPTS
    trainer = SimpleNamespace(config=config, tokenizer=None, processor=None)
    create(trainer, *([None] * (len(inspect.signature(create).parameters) - 1)))
    prompts = len(next(iter(trainer.train_dataloader)))
    return {place: arrives(options[name], prompts) for place, name in places.items()}


def _generation_batches(target: Target) -> Iterator[Boundary]:
    source = "".join(inspect.getsource(target.find(path)) for path in (PATH, *SAMPLERS) if target.has(path))
    if not offers(target, source, SETTING):
        return
    fields = {name: Knob(name, value) for name, value in DRAWN.items()}
    yield bind_arriving(
        PATH,
        first_batch,
        {"create": Constant(Function(PATH)), "config": default_config(target, "", fields)},
        {"prompts drawn at a time": SETTING},
        settings={"prompts drawn at a time": DRAWN},
        cite=_DOCS,
        reach="data.gen_batch_size, as in the scripts of DAPO",
        fakes=loader_fakes(target),
    )

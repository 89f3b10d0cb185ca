"""Boundary of optimizer settings that a framework passes to Megatron: learning rate, decay, clipping, betas."""

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

#: A field of Megatron's ``OptimizerConfig`` -> a value that is not its default.
GIVEN: Settings = {"lr": 3e-4, "clip_grad": 0.7, "weight_decay": 0.05, "adam_beta1": 0.8, "adam_beta2": 0.95}

#: The defaults of fields, from Megatron-LM, megatron/core/optimizer/optimizer_config.py.
DEFAULTS: Settings = {"clip_grad": 1.0, "weight_decay": 0.01, "adam_beta1": 0.9, "adam_beta2": 0.999}

#: The fields that frameworks have as one option, a list.
_BETAS = ("adam_beta1", "adam_beta2")


class Section(dict[str, Any]):
    """A section of a configuration; an option can be read as an item or as an attribute, if it is set."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a value of the configuration
        """The value of an option.

        Raises:
            AttributeError: if the option is not set.
        """
        if name not in self:
            raise AttributeError(name)
        return self[name]


def settings_at_megatron(
    convert: Callable[..., Any], names: Mapping[str, str], options: Settings, places: Mapping[str, str]
) -> dict[str, float]:
    """Convert a section of options; return what arrived in Megatron's configuration, as place -> number.

    ``names`` maps each field to the framework's option; the betas share one option. :func:`arrives` gives the numbers.
    A field that the conversion does not set has Megatron's default; ``lr``, which has none, is then infinite.
    """
    section = Section(optimizer="adam", min_lr=0.0)
    for field, name in names.items():
        section[name] = [options[beta] for beta in _BETAS] if field in _BETAS else options[field]
    others = list(inspect.signature(convert).parameters.values())[1:]
    more: list[dict[str, Any]] = [{} for parameter in others if parameter.default is parameter.empty]  # overrides: none
    fakes: dict[str, Any] = {"OptimizerConfig": SimpleNamespace, "print_rank_0": lambda *_text: None}
    with replaced_globals(convert.__globals__, **fakes):
        made = {**DEFAULTS, **vars(convert(section, *more))}
    return {place: arrives(options[field], made.get(field)) for place, field in places.items()}


def bind_megatron_optimizer(path: str, names: Mapping[str, str], *, cite: str, reach: str) -> Boundary:
    """The boundary of a function that makes Megatron's configuration of an optimizer.

    Args:
        path: the function.
        names: field of Megatron's configuration -> the option of the framework; the betas share one option.
        cite: where the options are documented.
        reach: how a user sets the options.
    """
    return bind_arriving(
        path,
        settings_at_megatron,
        {"convert": Constant(Function(path)), "names": Constant(dict(names))},
        {f"OptimizerConfig.{field}": field for field in names},
        settings={"options of Adam": {field: GIVEN[field] for field in names}},
        cite=cite,
        reach=reach,
    )

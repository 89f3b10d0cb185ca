"""Codec of a nested configuration object, whose fields are set at dotted paths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_sentinel.adapters.kit.evaluation import invoke
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.call import Call
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Absent


def set_fields(config: Any, **values: Any) -> Any:  # noqa: ANN401 - a framework's configuration
    """Set fields of a nested configuration, each at its dotted path; the last name may be a new key of a dict.

    Raises:
        AttributeError: if a path does not exist.
    """
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        owner = get_field(config, section) if section else config
        if isinstance(owner, dict):
            owner[name] = value
        elif hasattr(owner, name):
            setattr(owner, name, value)
        else:
            raise AttributeError(f"{type(config).__name__} has no field {path}")
    return config


def get_field(config: Any, path: str) -> Any:  # noqa: ANN401 - a framework's configuration
    """The field at a dotted path; None if a dict does not have the key."""
    for name in path.split("."):
        config = config.get(name) if isinstance(config, dict) else getattr(config, name)
    return config


@dataclass(frozen=True, slots=True)
class Config(Codec):
    """A nested configuration of the framework's class: default values, except for some fields.

    ``fixed`` maps the path of a field to its value in every case. ``knobs_at`` maps the path of a field to the
    framework-independent name of a setting; the field is set if the case has that setting. With ``section``, only this
    section is passed.
    """

    make: str
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    knobs_at: Mapping[str, str] = field(default_factory=dict)
    section: str = ""

    def put(self, inputs: Inputs) -> Call:
        """The call that creates the configuration, once per setting."""
        named = {path: inputs.settings[name] for path, name in self.knobs_at.items() if name in inputs.settings}
        tree = Call(set_fields, (Call(self.make),), {**self.fixed, **named}, shared=True)
        return Call(get_field, (tree, self.section)) if self.section else tree

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401 - a passed configuration
        """The settings that the configuration holds, under their framework-independent names."""
        inside = len(self.section) + 1 if self.section else 0
        return {name: get_field(value, path[inside:]) for path, name in self.knobs_at.items()}

    def check(self, target: Target) -> None:
        """Raise ``Absent`` if the class of this release does not have a field that this codec sets."""
        config = invoke(target, self.make, [], {}, {})
        for path in (*self.fixed, *self.knobs_at):
            try:
                get_field(config, path)
            except AttributeError as error:
                raise Absent(f"{path} is absent: {self.make} has no such field") from error

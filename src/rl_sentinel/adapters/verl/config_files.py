"""Read sections of verl's YAML configuration files, for releases without configuration classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Codec


def default_config(target: Target, section: str, fields: Mapping[str, Codec], trainer: str = "ppo_trainer") -> Codec:
    """A section of a trainer's default configuration (all of it if ``section`` is empty), with some fields set."""
    folder = target.root / "verl" / "trainer" / "config"
    generated = folder / f"_generated_{trainer}.yaml"
    file = generated if generated.is_file() else folder / f"{trainer}.yaml"
    parts = {"file": Constant(str(file)), "section": Constant(section), "fields": Table(fields)}
    return Object(load_section, parts, at={"fields": ""}, shared=True)


def load_section(file: str, section: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an OmegaConf section
    """Load a section of a configuration file and set some fields."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    config = merge_defaults(Path(file))
    config = OmegaConf.select(config, section) if section else config
    for key, value in fields.items():
        OmegaConf.update(config, key, value, force_add=True)
    return config


def merge_defaults(file: Path) -> Any:  # noqa: ANN401 - an OmegaConf configuration
    """Load a file and merge it over its ``defaults``, as Hydra does: ``name``, or ``folder@section: name``."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    own = OmegaConf.load(file)
    merged = OmegaConf.create()
    for entry in own.pop("defaults", []):
        if entry == "_self_":
            continue
        ((place, name),) = entry.items() if hasattr(entry, "items") else (("", entry),)
        group, _, section = place.partition("@")
        part = merge_defaults((file.parent / group / name).with_suffix(".yaml"))
        OmegaConf.update(merged, section or group, part) if place else merged.merge_with(part)
    return OmegaConf.merge(merged, own)

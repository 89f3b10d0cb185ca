"""Boundary of verl's loader of processors: models with vision that the release has code for get their processor."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

PATH = "verl.utils.tokenizer.hf_processor"

#: A model -> verl's module for it, and the class of its processor in transformers.
MODELS: Mapping[str, tuple[str, str]] = {
    "Qwen2-VL": ("qwen2_vl", "Qwen2VLProcessor"),
    "Qwen2.5-VL": ("qwen2_vl", "Qwen2_5_VLProcessor"),
    "Qwen3-VL": ("qwen3_vl", "Qwen3VLProcessor"),
    "GLM-4V": ("glm4v", "Glm4vProcessor"),
}

#: Packages of transformers with the models.
_FOLDERS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v")

_DOCS = (
    "utils/tokenizer, hf_processor, docstring: the pretrained multimodal processor, None for text-only models; "
    "models/transformers: the models with vision that verl patches; transformers, processing_*.py: the classes"
)


class Models(ModuleType):
    """A fake of a package of transformers, whose classes have the methods of models with vision."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a class
        """A class of a model.

        Raises:
            AttributeError: if Python asks for an attribute of modules.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"get_rope_index": lambda *_about, **_more: None})


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the loader, with the models that a release has code for."""
    folder = target.root / "verl" / "models" / "transformers"
    names = [name for name, (module, _) in MODELS.items() if (folder / f"{module}.py").is_file()]
    if names and target.has(PATH):
        yield from try_bind(target, PATH, "config", lambda: [_processors(names)])


def loaded_processor(load: Callable[..., Any], options: Settings, places: Mapping[str, str]) -> dict[str, float]:
    """Load the processor of a model; return whether the result has its class."""

    def made(*_path: object, **_about: object) -> Any:  # noqa: ANN401 - a processor
        return type(str(options["processor"]), (), {})()

    package: Any = Models("transformers")
    package.AutoProcessor = SimpleNamespace(from_pretrained=made)
    package.AutoConfig = SimpleNamespace(from_pretrained=lambda *_path, **_about: SimpleNamespace())
    names = ("transformers.models", *(f"transformers.models.{name}" for name in _FOLDERS))
    modules = {"transformers": package, **{name: Models(name) for name in names}}
    with patch.dict(sys.modules, modules), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the loader warns and returns None
        found = load("a/model")
    return {place: arrives(options[setting], type(found).__name__) for place, setting in places.items()}


def _processors(names: list[str]) -> Boundary:
    return bind_arriving(
        PATH,
        loaded_processor,
        functions(load=PATH),
        {"class of the processor": "processor"},
        settings={name: {"processor": MODELS[name][1]} for name in names},
        cite=_DOCS,
        reach="actor_rollout_ref.model.path of a model with vision",
    )

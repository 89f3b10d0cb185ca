"""The processors of models with vision that verl loads, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, model_processors
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

LOADER = """
    import importlib
    import types
    import warnings

    OWNERS = {
        "Qwen2VLProcessor": ("qwen2_vl", "Qwen2VLModel"),
        "Qwen2_5_VLProcessor": ("qwen2_5_vl", "Qwen2_5_VLModel"),
        QWEN3: ("qwen3_vl", "Qwen3VLModel"),
        GLM: ("glm4v", "Glm4vModel"),
    }

    def hf_processor(path):
        from transformers import AutoConfig, AutoProcessor, PreTrainedTokenizerBase

        processor = AutoProcessor.from_pretrained(path)
        if isinstance(processor, PreTrainedTokenizerBase):
            return None
        try:
            module, owner = OWNERS[type(processor).__name__]
            model = getattr(importlib.import_module(f"transformers.models.{module}"), owner)
            processor.config = AutoConfig.from_pretrained(path)
            processor.get_rope_index = types.MethodType(model.get_rope_index, processor)
        except KeyError as error:
            warnings.warn(f"no processor: {error}")
            return None
        return RESULT
"""

SOUND = {"QWEN3": '"Qwen3VLProcessor"', "GLM": '"Glm4vProcessor"', "RESULT": "processor"}
PLAIN = """
    def hf_processor(path):
        from transformers import AutoProcessor

        processor = AutoProcessor.from_pretrained(path)
        return processor if "Processor" in type(processor).__name__ else None
"""


def _bound(loads: Loads, source: str, **broken: str) -> tuple[Target, Boundary]:
    tree = {
        "verl/utils/tokenizer.py": rewritten(source, SOUND | broken) if source is LOADER else source,
        "verl/utils/__init__.py": "",
        **{f"verl/models/transformers/{name}.py": "" for name in ("__init__", "qwen2_vl", "qwen3_vl", "glm4v")},
        "verl/models/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {})
    return target, the_only(model_processors.boundaries(target))


@pytest.mark.parametrize("source", [LOADER, PLAIN])
def test_sound(loads: Loads, source: str) -> None:
    """A loader that knows the classes, and one that does not ask."""
    target, boundary = _bound(loads, source)
    assert list(boundary.settings) == list(model_processors.MODELS)
    check_calls(target, [boundary])
    for name in boundary.settings:
        check_verdict(CFG004, boundary, name, target, found=False)


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        ({"GLM": '"Glm4vImageProcessor"'}, {"GLM-4V"}),
        ({"QWEN3": '"Qwen3VLImageProcessor"'}, {"Qwen3-VL"}),
        ({"RESULT": "None"}, set(model_processors.MODELS)),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], wrong: set[str]) -> None:
    """The class of another object of the model, and a loader that returns nothing."""
    target, boundary = _bound(loads, LOADER, **broken)
    assert wrong <= set(boundary.settings)
    for name in boundary.settings:
        check_verdict(CFG004, boundary, name, target, found=name in wrong)


def test_releases_without_models_with_vision(loads: Loads) -> None:
    """A release without code for such models has no boundary here."""
    tree = {"verl/utils/tokenizer.py": PLAIN, "verl/utils/__init__.py": ""}
    assert list(model_processors.boundaries(loads(FRAMEWORK, tree, {}))) == []

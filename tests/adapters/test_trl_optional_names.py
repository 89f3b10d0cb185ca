"""Modules of TRL that name a class of an absent package in a signature."""

import builtins

from adapters.checks import Loads
from adapters.trl_specimen import files, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, optional_names

TRAINER = """
    if False:
        from peft import PeftConfig

    class SDFTTrainer:
        def __init__(self, peft_config: PeftConfig | None = None):
            self.config = peft_config
"""

PLACE = "trl.experimental.sdft.sdft_trainer"


def _loaded(loads: Loads) -> Target:
    return loads(FRAMEWORK, {**files(), f"{PLACE.replace('.', '/')}.py": TRAINER}, overlay())


def test_module_cannot_be_imported(loads: Loads) -> None:
    """Without the names, the import raises NameError."""
    assert "PeftConfig" in _loaded(loads).fails(PLACE)


def test_names_are_defined_while_boundaries_are_made(loads: Loads) -> None:
    """The module can be imported then, and no name remains."""
    target = _loaded(loads)
    with optional_names.defined_names():
        assert target.fails(PLACE) == ""
    assert not any(hasattr(builtins, name) for name in optional_names.NAMES)
    assert target.find(f"{PLACE}.SDFTTrainer")(None).config is None

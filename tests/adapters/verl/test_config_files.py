"""Sections of configuration files that ship with verl."""

import json
from collections.abc import Callable

import pytest
import torch

from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs

Loads = Callable[..., Target]

WHOLE = {"critic": {"grad_clip": 1.0, "model": {"path": ""}}}

#: The same in parts: a file names those that it is merged over, in its folder or in another one.
PARTS = {
    "ppo_trainer": {"defaults": [{"critic@critic": "dp"}, "_self_"], "critic": {"grad_clip": 1.0}},
    "critic/dp": {"defaults": ["base", "_self_"], "model": {"path": ""}},
    "critic/base": {"grad_clip": 3.0, "model": {"path": "any"}},
}


@pytest.mark.parametrize(
    "written", [{"_generated_ppo_trainer": WHOLE, "ppo_trainer": {}}, {"ppo_trainer": WHOLE}, PARTS]
)
def test_section(loads: Loads, written: dict[str, object]) -> None:
    """A section is read from the composed file, from one whole file, or from the parts that a file lists."""
    tree = {f"verl/trainer/config/{name}.yaml": json.dumps(content) for name, content in written.items()}
    target = loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})
    codec = default_config(target, "critic", {"ppo_epochs": Constant(2)})
    assert str(target.root) not in repr(codec), "a script with this path runs on one machine only"
    section = evaluate(target, codec.put(Inputs(batch_of(torch.ones(1, 1, dtype=torch.bool)))), StepResults())
    assert section == {"grad_clip": 1.0, "model": {"path": ""}, "ppo_epochs": 2}

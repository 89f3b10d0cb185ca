"""The trainer that TRL's adapters build, on a specimen of TRL's call shapes."""

import pytest

from adapters.checks import Loads
from adapters.trl_counters_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer

PLACE = "trl/trainer/grpo_trainer.py"


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("decides", [True, False])
def test_reference_policy(loads: Loads, *, beta: float, decides: bool) -> None:
    """Without a KL penalty there is no reference, but where the trainer asks it at each beta."""
    texts = files()
    if decides:
        texts[PLACE] = texts[PLACE].replace("def __init__", "no_penalty = 'beta == 0'\n\n        def __init__", 1)
    loads(FRAMEWORK, texts, overlay())
    trainer = make_trainer("grpo", beta=beta)
    assert (trainer.ref_model is None) == (decides and not beta)

"""Trees of settings: fixed values and knobs at dotted paths of the framework's own class."""

from collections.abc import Callable

import pytest

from adapters.kit.by_hand import BATCH
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.configs import Config, get_field, set_fields
from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import Absent

NOTHING = Framework(name="made", package="made", boundaries=lambda _target: iter(()))
FILES = {
    "made/__init__.py": "",
    "made/code.py": """
        class Loss:
            def __init__(self):
                self.clip, self.mode = 0.1, "mean"

        class Config:
            def __init__(self):
                self.loss, self.steps = Loss(), 1
    """,
}


@pytest.mark.parametrize("section", ["", "loss"])
def test_a_configuration(loads: Callable[..., Target], section: str) -> None:
    """The defaults, with what is fixed and what the case sets; read back under the neutral name."""
    target = loads(NOTHING, FILES)
    codec = Config("made.code.Config", {"steps": 4}, {"loss.clip": "clip_low", "loss.mode": "mode"}, section)
    codec.check(target)
    made = evaluate(target, codec.put(Inputs(BATCH, {"clip_low": 0.3})), StepResults())
    assert codec.knobs(made) == {"clip_low": 0.3, "mode": "mean"}
    assert (made.clip if section else made.steps) == (0.3 if section else 4)


def test_a_field_that_does_not_exist(loads: Callable[..., Target]) -> None:
    """Is named, before and when it is set."""
    target = loads(NOTHING, FILES)
    with pytest.raises(Absent, match=r"^loss.range is absent: made.code.Config has no such field$"):
        Config("made.code.Config", knobs_at={"loss.range": "clip"}).check(target)
    config = target.call("made.code.Config")
    with pytest.raises(AttributeError, match=r"^Config has no field loss.range$"):
        set_fields(config, **{"loss.range": 1})
    assert get_field(set_fields(config, **{"loss.mode": "sum"}), "loss.mode") == "sum"

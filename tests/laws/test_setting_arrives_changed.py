"""CFG004: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.arriving_settings import arrives
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.setting_arrives_changed import LAW
from specimens import judged, specimen

OUTPUTS = {name: Output("", "", f"setting.{name}") for name in ("temperature", "top_p")}
SETTINGS = {"default": {"temperature": 0.7, "top_p": 0.9}}


def _passed_on(_batch: Batch, temperature: float, top_p: float) -> dict[str, Tensor]:
    return {"temperature": torch.tensor(temperature), "top_p": torch.tensor(top_p)}


def _exchanged(_batch: Batch, temperature: float, top_p: float) -> dict[str, Tensor]:
    return {"temperature": torch.tensor(top_p), "top_p": torch.tensor(temperature)}


def test_sound() -> None:
    """Every setting arrives."""
    boundary = specimen(_passed_on, reads="", stage="config", outputs=OUTPUTS, settings=SETTINGS)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A setting that arrives under another name has another value."""
    found = judged(LAW, specimen(_exchanged, reads="", stage="config", outputs=OUTPUTS, settings=SETTINGS)).found
    assert found is not None
    assert found.expectation.sentence() == "temperature is 0.9, expected 0.7: a setting must arrive as it was set"
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """Without a setting of that name nothing is known of what arrives."""
    judgement = judged(LAW, specimen(lambda _batch: torch.tensor(1.0), reads="", stage="config", outputs=OUTPUTS))
    assert (judgement.tried, judgement.reason) == (
        0,
        "the boundary does not report which values of its settings arrive",
    )


def test_text_that_becomes_a_number() -> None:
    """A text must arrive as it is: it does not where it is read as a number."""
    outputs = {"stop": Output("", "", "setting.stop")}

    def read_anew(_batch: Batch, stop: str) -> dict[str, Tensor]:
        return {"stop": torch.tensor(arrives(stop, float(stop)))}

    def kept(_batch: Batch, stop: str) -> dict[str, Tensor]:
        return {"stop": torch.tensor(arrives(stop, stop))}

    settings = {"default": {"stop": "1e5"}}
    found = judged(LAW, specimen(read_anew, reads="", stage="config", outputs=outputs, settings=settings)).found
    assert found is not None
    wanted = "stop is 0, expected 1: 1 means that the text arrives as it was set"
    assert found.expectation.sentence() == wanted
    assert judged(LAW, specimen(kept, reads="", stage="config", outputs=outputs, settings=settings)).found is None


def test_number_that_is_lost() -> None:
    """None in the place of a number is shown as infinity."""

    def lost(_batch: Batch, temperature: float, top_p: float) -> dict[str, Tensor]:
        return {"temperature": torch.tensor(arrives(temperature, None)), "top_p": torch.tensor(top_p)}

    found = judged(LAW, specimen(lost, reads="", stage="config", outputs=OUTPUTS, settings=SETTINGS)).found
    assert found is not None
    wanted = "a setting must arrive as it was set (infinity means that no number arrives)"
    assert found.expectation.sentence() == f"temperature is infinity, expected 0.7: {wanted}"

"""One boundary under one setting: smoke check first, then each law."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.unit import Unit, units
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.audit.sandbox.job import Event
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, Settings
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.observation import Ask
from rl_sentinel.core.storage import case_from_json
from specimens import specimen

HERE = Path(__file__).parent
REQUEST = Request(task="audit", framework="f", root=str(HERE), version="", budget=4)


def leaking(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward.mean()).unsqueeze(1) * batch.mask


def sound(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask


def only_masked(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask


def mostly_plain(batch: Batch) -> Tensor:
    return sound(batch) if bool(batch.mask.all()) else only_masked(batch)


class _Scaled(torch.autograd.Function):
    """A function whose gradient is computed elsewhere."""

    @staticmethod
    def forward(_ctx: Any, logprob: Tensor) -> Tensor:
        return logprob * 2

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return only_backward(gradients[0])


def only_backward(gradient: Tensor) -> Tensor:
    return gradient * 2


def scaled_loss(batch: Batch) -> dict[str, Tensor]:
    scaled: Tensor = _Scaled.apply(batch.logprob)  # type: ignore[no-untyped-call]  # torch's
    return {"loss": (scaled * batch.mask).sum()}


def _unit(compute: Any, *codes: str, root: Path = HERE, **more: Any) -> Unit:
    boundary = specimen(compute, reads="reward mask", **more)
    return Unit(Target(root=root), boundary, "default", [laws()[c] for c in codes], {}, REQUEST)


def _verdicts(unit: Unit) -> dict[str, Event]:
    events: list[Event] = []
    unit.run(events.append)
    return {e["law"]: e for e in events if e["event"] == "verdict"}


@pytest.mark.parametrize(("budget", "fewer"), [(0, True), (4, False)])
def test_a_boundary_that_enters_many_functions_is_tried_on_fewer_cases(
    monkeypatch: pytest.MonkeyPatch, budget: int, fewer: bool
) -> None:
    def tried(most: int) -> int:
        monkeypatch.setattr("rl_sentinel.audit.engine.unit.LONG_RUN", most)
        unit = replace(_unit(sound, "RAI001"), request=replace(REQUEST, budget=budget))
        return int(_verdicts(unit)["RAI001"]["tried"])

    assert (tried(0) < tried(40)) is fewer


def test_each_law_gets_its_verdict() -> None:
    found = _verdicts(_unit(leaking, "MSK001", "PUR001", "SHF001"))
    assert {k: v["outcome"] for k, v in found.items()} == {
        "MSK001": "broken",
        "PUR001": "holds",
        "SHF001": "not-applicable",
    }
    assert found["MSK001"]["evidence"]["signature"] == "f:MSK001:specimen:default"
    assert found["PUR001"]["tried"] > 0
    assert found["SHF001"]["reason"]


def _doubled(ask: Ask, case: Case) -> Iterator[Expectation]:
    """A gradient and the advantage are twice as large; of these, only the advantage is an output of a run."""
    values = ask(case).values["advantage"]
    for name in ("gradient of reward", "advantage"):
        yield Equal(name, values * 2, values, None, 1.0, reason="it doubles")


def _named(batch: Batch, settings: Settings) -> dict[str, Tensor]:
    return {"advantage": leaking(batch)}


def test_script_shows_another_output_that_breaks_on_the_case() -> None:
    unit = _unit(leaking)
    (step,) = unit.boundary.steps
    unit.boundary = replace(unit.boundary, steps=(replace(step, call=_named),))  # a script contains no inner function
    unit.laws = [replace(laws()["MSK001"], expect=_doubled)]
    record = _verdicts(unit)["MSK001"]["evidence"]
    assert record["expectation"]["output"] == "gradient of reward"
    assert record["outputs"] == {"broken": ["gradient of reward", "advantage"], "held": []}
    text = "\n".join(record["script"])
    assert "no script" not in text
    assert 'print("MSK001: advantage"' in text


def test_a_finding_stays_where_a_later_call_is_refused() -> None:
    def one_more(ask: Ask, case: Case) -> Iterator[Expectation]:
        yield from _doubled(ask, case)
        raise NotApplicable("the next micro-batch has no trained token")

    unit = _unit(leaking)
    unit.laws = [replace(laws()["MSK001"], expect=one_more)]
    assert _verdicts(unit)["MSK001"]["outcome"] == "broken"


@pytest.mark.parametrize(
    ("compute", "root", "outcome", "reason"),
    [
        (
            lambda b: torch.zeros(b.mask.shape),
            HERE,
            "errored",
            "output advantage does not change with any column that the boundary reads",
        ),
        (
            lambda _b: None,
            HERE,
            "errored",
            "output 'advantage' is of type NoneType, expected a tensor of shape [2, 2] (axes B T)",
        ),
        (sound, Path("/nonesuch"), "errored", "no code of the target was entered"),
    ],
    ids=["constant", "nothing", "elsewhere"],
)
def test_smoke_check_settles_all_laws(compute: Any, root: Path, outcome: str, reason: str) -> None:
    def made(batch: Batch) -> Any:
        return {"advantage": compute(batch)}

    found = _verdicts(_unit(compute if root != HERE else made, "MSK001", "PUR001", root=root))
    assert {(v["outcome"], v["reason"]) for v in found.values()} == {(outcome, reason)}
    assert list(found) == ["MSK001", "PUR001"]


def test_refusal_of_every_case_is_not_applicable() -> None:
    def refuse(_batch: Batch) -> Tensor:
        raise ValueError("never")

    found = _verdicts(_unit(refuse, "MSK001"))
    assert (found["MSK001"]["outcome"], found["MSK001"]["reason"]) == ("not-applicable", "ValueError: never")


def test_a_function_that_one_case_enters_selects_the_boundary() -> None:
    unit = _unit(mostly_plain, "PUR001")
    for functions, number in (((f"{Path(__file__).name}:only_masked",), 1), (("other.py:only_masked",), 0)):
        asked = replace(unit, request=replace(REQUEST, enters=functions))
        assert len(_verdicts(asked)) == number


def test_a_function_that_only_a_gradient_enters_selects_the_boundary() -> None:
    outputs = {"loss": Output("", "", "loss")}
    loss = specimen(scaled_loss, reads="logprob mask", stage="policy-loss", outputs=outputs)
    unit = Unit(Target(root=HERE), loss, "default", [laws()["PUR001"]], {}, REQUEST)
    asked = replace(unit, request=replace(REQUEST, enters=(f"{Path(__file__).name}:only_backward",)))
    assert list(_verdicts(asked)) == ["PUR001"]


def test_replay_tells_three_ways() -> None:
    law = laws()["MSK001"]
    record = _verdicts(_unit(leaking, "MSK001"))["MSK001"]["evidence"]
    case = case_from_json(record["constructed_scenario"])
    assert _unit(leaking, "MSK001").replayed(law, case)[0] == "reproduced"
    assert _unit(sound, "MSK001").replayed(law, case) == ("fixed", None)
    with pytest.raises(NotApplicable, match="does not change with any column"):
        _unit(lambda b: torch.zeros(b.mask.shape), "MSK001").replayed(law, case)


def test_units_pair_settings_with_the_laws_of_the_stage() -> None:
    boundary: Boundary = specimen(sound, reads="reward mask", settings={"a": {}, "b": {}})
    made = list(units(Target(root=HERE), [boundary], [laws()["MSK001"], laws()["SPL001"]], {}, REQUEST))
    assert [(u.name, u.pieces()) for u in made] == [(("specimen", "a"), ["MSK001"]), (("specimen", "b"), ["MSK001"])]

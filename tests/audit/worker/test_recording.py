"""What was done with a target becomes a script that does it again."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rl_sentinel.audit.worker.ending import Ending
from rl_sentinel.audit.worker.literal import Unwritable
from rl_sentinel.audit.worker.recording import Script
from rl_sentinel.core.expectations import Equal


@dataclass
class Section:
    """A part of a configuration."""

    coefficient: float = 0.1


@dataclass
class Config:
    """A configuration as frameworks have it: made first, set afterwards."""

    section: Section = field(default_factory=Section)


def scaled(config: Config, column: torch.Tensor) -> torch.Tensor:
    """What a target might compute; it spoils its argument, as some do."""
    out = column * config.section.coefficient
    column.zero_()
    return out


def test_a_script_does_again_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Settings made after the configuration are in it, arguments stand as they were on entry."""
    script, seen = Script(), []
    for coefficient in (0.25, 0.5):
        run = script.run()
        run.entering("tests.audit.test_recording.Config", (), {})
        config = Config()
        run.returned(config)
        config.section.coefficient = coefficient
        column = torch.tensor([2.0])
        run.entering("tests.audit.test_recording.scaled", (config,), {"column": column})
        seen.append(scaled(config, column))
        run.returned(seen[-1])
    text = "\n".join(script.text(first="baseline", last="variant"))
    text = text.replace("from tests.audit.test_recording import", "from here import")
    names = {"Config": Config, "scaled": scaled}
    lines = [line for line in text.splitlines() if not line.startswith("from here")]
    exec("\n".join(lines), names)  # noqa: S102 - our own text
    assert capsys.readouterr().out == f"baseline: {seen[0]}\nvariant: {seen[1]}\n"


def test_a_call_that_gives_nothing_shows_the_table_that_it_wrote() -> None:
    """Trainers that write their results into the batch are shown by the batch."""
    script = Script()
    run = script.run()
    table = {"reward": 1.0}
    run.entering("here.Trainer.compute", (table,), {})
    table["advantage"] = 2.0
    run.returned(None)
    assert script.text(first="baseline", last="variant")[-3:] == [
        "answer_data_0 = {'reward': 1.0}",
        "answer = Trainer.compute(\n    answer_data_0,\n)",
        'print("answer:", answer_data_0)',
    ]


def test_what_cannot_be_written_is_said() -> None:
    """No script is better than a wrong one."""
    script = Script()
    run = script.run()
    run.entering("a.b", (object(),), {})
    run.returned(None)
    with pytest.raises(Unwritable, match="no source text for a object"):
        script.text(first="baseline", last="variant")


def test_a_run_that_never_entered_is_no_script() -> None:
    """An empty script would show nothing."""
    script = Script()
    script.run()
    with pytest.raises(Unwritable, match="not called through its gate"):
        script.text(first="baseline", last="variant")


def test_what_a_call_enters_is_its_own_business() -> None:
    """A call within a call is no line of the script, and takes no name."""
    script = Script()
    run = script.run()
    run.entering("here.outer", (1,), {})
    run.entering("here.inner", (2,), {})
    run.returned(3)
    run.returned(4)
    assert script.text(first="baseline", last="variant")[-2:] == [
        "answer = outer(\n    1,\n)",
        'print("answer:", answer)',
    ]


def test_neighbours_are_the_first_two_runs() -> None:
    """Of a knob both values are shown on the one batch of the finding; others come after."""
    script = Script()
    for number in range(4):
        run = script.run()
        run.entering("here.f", (number,), {})
        run.returned(number)
    lines = script.text(first="baseline", last="variant", neighbours=True)
    assert [line.splitlines()[1] for line in lines if "= f(" in line] == ["    0,", "    1,"]


def test_a_run_that_was_refused_is_left_out() -> None:
    """A call that raised shows nothing of what was compared."""
    script = Script()
    script.run().entering("here.f", (0,), {})
    for number in (1, 2):
        run = script.run()
        run.entering("here.f", (number,), {})
        run.returned(number)
    lines = script.text(first="baseline", last="variant")
    assert [line.splitlines()[1] for line in lines if "= f(" in line] == ["    1,", "    2,"]


def spoils(column: torch.Tensor, table: dict[str, list[torch.Tensor]]) -> torch.Tensor:
    """Changes both of its arguments."""
    table["rows"][0].add_(1)
    return column.zero_()


def test_an_argument_that_is_changed_is_printed_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    """The result is not what the finding is about; what stays as it was is not printed."""
    script = Script()
    run = script.run(watch=True)
    given: dict[str, Any] = {
        "column": torch.tensor([2.0, float("nan")]),
        "table": {"rows": [torch.ones(1), torch.ones(1)]},
    }
    run.entering("here.spoils", (), given)
    run.returned(spoils(**given))
    text = "\n".join(script.text(first="baseline", last="variant"))
    exec(text.replace("from here import spoils", ""), {"spoils": spoils})  # noqa: S102 - our own text
    assert capsys.readouterr().out.splitlines() == [
        "before: tensor([2., nan])",
        "before: tensor([1.])",
        "after: tensor([0., 0.])",
        "after: tensor([2.])",
    ]


@dataclass
class Proto:
    """A batch as frameworks carry it about."""

    batch: dict[str, torch.Tensor]


def estimated(data: Proto) -> Proto:
    """Puts its result into the batch that it was given."""
    data.batch["advantages"] = data.batch["reward"] * 2
    return data


def test_what_was_put_into_a_batch_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers that are new in it, not what it says of itself."""
    script = Script()
    run = script.run()
    table = {"reward": torch.ones(1)}
    run.entering("here.Proto", (), {"batch": table})
    data = Proto(dict(table))
    run.returned(data)
    run.entering("here.estimated", (data,), {})
    run.returned(estimated(data))
    text = "\n".join(script.text(first="baseline", last="variant")).replace("from here import", "# from here import")
    exec(text, {"Proto": Proto, "estimated": estimated})  # noqa: S102 - our own text
    assert capsys.readouterr().out == "answer: {'advantages': tensor([2.])}\n"


def test_a_script_says_what_it_came_to(capsys: pytest.CaptureFixture[str]) -> None:
    """What was expected stands beside what is got; configurations that nothing used stay out."""
    script = Script()
    run = script.run()
    for _ in range(2):
        run.entering("here.Config", (), {})
        config = Config()
        run.returned(config)
    column = torch.tensor([2.0, 4.0])
    run.entering("here.scaled", (config, column), {})
    answer = scaled(config, column)
    run.returned((answer,))
    where = torch.tensor([True, False])
    equal = Equal("advantage", torch.tensor([0.5, 0.5]), answer, where, tolerance=1e-6)
    ending = Ending("REF001", equal)
    lines = [x for x in script.text(first="baseline", last="variant", ending=ending) if not x.startswith("from here")]
    assert sum("Config(" in line for line in lines) == 1
    names = {"Config": Config, "scaled": lambda *given: (scaled(*given),)}
    exec("\n".join(lines), names)  # noqa: S102 - our own text
    said = capsys.readouterr().out.splitlines()[1:]
    assert said[0] == "expected: [0.5, 0.5]"
    assert said[2] == "REF001: advantage differs"
    corrected = "\n".join(lines).replace("[0.5, 0.5]", "[0.2, 9.0]")
    exec(corrected, names)  # noqa: S102 - our own text
    assert capsys.readouterr().out.splitlines()[-1] == "REF001: advantage is as expected"

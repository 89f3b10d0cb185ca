"""The end of a script: it prints both sides and checks the expectation."""

import pytest
import torch

from rl_sentinel.audit.worker.ending import Ending, Places
from rl_sentinel.core.expectations import Attempt, Change, Equal, Expectation, Finite, Moves, Refuses, Within

ZERO, ONE, TWO = torch.zeros(2), torch.ones(2), torch.tensor([1.0, 2.0])
WHERE = torch.tensor([True, False])
NAN = torch.tensor([1.0, float("nan")])


def test_a_result_that_the_script_does_not_have_is_a_sentence() -> None:
    """A number that is in no answer cannot be compared again; nor can a refusal."""
    equal = Equal("loss", ONE, TWO, change=Change('the batch "cut" in two'))
    sentence = 'print("SPL003: the batch \\"cut\\" in two moves loss of row 1 from 1 to 2")'
    assert Ending("SPL003", equal).lines([Places("", "")]) == ["", sentence]
    refuses = Refuses("accepted", (Attempt("lone", "nothing is left", None),))
    told = 'print("CFG003: accepted, but must be refused: lone (nothing is left)")'
    assert Ending("CFG003", refuses).lines([]) == ["", told]


@pytest.mark.parametrize(
    ("broken", "sound", "values"),
    [
        (Equal("a", ONE, TWO), Equal("a", ONE, ONE + 1e-7), (ONE, TWO)),
        (Equal("a", ONE, ZERO, WHERE), Equal("a", ONE, TWO, WHERE), (ONE, ZERO)),
        (Finite("a", NAN), Finite("a", NAN, WHERE), (None, NAN)),
        (Within("a", TWO, None, ONE), Within("a", TWO, ZERO, None), (None, TWO)),
        (Within("a", ZERO, ZERO, None, strict=True), Within("a", ONE, ZERO, None, strict=True), (None, ZERO)),
    ],
)
def test_the_assertion_says_what_the_measure_says(
    broken: Expectation,
    sound: Expectation,
    values: tuple[torch.Tensor | None, torch.Tensor],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The script's own line is True where the expectation holds, and not where it does not."""
    for expectation, word in ((broken, "differs"), (sound, "is as expected")):
        measured = expectation.measure()
        assert measured is not None
        assert (measured.distance > measured.allowed) == (expectation is broken)
        (pair,) = expectation.pairs()
        names = {"torch": torch, "was": pair.expected, "answer": pair.observed}
        exec("\n".join(Ending("XYZ001", expectation).lines([Places("was", "answer")])), names)  # noqa: S102 - our own text
        assert capsys.readouterr().out.splitlines()[-1] == f"XYZ001: a {word}"
    assert broken.pairs()[0].observed is values[1]


@pytest.mark.parametrize(
    ("after", "direction", "word"), [(ONE, 0, "differs"), (TWO, 0, "is as expected"), (TWO, -1, "differs")]
)
def test_what_must_move(after: torch.Tensor, direction: int, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Anywhere, or in one direction at the places that count."""
    moves = Moves("a", Change("X"), after != ONE, {"a": (ONE, after), "b": (ONE, ONE)}, ~WHERE, direction=direction)
    names = {"torch": torch, "one": ONE, "after": after}
    lines = Ending("XYZ001", moves).lines([Places("one", "after"), Places("one", "one")])
    exec("\n".join(lines), names)  # noqa: S102 - our own text
    assert capsys.readouterr().out.splitlines()[-1] == f"XYZ001: a {word}"

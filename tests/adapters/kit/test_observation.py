"""A live call is read back: by name or by position, with and without lengths."""

import pytest
import torch

from adapters.kit.by_hand import BATCH
from rl_sentinel.adapters.kit.codecs import Column, CumulativeLengths, Lengths
from rl_sentinel.adapters.kit.forms import Packed
from rl_sentinel.adapters.kit.observation import Observed, bind, observe
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, PackedSequence
from rl_sentinel.adapters.kit.value_codecs import Knob, Spread
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.codec import Codec


def _observed(codecs: dict[str, Codec], **live: object) -> Observed:
    return observe(Step(call="m.f", arguments=codecs), live)


def test_an_argument_by_position() -> None:
    """An adapter may number its arguments; a live call names them, and gives defaults too."""

    def loss(rewards: object, mask: object, clip: float = 0.2) -> None:
        """Take three arguments."""

    arguments = bind(loss, (torch.tensor([1.0]),), {"mask": torch.ones(1, 2)})
    codecs = {"0": Column("reward"), "1": Column("mask"), "clip": Knob("clip_low")}
    observed = _observed(codecs, **arguments)
    assert observed.knobs == {"clip_low": 0.2}
    assert observed.columns["mask"].tolist() == [[True, True]]


def test_settings_that_are_spread() -> None:
    """All arguments that no other codec has."""
    assert _observed({"self": Knob("own"), "settings": Spread()}, self=1, a=2).knobs == {"own": 1, "a": 2}


def test_a_case_of_what_was_read() -> None:
    """Absent columns are named; the mask is that of the call, else every token is trained."""
    observed = _observed({"x": Column("logprob"), "n": Lengths()}, x=torch.zeros(2, 3), n=[3, 1])
    boundary = Boundary(path="m.f", stage="kl", steps=(), outputs={}, reads=frozenset({"logprob", "length", "mask"}))
    assert observed.absent(boundary) == {"mask"}
    batch = observed.case().batch
    assert (batch.length.tolist(), batch.mask.tolist()) == ([3, 1], [[True] * 3] * 2)
    with pytest.raises(ValueError, match=r"^the call does not determine the number of rows, expected an"):
        _observed({"clip": Knob("clip")}, clip=1).case()
    with pytest.raises(ValueError, match=r"^the call does not determine the width, expected an argument with a row of"):
        _observed({"rewards": Column("reward")}, rewards=torch.zeros(2)).case()


X = torch.tensor([-1.0, -2.0, -3.0, -4.0])
SHIFTED = PackedSequence(shift=1)


@pytest.mark.parametrize(
    ("codecs", "live", "logprob"),
    [
        ({"x": Column("logprob")}, {"x": BATCH.logprob}, BATCH.logprob.tolist()),
        ({"x": Column("logprob", Packed())}, {"x": X}, [X.tolist()]),
        ({"x": Column("logprob", SHIFTED)}, {"x": X}, [[-1.0, -2.0, -3.0]]),
        (
            {"x": Column("logprob", SHIFTED), "ends": CumulativeLengths("total")},
            {"x": X, "ends": torch.tensor([0, 1, 4])},
            [[0.0, 0.0], [-2.0, -3.0]],
        ),
        ({"x": Column("logprob", FullSequence())}, {"x": X.view(2, 2)}, [[-2.0], [-4.0]]),
        (
            {"x": Column("logprob", FullSequence()), "attention": AttentionMask()},
            {"x": X.view(1, 4), "attention": torch.tensor([[True, True, True, False]])},
            [[-2.0, -3.0]],
        ),
    ],
)
def test_lengths_that_no_argument_tells(
    codecs: dict[str, Codec], live: dict[str, object], logprob: list[list[float]]
) -> None:
    """Responses fill their rows after prompts of one token; packed tokens without ends are one row."""
    observed = _observed(codecs, **live)
    assert observed.lengths_assumed
    assert observed.columns["logprob"].tolist() == logprob
    assert observed.layout.extra == (1 if "attention" in codecs else 0)

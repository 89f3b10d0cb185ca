"""Arguments made of names, choices made of words, and answers held to what is told of them."""

import pytest
import torch

from frameworks.reference_specimen import TARGET
from rl_sentinel.frameworks.reference.signatures import answer, arguments, choices, takes_segments, trained_tokens
from rl_sentinel.signal import reduce
from rl_sentinel.signal.advantage import grpo, rloo
from rl_sentinel.signal.correction import rejection, trust
from rl_sentinel.signal.minibatches import aggregation

ROW_SUMS = "rl_sentinel.signal.reduce.row_sums"


def test_each_word_meets_each_other() -> None:
    """Three estimates over three ways, either kind of advantage; functions without words are called in one way."""
    assert len(choices(rejection.rows_kept)) == 9
    assert {"estimator": "k2", "over": "max"} in choices(rejection.rows_kept)
    assert [set(one) for one in choices(trust.off_policy_sequences_kept)] == [set(), {"advantage"}]
    assert choices(rloo.advantages) == [{}]
    assert {one["mode"] for one in choices(aggregation)} == {"token-mean"}  # others want what is told elsewhere


def test_what_may_be_packed() -> None:
    """By its mask's annotation."""
    assert takes_segments(reduce.row_sums)
    assert not takes_segments(grpo.advantages)


def test_arguments_are_of_their_names() -> None:
    """Groups are labels, live rows those of the mask; a word of the call goes before."""
    mask = trained_tokens()
    found = arguments(TARGET, "rl_sentinel.signal.advantage.grpo.advantages", {"standardise": False}, mask)
    assert list(found) == ["reward", "group", "live", "standardise", "epsilon"]
    assert (found["group"].tolist(), found["live"].tolist()) == ([4, 3, 3], [True, True, False])
    assert found["standardise"] is False
    two = arguments(TARGET, "rl_sentinel.signal.kl.k1", {}, mask)
    assert two["logprob"].shape == two["ref_logprob"].shape == mask.shape
    assert not torch.equal(two["logprob"], two["ref_logprob"])


@pytest.mark.parametrize("wrong", ["kind", "shape", "axes"])
def test_another_answer_than_told_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Of another kind, a row too many, an axis too many."""
    given = arguments(TARGET, ROW_SUMS, {}, trained_tokens())
    assert [tuple(found.shape) for found in answer(TARGET, ROW_SUMS, given)] == [(3,)]
    found = {"kind": torch.ones(3).long(), "shape": torch.ones(4), "axes": torch.ones(3, 4)}[wrong]

    def row_sums(values: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
        return found

    row_sums.__annotations__ = reduce.row_sums.__annotations__
    row_sums.__module__ = reduce.__name__
    monkeypatch.setattr(reduce, "row_sums", row_sums)
    monkeypatch.setattr(type(TARGET), "call", lambda _self, _path, **more: row_sums(**more))
    monkeypatch.setattr(type(TARGET), "find", lambda _self, _path: row_sums)
    with pytest.raises(ValueError, match=r"^rl_sentinel\.signal\.reduce\.row_sums gave torch\..*, expected "):
        answer(TARGET, ROW_SUMS, given)

"""The composed path as it is asked: which choices, which columns, what is handed back."""

import pytest
import torch

from adapters.library_specimen import outputs_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of

#: Two prompts of two rows each; the last row ends in a token that does not train.
BATCH = batch_of(
    torch.tensor([[True, True], [True, True], [True, True], [True, False]]),
    reward=torch.tensor([1.0, 0.0, 4.0, 2.0]),
    group=torch.tensor([3, 3, 8, 8]),
    length=torch.tensor([2, 2, 2, 2]),
    old_logprob=torch.full((4, 2), -1.0),
    rollout_logprob=torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.25], [-1.0, -9.0]]),
    logprob=torch.full((4, 2), -1.0),
    token_reward=torch.tensor([[0.0, 0.5], [0.0, 0.0], [1.0, 0.0], [0.25, 0.0]]),
    token=torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]]),
)


def _asked(path: str, setting: str, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    batch = batch_of(**{**{n: getattr(BATCH, n) for n in BATCH.__slots__}, **more})
    return outputs_of(path, setting, batch)


def test_outcomes_of_trajectories() -> None:
    """The first two rows are steps of one, with the outcome of its last: 0, whose sibling is 4; the mean is 2."""
    steps = {"trajectory": torch.tensor([6, 6, 7, 9]), "last_step": torch.tensor([False, True, True, True])}
    outputs = _asked("loss_ready", "grpo of trajectories", group=torch.tensor([3, 3, 3, 8]), **steps)
    assert outputs["advantage"].tolist() == [-2.0, -2.0, 2.0, 0.0]


def test_void_outcomes_are_out_of_every_mean() -> None:
    outputs = _asked("loss_ready", "suppressed", scored=torch.tensor([True, True, True, False]))
    assert outputs["advantage"][2:].tolist() == [0.0, 0.0]
    assert outputs["advantage"][:2].tolist() == pytest.approx([2**0.5, -(2**0.5)], rel=1e-5)


@pytest.mark.parametrize("setting", ["tokens and rows rejected", "tokens and rows rejected, packed"])
def test_a_row_that_is_rejected_is_nobodys_sibling(setting: str) -> None:
    """8 nats from its sampler where it trains; padded and packed alike. Off the mask it is near enough."""
    assert _asked("loss_ready", setting)["advantage"].tolist() == [0.5, -0.5, 1.0, -1.0]
    outputs = _asked("loss_ready", setting, mask=torch.ones(4, 2).bool(), rollout_logprob=BATCH.rollout_logprob * 9)
    assert outputs["advantage"].tolist() == [0.0] * 4
    far = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.25], [-9.0, -9.0]])
    assert _asked("loss_ready", setting, rollout_logprob=far)["advantage"].tolist() == [0.5, -0.5, 0.0, 0.0]


@pytest.mark.parametrize(("setting", "packed"), [("rejected", False), ("tokens and rows rejected, packed", True)])
def test_tokens_are_packed_where_it_is_said(monkeypatch: pytest.MonkeyPatch, setting: str, *, packed: bool) -> None:
    seen, plain = [], Target.call

    def call(target: Target, path: str, *given: object, **named: object) -> object:
        seen.append(path.rpartition(".")[2])
        return plain(target, path, *given, **named)

    monkeypatch.setattr(Target, "call", call)
    _asked("loss_ready", setting)
    assert ("Segments" in seen) is packed


def test_weights_of_tokens_and_of_responses() -> None:
    """e^0.25 at one token, and the whole response's on both; without a gradient."""
    own = _asked("loss_ready.weight", "weights of a token")
    assert own["weight"][2].tolist() == pytest.approx([1.0, 1.2840254])
    assert own["requires_grad"].item() == 0.0
    whole = _asked("loss_ready.weight", "weights of a sequence")
    assert whole["weight"][2].tolist() == pytest.approx([1.2840254] * 2)
    assert whole["weight"][3].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("setting", ["one prompt", "two prompts"])
def test_mini_batches_have_every_row(setting: str) -> None:
    assert _asked("prompts_apart", setting)["reward"].tolist() == BATCH.reward.tolist()


def test_turns_are_laid_out_as_rows() -> None:
    outputs = _asked("laid_out", "apart")
    assert outputs["response"].tolist() == BATCH.token.tolist()
    assert outputs["logprob"].tolist() == BATCH.logprob.tolist()
    assert outputs["token_reward"].tolist() == BATCH.token_reward.tolist()
    assert outputs["trained"].tolist() == BATCH.mask.tolist()

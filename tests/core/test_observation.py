"""What a law is handed, and what it hands back."""

import torch

from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case
from rl_sentinel.core.observation import Ask, Observation

BATCH = batch_of(torch.ones(2, 2).bool(), logprob=torch.full((2, 2), -1.0), reward=torch.tensor([1.0, 3.0]))

SQUARES = Boundary(
    path="squares",
    stage="policy-loss",
    steps=(
        batch_step(
            lambda batch, _settings: {"loss": (batch.logprob.square() * batch.reward.unsqueeze(1)).sum()},
            frozenset({"logprob", "reward"}),
        ),
    ),
    outputs=by_name({"loss": Output("", "", "loss")}),
)


def test_an_ask_hands_over_what_was_asked() -> None:
    ask: Ask = Asker(SQUARES, {})
    assert ask.boundary is SQUARES
    plain, with_slope = ask(Case(batch=BATCH)), ask(Case(batch=BATCH), gradients=("logprob",))
    assert isinstance(plain, Observation)
    assert plain.gradients == {}
    assert plain.values["loss"].item() == with_slope.values["loss"].item() == 8.0
    assert with_slope.gradients.keys() == {"logprob"}
    assert with_slope.gradients["logprob"].tolist() == [[-2.0, -2.0], [-6.0, -6.0]]
    assert torch.equal(ask(Case(batch=BATCH), watched=True).inputs_after["reward"], BATCH.reward)


def test_observations_share_nothing() -> None:
    one, other = Observation(values={}), Observation(values={})
    for name in ("gradients", "inputs_after", "arguments"):
        assert getattr(one, name) == {}
        assert getattr(one, name) is not getattr(other, name)

"""What AReaL's losses are passed, on fakes that return their arguments."""

import pytest
import torch

from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, outputs_of
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.losses import CRITIC, GATES, PLAIN, PPO, REJECTING, SAPO, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound

#: Each column at its own power of ten, so that a sum tells which columns went where.
PPO_LOSS = """
    def response(packed):
        assert packed.shape == (2,)  # a prompt of one token and a response of one
        return packed[0]

    def ppo_actor_loss_fn(logprobs, proximal_logprobs, old_logprobs, advantages, eps_clip, loss_mask,
                          eps_clip_higher=None, c_clip=None, rejection_sampling=None,
                          importance_sampling_level="token", cu_seqlens=None):
        passed = logprobs + 10 * proximal_logprobs + 100 * old_logprobs + 1000 * advantages
        assert cu_seqlens.tolist() == [0, 2] and loss_mask.tolist() == [True, False]
        loss_mask.zero_()
        return response(passed) + (0 if rejection_sampling is None else rejection_sampling.upper * 10**6), {}
"""

SAPO_LOSS = """
    def sapo_loss_fn(logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask,
                     importance_sampling_level="token", cu_seqlens=None):
        return (logprobs + 10 * old_logprobs + 100 * advantages)[0] * tau_neg, {}
"""

CRITIC_LOSS = """
    def ppo_critic_loss_fn(value, old_value, target_value, value_eps_clip, loss_mask=None, loss_fn_type="mse"):
        return (value + 10 * old_value + 100 * target_value)[0] * value_eps_clip, {}
"""


def _files(*losses: str, rejects: bool = True) -> dict[str, str]:
    files = {"areal/__init__.py": "", "areal/utils/functional.py": "\n".join(losses), "areal/api/cli_args.py": ""}
    return files | ({"areal/api/cli_args.py": CONFIG} if rejects else {})


def _batch() -> Batch:
    columns = {"logprob": 1.0, "old_logprob": 2.0, "rollout_logprob": 3.0, "advantage": 4.0}
    columns |= {"value": 5.0, "old_value": 6.0, "returns": 7.0}
    return batch_of(torch.ones(1, 1).bool(), **{n: torch.full((1, 1), x) for n, x in columns.items()})


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    every = [b for b in boundaries(target) if isinstance(b, Boundary)]
    return {(b.path, setting): b for b in every for setting in b.settings}


def test_columns_go_where_they_belong(loads: Loads) -> None:
    """The sampler is the old and the proximal policy; decoupled, it is the old one alone."""
    target = loads(FRAMEWORK, _files(PPO_LOSS, SAPO_LOSS, CRITIC_LOSS))
    bound = _bound(target)

    def loss(path: str, setting: str) -> float:
        return outputs_of(target, bound[path, setting], setting, _batch())["loss"].item()

    for setting in PLAIN:
        assert loss(PPO, setting) == 1 + 20 + 200 + 4000
        assert bound[PPO, setting].reads == {"logprob", "old_logprob", "advantage", "mask"}
    for setting in REJECTING:
        assert loss(PPO, setting) == 1 + 20 + 300 + 4000 + 5 * 10**6
        assert "rollout_logprob" in bound[PPO, setting].reads
    assert loss(SAPO, "default") == pytest.approx((1 + 20 + 400) * 1.05)
    assert loss(CRITIC, "default") == (5 + 60 + 700) * 0.5
    assert {s for path, s in bound if path == SAPO} == set(GATES)


def test_the_mask_that_is_passed_is_a_copy(loads: Loads) -> None:
    """A loss that writes into its mask does not reach the batch."""
    target, batch = loads(FRAMEWORK, _files(PPO_LOSS, CRITIC_LOSS)), _batch()
    outputs_of(target, _bound(target)[PPO, "default"], "default", batch)
    assert batch.mask.tolist() == [[True]]


@pytest.mark.parametrize(("lacking", "stage"), [(PPO, "policy-loss"), (CRITIC, "value-loss")])
def test_what_every_release_has_is_missed(loads: Loads, lacking: str, stage: str) -> None:
    """By its path, and the others are bound."""
    kept = {PPO: PPO_LOSS, SAPO: SAPO_LOSS, CRITIC: CRITIC_LOSS}
    del kept[lacking]
    every = list(boundaries(loads(FRAMEWORK, _files(*kept.values()))))
    assert [(b.path, b.stage) for b in every if isinstance(b, Unbound)] == [(lacking, stage)]
    assert {b.path for b in every} == {PPO, SAPO, CRITIC}


def test_what_came_later_is_not_missed(loads: Loads) -> None:
    """Neither SAPO nor rejection of an earlier release; no boundary pretends to them."""
    every = list(boundaries(loads(FRAMEWORK, _files(PPO_LOSS, CRITIC_LOSS, rejects=False))))
    assert not [b for b in every if isinstance(b, Unbound)]
    assert {(b.path, s) for b in every if isinstance(b, Boundary) for s in b.settings} == {
        *((PPO, s) for s in PLAIN),
        (PPO, "sequence, padded"),
        (CRITIC, "default"),
        (CRITIC, "huber"),
    }


@pytest.mark.parametrize("decoupled", [False, True])
def test_former_package(loads: Loads, decoupled: bool) -> None:
    """The losses of realhf, which at first had no proximal policy."""
    policy = """
    def actor_loss_fn(logprobs, old_logprobs, advantages, eps_clip, loss_mask=None, c_clip=None PROXIMAL):
        return (logprobs + 100 * old_logprobs + 1000 * advantages)[0] * eps_clip, {}
    """.replace("PROXIMAL", ", proximal_logprobs=None" if decoupled else "")
    value = CRITIC_LOSS.replace("ppo_critic", "critic")
    module = "realhf/impl/model/utils/ppo_functional"
    target = loads(FRAMEWORK, {"realhf/__init__.py": "", f"{module}.py": f"{policy}\n{value}"})
    bound = _bound(target)
    path = module.replace("/", ".")
    assert {name for name, _ in bound} == {f"{path}.actor_loss_fn", f"{path}.critic_loss_fn"}
    loss = outputs_of(target, bound[f"{path}.actor_loss_fn", "dual clip"], "dual clip", _batch())["loss"]
    assert loss.item() == pytest.approx((1 + 200 + 4000) * 0.2)

"""TRL's loops that sample, score and train in one method, on a specimen in words of our own."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from adapters.checks import Loads, by_setting, judged_at, outputs_of
from adapters.kit.round_trip import check_calls
from adapters.trl_loops_specimen import files, libraries
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, ppo_loop, ppo_updates, rloo_loop
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.metric_cannot_move import LAW as MET002
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001

#: Settings of PPO's boundaries, then of RLOO's.
PPO = {
    *("KL, k1", "KL, k3", "rewards", "default", "discounted", "missing EOS"),
    *("policy", "two mini-batches", "value", "objective", "logged steps"),
}
RLOO = {
    *("KL", "default", "policy", "objective", "missing EOS", "normalize_advantage", "val/clipfrac_avg"),
    "logged steps",
}


def _bound(loads: Loads, module: str, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    target = loads(FRAMEWORK, files(**broken), libraries())
    made = {"ppo": ppo_loop, "rloo": rloo_loop}[module].boundaries(target)
    return target, by_setting(made)


def _sound(loads: Loads, module: str, law: Law, setting: str, **broken: str) -> bool:
    target, boundaries = _bound(loads, module, **broken)
    judgement = judged_at(law, boundaries[setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is None


@pytest.mark.parametrize(("module", "settings"), [("ppo", PPO), ("rloo", RLOO)])
def test_all_boundaries_answer(loads: Loads, module: str, settings: set[str]) -> None:
    target, boundaries = _bound(loads, module)
    assert set(boundaries) == settings
    check_calls(target, [replace(one, requires=_layout_only(one)) for one in boundaries.values()])


def _layout_only(boundary: Boundary) -> tuple[Callable[..., str], ...]:
    """The conditions on shapes: cases of a round trip need not have numbers that the loop itself could compute."""
    advantages = (ppo_updates.is_white, rloo_loop.is_centered)
    numbers = (*advantages, ppo_updates.returns_are_scores, ppo_updates.has_final_states)
    return tuple(condition for condition in boundary.requires if condition not in numbers)


def test_rewards_and_advantages_by_hand(loads: Loads) -> None:
    """Two responses of two tokens: the score of the second is one higher, and no value is predicted."""
    target, boundaries = _bound(loads, "ppo")
    batch = batch_of(
        torch.ones(2, 2, dtype=torch.bool),
        reward=torch.tensor([1.0, 2.0]),
        old_logprob=torch.tensor([[-1.0, -2.0], [-1.0, -1.0]]),
        ref_logprob=torch.tensor([[-2.0, -2.0], [-1.0, -3.0]]),
    )
    rewards = outputs_of(target, boundaries["rewards"], "rewards", batch)["reward"]
    assert rewards.flatten().tolist() == pytest.approx([-0.25, 1.0, 0.0, 1.5])
    kls = outputs_of(target, boundaries["KL, k1"], "KL, k1", batch)["kl"]
    assert kls.flatten().tolist() == pytest.approx([1.0, 0.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("module", "law", "settings"),
    [
        ("ppo", REF001, ("KL, k1", "KL, k3", "rewards", "default", "discounted", "missing EOS", "policy", "value")),
        ("ppo", PAD001, ("KL, k1", "default", "policy", "objective")),
        ("ppo", MET001, ("policy", "two mini-batches", "value", "objective")),
        ("rloo", REF001, ("KL", "default", "missing EOS", "policy")),
        ("rloo", SPL001, ("policy",)),
        ("rloo", CFG001, ("normalize_advantage",)),
        ("rloo", MET002, ("val/clipfrac_avg",)),
    ],
)
def test_sound_loops(loads: Loads, module: str, law: Law, settings: tuple[str, ...]) -> None:
    target, boundaries = _bound(loads, module)
    for setting in settings:
        judgement = judged_at(law, boundaries[setting], setting, target)
        assert (judgement.found, judgement.tried > 0) == (None, True), setting


@pytest.mark.parametrize(
    ("module", "law", "setting", "broken"),
    [
        ("ppo", REF001, "policy", {"clamped": "ratio.clamp(max=high)"}),
        ("ppo", REF001, "KL, k3", {"kl": '-other if args.kl_estimator == "k1" else other.exp() - 1 + other'}),
        ("ppo", REF001, "discounted", {"decay": "args.gamma"}),
        ("ppo", REF001, "default", {"population": "torch.ones_like(mask)"}),
        ("ppo", PAD001, "policy", {"trained": "torch.ones_like(mask[part])"}),
        ("ppo", MET001, "objective", {"scored": "rewards"}),
        ("rloo", REF001, "default", {"others": "args.rloo_k"}),
        ("rloo", REF001, "default", {"shaped": "-args.kl_coef * kl.mean(1)"}),
        ("rloo", REF001, "default", {"grouped": "-1, args.rloo_k"}),
        ("rloo", SPL001, "policy", {"reduced": "sum"}),
        ("rloo", MET002, "val/clipfrac_avg", {"dead": "0.0"}),
    ],
)
def test_faults_are_found(loads: Loads, module: str, law: Law, setting: str, broken: dict[str, str]) -> None:
    """A clip of one side, k3 of the wrong sign, another decay, padding that counts, another column, other siblings."""
    assert not _sound(loads, module, law, setting, **broken)


@pytest.mark.parametrize("module", ["ppo", "rloo"])
@pytest.mark.parametrize(
    ("counted", "sound"), [("1", True), ("0", False), ("2", False), ("self.state.global_step or 1", False)]
)
def test_each_batch_is_logged_one_step_after_the_one_before(
    loads: Loads, module: str, counted: str, sound: bool
) -> None:
    assert _sound(loads, module, MET006, "logged steps", counted=counted) is sound


def test_no_advantage_is_0_after_whitening() -> None:
    """Rounding would decide the sign of such an advantage, and with it whether it is clipped."""
    batch = batch_of(torch.ones(1, 3, dtype=torch.bool), advantage=torch.tensor([[-1.0, 0.0, 1.0]]))
    assert ppo_updates.is_white_batch(batch)
    white = ppo_updates.whitened(batch)
    assert ppo_updates.is_white_batch(white)
    assert float(white.advantage.abs().min()) > ppo_updates.ALIKE


def test_an_inherited_loop(loads: Loads) -> None:
    """Later releases of RLOO inherit the loop of transformers."""
    tree, place = files(), "trl/trainer/rloo_trainer.py"
    tree[place] += "\n    Looped = RLOOTrainer\n\n    class RLOOTrainer(Looped):\n        pass\n"
    assert list(rloo_loop.boundaries(loads(FRAMEWORK, tree, libraries()))) == []

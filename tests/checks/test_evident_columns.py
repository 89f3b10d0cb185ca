"""Parameters of unknown names that are clear are passed without a question, and the report says so."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.adapters.kit.documented_columns import documented_columns
from rl_sentinel.adapters.kit.evident_columns import evident_columns
from rl_sentinel.core.errors import InputError

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_ADVANTAGE: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "budget": 10}
_LOSS: dict[str, Any] = {"stage": "policy-loss", "algorithm": "ppo", "budget": 10}


def of_answers(R: Tensor) -> Tensor:  # noqa: N803 - as in papers
    """R: [G, K], the reward of each answer of a question."""
    centered = R - R.mean(dim=1, keepdim=True)
    return centered / (R.std(dim=1, keepdim=True, unbiased=False) + 1e-6)


def of_all(R: Tensor) -> Tensor:  # noqa: N803 - as in papers
    """R: [G, K], the reward of each answer of a question."""
    return (R - R.mean()) / (R.std(unbiased=False) + 1e-6)


def clipped(lp: Tensor, lp_old: Tensor, A: Tensor, mask: Tensor) -> Tensor:  # noqa: N803 - as in papers
    """lp, lp_old: [B, T]; A: [B, T]; mask: [B, T], True at trained tokens."""
    ratio = (lp - lp_old).exp()
    gain = torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A)
    return -torch.where(mask, gain, 0.0).sum() / mask.sum().clamp(min=1)


def of_the_larger(lp: Tensor, lp_old: Tensor, A: Tensor, mask: Tensor) -> Tensor:  # noqa: N803 - as in papers
    """The larger of both gains, which clips nothing that ought to be clipped."""
    ratio = (lp - lp_old).exp()
    gain = torch.max(ratio * A, ratio.clamp(0.8, 1.2) * A)
    return -torch.where(mask, gain, 0.0).sum() / mask.sum().clamp(min=1)


def whitened(x: Tensor, mask: Tensor) -> Tensor:
    """Less the mean of the trained tokens, over their deviation."""
    count = mask.sum().clamp(min=1)
    centered = torch.where(mask, x - torch.where(mask, x, 0.0).sum() / count, 0.0)
    return centered / (centered.square().sum() / count + 1e-8).sqrt()


@pytest.mark.parametrize(
    ("function", "statement", "note"),
    [
        (of_answers, _ADVANTAGE, "R was passed as reward[G K]"),
        (clipped, _LOSS | {"claims": {"aggregation": "token-mean"}}, "A was passed as advantage"),
        (whitened, {"stage": "normalize", "budget": 10}, "x was passed as advantage[B T]"),
    ],
)
def test_sound_functions_hold_at_the_first_attempt(function: Any, statement: dict[str, Any], note: str) -> None:
    """With a note that says what was passed."""
    result = rl_sentinel.check(function, **statement)
    assert result.ok
    assert any(one.startswith(note) for one in result.notes)


@pytest.mark.parametrize(
    ("function", "statement", "code"),
    [
        (of_all, _ADVANTAGE, "GRP001"),
        (of_the_larger, _LOSS | {"claims": {"aggregation": "token-mean"}}, "REF001"),
    ],
)
def test_faulty_functions_are_found(function: Any, statement: dict[str, Any], code: str) -> None:
    """At the first attempt too."""
    assert code in [finding.code for finding in rl_sentinel.check(function, **statement).findings]


def test_what_is_not_clear_is_asked_about() -> None:
    """All unknown parameters in one message, also those that would be clear alone."""

    def with_a_scale(A: Tensor, logprobs: Tensor, color: Tensor) -> Tensor:  # noqa: N803 - as in papers
        return (A * logprobs * color).sum()

    with pytest.raises(InputError, match="parameters 'A', 'color' of unknown name"):
        rl_sentinel.check(with_a_scale, **_LOSS)


def test_only_clear_words_of_a_docstring_count() -> None:
    """The entry begins with the name of a quantity, and no noun behind it makes it another one."""

    def mixed(a: int, *, b: int, **more: int) -> None:
        """Mix.

        a: the reward of each response
        b: reward model
        c: [B, T] float, advantages
        d: scale of the reward
        e (Tensor): log-probs under the reference
        f: log-probs of the sampler, or of the reference
        g: log-probs of the old or of the reference policy
        """

    clear = documented_columns(mixed, "abcdeg", only_clear=True)
    assert clear == {"a": "reward", "c": "advantage[B T]", "e": "ref_logprob"}
    assert documented_columns(mixed, "bdf") == {"b": "reward", "d": "reward", "f": "rollout_logprob"}


@pytest.mark.parametrize(
    ("stage", "unknown", "taken", "found"),
    [
        ("advantage", ["r"], {"group"}, {"r": "reward"}),
        ("advantage", ["r", "R"], {"group"}, {}),
        ("advantage", ["R"], {"reward"}, {}),
        ("advantage", ["R"], {"value"}, {}),
        ("advantage", ["r", "k"], {"mask"}, {"r": "reward", "k": "num_generations"}),
        ("advantage", ["K"], {"reward", "group"}, {}),
        ("kl", ["A"], {"logprob"}, {}),
        ("normalize", ["x"], {"mask"}, {"x": "advantage[B T]"}),
        ("normalize", ["x", "y"], {"mask"}, {}),
        ("normalize", ["x"], set(), {}),
    ],
)
def test_letters(stage: Any, unknown: list[str], taken: set[str], found: dict[str, str]) -> None:
    """One column is never chosen twice; beside values, rewards may be those of tokens."""
    assert evident_columns(lambda: None, stage, unknown, taken) == found


@dataclass
class _Experience:
    log_probs: Tensor
    mask: Tensor
    advantages: Tensor


def of_a_rollout(log_probs: Tensor, experience: _Experience) -> Tensor:
    """Compare with the log-probs of an experience."""
    return clipped(log_probs, experience.log_probs, experience.advantages, experience.mask)


def of_a_rollout_unclipped(log_probs: Tensor, experience: _Experience) -> Tensor:
    """Clip nothing."""
    return of_the_larger(log_probs, experience.log_probs, experience.advantages, experience.mask)


def of_returns(sample_returns: Tensor, prompt_idx: Tensor) -> Tensor:
    """Center over each prompt."""
    same = (prompt_idx[:, None] == prompt_idx[None]).to(sample_returns.dtype)
    mean = same @ sample_returns / same.sum(dim=1)
    deviation = (same @ (sample_returns - mean).square() / same.sum(dim=1)).sqrt()
    return (sample_returns - mean) / (deviation + 1e-6)


def of_returns_of_all(sample_returns: Tensor, prompt_idx: Tensor) -> Tensor:
    """Center over the batch."""
    del prompt_idx
    return of_all(sample_returns)


def of_targets(logps: Tensor, advantages: Tensor, targets: Tensor) -> Tensor:
    """The policy gradient, where untrained tokens have the target -1."""
    trained = targets >= 0
    return -torch.where(trained, logps * advantages, 0.0).sum() / trained.sum().clamp(min=1)


def of_all_targets(logps: Tensor, advantages: Tensor, targets: Tensor) -> Tensor:
    """Divide by the number of all tokens."""
    return -torch.where(targets >= 0, logps * advantages, 0.0).sum() / targets.numel()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sound", "broken", "statement", "note"),
    [
        (of_a_rollout, of_a_rollout_unclipped, _LOSS, "experience.log_probs was passed as old_logprob"),
        (of_returns, of_returns_of_all, _ADVANTAGE, "sample_returns was passed as reward"),
        (of_targets, of_all_targets, _LOSS | {"algorithm": "reinforce"}, ""),
    ],
)
def test_what_is_clear_beside_other_parameters(sound: Any, broken: Any, statement: dict[str, Any], note: str) -> None:
    """Log-probs of a batch beside current ones, returns of an algorithm of outcomes, targets with an ignored id."""
    if statement["stage"] == "policy-loss":
        statement = statement | {"claims": {"aggregation": "token-mean"}}
    held, found = rl_sentinel.check(sound, **statement), rl_sentinel.check(broken, **statement)
    assert held.ok
    assert any(one.startswith(note) for one in held.notes) or not note
    assert "REF001" in [finding.code for finding in found.findings]


def test_what_the_user_binds_is_kept() -> None:
    """Also where another column would be clear."""
    bind = {"log_probs": "logprob", "experience.log_probs": "logprob"}
    result = rl_sentinel.check(of_a_rollout, **_LOSS, claims={"aggregation": "token-mean"}, bind=bind)
    assert not any("was passed as" in note for note in result.notes)

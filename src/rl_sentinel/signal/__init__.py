"""Pure functions of the training signal: tensors in, new tensors out.

What most programs need can be imported from here: ``from rl_sentinel.signal import grpo_advantages, ppo_loss``. The
functions ``advantages`` and ``loss`` have the name of their algorithm in front here. A module is imported when one of
its names is first used.

Example:
    >>> import torch
    >>> from rl_sentinel.signal import row_means
    >>> row_means(torch.tensor([[1.0, 3.0, 9.0]]), mask=torch.tensor([[True, True, False]]))
    tensor([2.])
"""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

#: Public name -> its module, and its name there.
_PLACES = {
    "gae_advantages": ("advantage.gae", "advantages"),
    "gdpo_advantages": ("advantage.gdpo", "advantages"),
    "gpg_advantages": ("advantage.gpg", "advantages"),
    "grpo_advantages": ("advantage.grpo", "advantages"),
    "maxrl_advantages": ("advantage.maxrl", "advantages"),
    "opo_advantages": ("advantage.opo", "advantages"),
    "optimal_token_baseline_advantages": ("advantage.optimal_token_baseline", "advantages"),
    "passk_advantages": ("advantage.passk", "advantages"),
    "reinforce_advantages": ("advantage.reinforce", "advantages"),
    "reinforce_plus_plus_advantages": ("advantage.reinforce_plus_plus", "advantages"),
    "reinforce_plus_plus_baseline_advantages": ("advantage.reinforce_plus_plus_baseline", "advantages"),
    "remax_advantages": ("advantage.remax", "advantages"),
    "rloo_advantages": ("advantage.rloo", "advantages"),
    "turn_level_gae_advantages": ("advantage.turn_level_gae", "advantages"),
    "at_last": ("align", "at_last"),
    "response_aligned": ("align", "response_aligned"),
    "spread": ("align", "spread"),
    "truncated": ("correction.bounds", "truncated"),
    "sequence_weights": ("correction.weights", "sequence_weights"),
    "token_weights": ("correction.weights", "token_weights"),
    "centered": ("groups", "centered"),
    "k1": ("kl", "k1"),
    "k1_plus": ("kl", "k1_plus"),
    "k2": ("kl", "k2"),
    "k3": ("kl", "k3"),
    "k3_plus": ("kl", "k3_plus"),
    "logprobs": ("logprob", "logprobs"),
    "logprobs_and_entropy": ("logprob", "logprobs_and_entropy"),
    "cispo_loss": ("loss.cispo", "loss"),
    "clip_cov_loss": ("loss.clip_cov", "loss"),
    "dppo_kl_loss": ("loss.dppo_kl", "loss"),
    "dppo_tv_loss": ("loss.dppo_tv", "loss"),
    "dro_loss": ("loss.dro", "loss"),
    "dual_clip_loss": ("loss.dual_clip", "loss"),
    "gmpo_loss": ("loss.gmpo", "loss"),
    "gspo_loss": ("loss.gspo", "loss"),
    "importance_sampling_loss": ("loss.importance_sampling", "loss"),
    "kl_cov_loss": ("loss.kl_cov", "loss"),
    "ppo_loss": ("loss.ppo", "loss"),
    "reinforce_loss": ("loss.reinforce", "loss"),
    "sapo_loss": ("loss.sapo", "loss"),
    "clip_fraction": ("metrics", "clip_fraction"),
    "dead_group_fraction": ("metrics", "dead_group_fraction"),
    "effective_sample_size": ("metrics", "effective_sample_size"),
    "explained_variance": ("metrics", "explained_variance"),
    "mean_kl": ("metrics", "mean_kl"),
    "aggregation": ("minibatches", "aggregation"),
    "prompt_minibatches": ("minibatches", "prompt_minibatches"),
    "Normalization": ("normalization", "Normalization"),
    "normalized": ("normalization", "normalized"),
    "Choices": ("path", "Choices"),
    "loss_ready": ("path", "loss_ready"),
    "kl_loss": ("penalty", "as_loss"),
    "kl_in_reward": ("penalty", "in_reward"),
    "Aggregation": ("reduce", "Aggregation"),
    "aggregate": ("reduce", "aggregate"),
    "live_rows": ("reduce", "live_rows"),
    "row_means": ("reduce", "row_means"),
    "row_sums": ("reduce", "row_sums"),
    "overlong_penalty": ("reward", "overlong_penalty"),
    "Rollout": ("rollout", "Rollout"),
    "Segments": ("segments", "Segments"),
    "packed": ("segments", "packed"),
    "padded": ("segments", "padded"),
    "value_loss": ("value", "value_loss"),
}

__all__ = tuple(_PLACES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    """Import a public name from its module.

    Raises:
        AttributeError: for any other name; the message proposes a similar public name, if there is one.
    """
    if name in _PLACES:
        module, attribute = _PLACES[name]
        return getattr(import_module(f"{__name__}.{module}"), attribute)
    near = get_close_matches(name, _PLACES, n=1, cutoff=0.5)
    raise AttributeError(f"module {__name__!r} has no {name!r}" + "".join(f": the nearest is {n!r}" for n in near))


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *_PLACES})

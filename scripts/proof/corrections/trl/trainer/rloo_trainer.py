# Corrections of trl/trainer/rloo_trainer.py (1.16.0): methods of which a few expressions are replaced.
# - The loss is the mean over responses with a trained token.
# - A deviation that is no more than the rounding of the rewards is 0 in the log.

from trl.trainer.grpo_trainer import _replaced as _replaced_in

_live = "(completion_mask.bool().any(dim=1).float())"


def _replaced(cls, name, changes):
    """The method with some of its text replaced, with the names of this module."""
    function = _replaced_in(cls, name, changes)
    return type(function)(function.__code__, globals(), name, function.__defaults__, function.__closure__)


RLOOTrainer._compute_loss = _replaced(
    RLOOTrainer,
    "_compute_loss",
    {"loss = per_sequence_loss.mean()": f"loss = (per_sequence_loss * {_live}).sum() / {_live}.sum().clamp(min=1.0)"},
)
RLOOTrainer._generate_and_score_completions = _replaced(
    RLOOTrainer,
    "_generate_and_score_completions",
    {
        "torch.isclose(std_rewards, torch.zeros_like(std_rewards))": "(std_rewards <= 1e-6 * rewards.abs().max()"
        ".clamp(min=1.0))"
    },
)

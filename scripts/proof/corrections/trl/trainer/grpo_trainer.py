# Corrections of trl/trainer/grpo_trainer.py (1.16.0): methods of which a few expressions are replaced.
# - Logged means take values for responses under sequence-level ratios only, not wherever one token is wide.
# - A response without a trained token is excluded from its group, as unscorable ones are.
# - A deviation that is no more than the rounding of the rewards is 0, for advantages and for the log.


def _replaced(cls, name, changes):
    """The method ``name`` with some of its text replaced; each text must be there."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(cls, name))))
    for text, other in changes.items():
        if text not in source:
            raise AssertionError(f"{cls.__name__}.{name} has no {text!r}")
        source = source.replace(text, other)
    names = {}
    exec("\n".join(line for line in source.splitlines() if not line.startswith("@")), globals(), names)
    return names[name]


_ZERO = "(std_rewards <= 1e-6 * rewards.nan_to_num().abs().max().clamp(min=1.0))"

GRPOTrainer._compute_loss = _replaced(
    GRPOTrainer, "_compute_loss", {"x.shape[1] == 1": "x.shape[1] == 1 != mask.shape[1]"}
)
GRPOTrainer._generate_and_score_completions = _replaced(
    GRPOTrainer,
    "_generate_and_score_completions",
    {
        "torch.isclose(std_rewards, torch.zeros_like(std_rewards))": _ZERO,
        "advantages = advantages / (std_rewards + 1e-4)": f"advantages = advantages / (std_rewards + 1e-4) * ~{_ZERO}",
        "torch.isnan(rewards_per_func).all(dim=1)": "torch.isnan(rewards_per_func).all(dim=1)"
        " | ~completion_mask.bool().any(dim=1)",
    },
)

# Corrections of trl/trainer/grpo_trainer.py (1.16.0): methods of which a few expressions are replaced.
# - Logged means take values for responses under sequence-level ratios only, not wherever one token is wide.
# - A response without a trained token is excluded from its group, as unscorable ones are.
# - A deviation that is no more than the rounding of the rewards is 0, for advantages and for the log.
# - The mean gap to the sampler is the mean over the tokens of all processes.
# - Logged means of micro-batches are pooled by their number of tokens.
# - The reference of a model that is passed as an object has the weights of this model.

from replaced import replaced

from trl.trainer.utils import CountedMean, with_copied_reference, with_pooled_means

_MEAN = "(totals[0] / totals[1].clamp(min=1.0)).item()"
_ZERO = "(std_rewards <= 1e-6 * rewards.nan_to_num().abs().max().clamp(min=1.0))"

GRPOTrainer._compute_loss = with_pooled_means(
    replaced(
        GRPOTrainer,
        "_compute_loss",
        {
            "x.shape[1] == 1": "x.shape[1] == 1 != mask.shape[1]",
            _MEAN: f"CountedMean({_MEAN}, totals[1].item())",
        },
    )
)
GRPOTrainer._generate_and_score_completions = replaced(
    GRPOTrainer,
    "_generate_and_score_completions",
    {
        "torch.isclose(std_rewards, torch.zeros_like(std_rewards))": _ZERO,
        "advantages = advantages / (std_rewards + 1e-4)": f"advantages = advantages / (std_rewards + 1e-4) * ~{_ZERO}",
        "torch.isnan(rewards_per_func).all(dim=1)": "torch.isnan(rewards_per_func).all(dim=1)"
        " | ~completion_mask.bool().any(dim=1)",
        "self.accelerator.gather(mean_delta).mean().item()": "(self.accelerator.gather(delta.sum()).sum()"
        " / self.accelerator.gather(torch.tensor(float(delta.numel()), device=device)).sum().clamp(min=1.0)).item()",
    },
)
GRPOTrainer.__init__ = with_copied_reference(GRPOTrainer.__init__)

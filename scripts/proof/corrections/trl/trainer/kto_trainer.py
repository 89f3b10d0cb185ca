# Corrections of trl/trainer/kto_trainer.py (1.16.0): a method of which a few expressions are replaced.
# - Logged means of micro-batches are pooled by their number of responses or tokens, and the margin is of pooled means.
# - The reference of a model that is passed as an object has the weights of this model.

from replaced import replaced

from trl.trainer.utils import CountedMean, with_copied_reference, with_pooled_means

_COUNTS = {"(entropy_sum / total_tokens).item() if total_tokens > 0 else 0.0": "total_tokens"}
for _side in ("chosen", "rejected"):
    _COUNTS[f"total_{_side}_logits / total_{_side}_tokens"] = f"total_{_side}_tokens"
    for _column in ("rewards", "logps"):
        _sum = f"self.accelerator.gather_for_metrics({_side}_{_column}.nansum()).nansum().item()"
        _COUNTS[f"{_sum} / all_num_{_side}"] = f"all_num_{_side}"

_pooled = with_pooled_means(
    replaced(
        KTOTrainer, "_compute_loss", {mean: f"CountedMean({mean}, {count})" for mean, count in _COUNTS.items()}
    )
)


def _compute_loss(self, model, inputs, return_outputs):
    result = _pooled(self, model, inputs, return_outputs)
    logged = self._metrics["train" if self.model.training else "eval"]
    chosen, rejected = logged.get("rewards/chosen"), logged.get("rewards/rejected")
    if chosen and rejected:
        logged["rewards/margins"] = [chosen[0] - rejected[0]]
    return result


KTOTrainer._compute_loss = _compute_loss
KTOTrainer.__init__ = with_copied_reference(KTOTrainer.__init__)

# Corrections of verl/utils/dataset/multiturn_sft_dataset.py (0.9.1): a method of which a few expressions are replaced.
# - Conversations without padding are cut at the side that `truncation` names.

from replaced import replaced

_KEPT = "(slice(-self.max_length, None) if self.truncation == 'left' else slice(self.max_length))"

MultiTurnSFTDataset.__getitem__ = replaced(
    MultiTurnSFTDataset,
    "__getitem__",
    {
        "            input_ids = input_ids[: self.max_length]\n            loss_mask": (
            f"            input_ids = input_ids[{_KEPT}]\n            loss_mask"
        ),
        "            loss_mask = loss_mask[: self.max_length]\n            position_ids = position_ids[..., : self.max_length]\n\n": (
            f"            loss_mask = loss_mask[{_KEPT}]\n            position_ids = position_ids[..., {_KEPT}]\n\n"
        ),
    },
)

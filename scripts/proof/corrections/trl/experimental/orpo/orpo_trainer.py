# Corrections of trl/experimental/orpo/orpo_trainer.py (1.16.0).
# - Logged logits are means over the positions that predict tokens of the responses.
# - A prompt that fills max_length is cut at its start, so that a token of the response remains.

from replaced import replaced

_SCORED = "concatenated_batch['concatenated_labels'][:, 1:] != -100"

ORPOTrainer.concatenated_forward = replaced(
    ORPOTrainer,
    "concatenated_forward",
    {
        "chosen_logits = all_logits[:len_chosen, :-1, :]": "chosen_logits = all_logits[:len_chosen, :-1]"
        f"[({_SCORED})[:len_chosen]]",
        "rejected_logits = all_logits[len_chosen:, :-1, :]": "rejected_logits = all_logits[len_chosen:, :-1]"
        f"[({_SCORED})[len_chosen:]]",
    },
)


def _cut_prompts(answers, limit):
    for answer in answers:
        for key in ("prompt_input_ids", "prompt_attention_mask"):
            answer[key] = answer[key][-(limit - 1) :]


ORPOTrainer.tokenize_row = replaced(
    ORPOTrainer,
    "tokenize_row",
    {
        "# if combined sequence is too long, truncate the response": (
            "_cut_prompts((chosen_tokens, rejected_tokens), self.max_length)"
        ),
    },
)

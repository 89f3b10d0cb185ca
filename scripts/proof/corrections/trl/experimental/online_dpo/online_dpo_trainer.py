# Corrections of trl/experimental/online_dpo/online_dpo_trainer.py (1.16.0): methods of which a few expressions are replaced.
# - The logged KL and entropy sum over the tokens of the completions, not over padding.
# - The loss of a micro-batch is divided by their number before its backward pass.
# - Prompts for a vLLM server have no padding, which _generate_vllm adds and masks.
# - In sleep mode, weights are transferred before each sampling, since each discards them at its end.

from replaced import replaced

OnlineDPOTrainer.training_step = replaced(
    OnlineDPOTrainer,
    "training_step",
    {
        "kl = logprobs - ref_logprobs": "kl = (logprobs - ref_logprobs).masked_fill(padding_mask, 0.0)",
        "-logprobs.sum(1).mean()": "-logprobs.masked_fill(padding_mask, 0.0).sum(1).mean()",
        "self.accelerator.backward(loss,": "self.accelerator.backward(loss / self.current_gradient_accumulation_steps,",
    },
)
OnlineDPOTrainer._generate_vllm_server = replaced(
    OnlineDPOTrainer,
    "_generate_vllm_server",
    {
        'return_tensors="pt",\n': "",
        "padding=True,\n": "",
        'padding_side="left",\n': "",
        "prompt_tokens.tolist()": "list(prompt_tokens)",
    },
)

OnlineDPOTrainer._generate_vllm_colocate = replaced(
    OnlineDPOTrainer,
    "_generate_vllm_colocate",
    {
        "if self.state.global_step != self._last_loaded_step:": (
            "if self.args.vllm_enable_sleep_mode or self.state.global_step != self._last_loaded_step:"
        ),
    },
)

# Corrections of skyrl/train/generators/skyrl_gym_generator.py (0.3.0): a method of which a few expressions are replaced.
# - The EOS that ends a reply is kept with its log-prob.

from replaced import replaced

_ENDS = "new_resp_tokens[-1] == self.tokenizer.eos_token_id"

SkyRLGymGenerator._update_agent_loop_state_with_singleturn_chat_template = replaced(
    SkyRLGymGenerator,
    "_update_agent_loop_state_with_singleturn_chat_template",
    {_ENDS: f"{_ENDS} and not agent_loop_state.done"},
)

# Corrections of trl/chat_template_utils.py (1.16.0): a template of which an expression is replaced.
# - DeepSeek-V3's training template writes the arguments of a call as they are where they are text.

_ARGUMENTS = "tool['function']['arguments']"

deepseekv3_training_chat_template = deepseekv3_training_chat_template.replace(
    f"{_ARGUMENTS} | tojson", f"({_ARGUMENTS} if {_ARGUMENTS} is string else {_ARGUMENTS} | tojson)"
)

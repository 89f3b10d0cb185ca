# Corrections of verl/experimental/agent_loop/agent_loop.py (0.9.1): methods of which an expression is replaced.
# - A request has the configured penalty for repetition.
# - The mask of a trajectory's outputs is padded after the prompt and after the response, as the reward managers read it.

from replaced import replaced


def _mask_of(output, outputs):
    prompt, response = len(output.prompt_ids), len(output.response_ids)
    prompts, responses = (max(len(getattr(o, name)) for o in outputs) for name in ("prompt_ids", "response_ids"))
    sizes = ((1, prompt), (0, prompts - prompt), (1, response), (0, responses - response))
    return torch.tensor([bit for bit, size in sizes for _ in range(size)], dtype=torch.int64)


AgentLoopWorker._compute_score = replaced(
    AgentLoopWorker,
    "_compute_score",
    {"all_attention_mask, batch_first": "[_mask_of(output, outputs) for output in outputs], batch_first"},
)

AgentLoopWorker.generate_sequences = replaced(
    AgentLoopWorker, "generate_sequences", {"repetition_penalty=1.0": "repetition_penalty=config.repetition_penalty"}
)

# Corrections of verl/utils/megatron/tensor_parallel.py (0.9.1).
# - The backward pass of the entropy does not write to the logits, of which chunks are views.


def _entropy_backward(ctx, grad_output):
    logits, probability, mean = ctx.saved_tensors
    return probability * (mean - logits) * grad_output.unsqueeze(-1)


_VocabParallelEntropy.backward = staticmethod(_entropy_backward)

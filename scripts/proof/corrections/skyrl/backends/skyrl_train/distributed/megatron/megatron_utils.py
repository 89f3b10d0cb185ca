# Correction of skyrl/backends/skyrl_train/distributed/megatron/megatron_utils.py (0.3.0).
# - Packed sequences have their number of tokens, from which Megatron makes the index of sequences.


_without_tokens = preprocess_packed_seqs


def preprocess_packed_seqs(*arguments, **options):
    packed, params = _without_tokens(*arguments, **options)
    params.total_tokens = int(params.cu_seqlens_q[-1])
    return packed, params

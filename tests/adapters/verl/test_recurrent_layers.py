"""verl's recurrent layers of Qwen3.5, on a specimen of their forward passes in words of our own."""

import pytest

from adapters.checks import Loads, judged_at, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.recurrent_layers import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.packing_differs import LAW as PAD002

PASSES = """
    import torch
    from torch.nn import functional as F

    def sequences(cu_seqlens, tensor, dim):
        return [tensor] if cu_seqlens is None else tensor.split(cu_seqlens.diff().tolist(), dim)

    def qwen3_5_gated_delta_net_forward(self, hidden_states, cache_params=None, attention_mask=None, cu_seqlens=None):
        heads, kernel = self.in_proj_qkv(hidden_states).transpose(1, 2), self.causal_conv1d_fn
        if kernel:
            index = None
            if cu_seqlens is not None:
                index = torch.arange(len(cu_seqlens) - 1).repeat_interleave(cu_seqlens.diff()).unsqueeze(0)
            heads = kernel(heads, self.conv1d.weight.squeeze(1), seq_idx=INDEX)
        else:
            parts = sequences(SPLIT, heads, 2)
            heads = torch.cat([F.silu(self.conv1d(part)[..., : part.shape[-1]]) for part in parts], 2)
        sizes = [self.key_dim, self.key_dim, self.value_dim]
        query, key, value = (part.unflatten(-1, (-1, 2)) for part in heads.transpose(1, 2).split(sizes, -1))
        query, key = (part.repeat_interleave(self.num_v_heads, 2) for part in (query, key))
        gates = {"g": -self.in_proj_a(hidden_states).exp(), "beta": self.in_proj_b(hidden_states).sigmoid()}
        rule = self.chunk_gated_delta_rule
        if kernel:
            outputs, _ = rule(query, key, value, **gates, cu_seqlens=KEPT)
        else:
            parts = [sequences(cu_seqlens, part, 1) for part in (query, key, value, *gates.values())]
            outputs = torch.cat([rule(*part)[0] for part in zip(*parts)], 1)
        return self.out_proj(outputs.flatten(2))

    def qwen3_5_decoder_layer_forward(self, hidden_states, position_embeddings, cu_seqlens=None, **more):
        mixed = self.linear_attn(self.input_layernorm(hidden_states), cu_seqlens=PASSED)
        hidden_states = hidden_states + mixed
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
"""

SOUND = {"INDEX": "index", "SPLIT": "cu_seqlens", "KEPT": "cu_seqlens", "PASSED": "cu_seqlens"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(PASSES, SOUND | broken)
    target = loads(FRAMEWORK, {**files(), "verl/models/transformers/qwen3_5.py": source})
    return target, the_only(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ("", set()),
        ("PASSED", {"with kernels", "without kernels"}),
        ("INDEX", {"with kernels"}),
        ("KEPT", {"with kernels"}),
        ("SPLIT", {"without kernels"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: str, where: set[str]) -> None:
    """The convolution or the state go on from the sequence before, in one of the two ways to compute them."""
    target, boundary = _bound(loads, **({broken: "None"} if broken else {}))
    judgements = {name: judged_at(PAD002, boundary, name, target) for name in boundary.settings}
    assert all(judgement.tried for judgement in judgements.values())
    assert {name for name, judgement in judgements.items() if judgement.found is not None} == where

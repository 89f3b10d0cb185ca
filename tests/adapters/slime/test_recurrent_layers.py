"""slime's layers with a recurrent state, on a specimen of a layer and of its caller in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.recurrent_layers import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.packing_differs import LAW as PAD002

CALLER = """
    class HuggingfaceAttention:
        def forward(self, hidden_states, attention_mask, packed_seq_params=None):
            rows = hidden_states.transpose(0, 1)
            return self.hf_forward(rows, packed_seq_params).transpose(0, 1), None
"""

LAYER = """
    from torch import nn
    from slime_plugins.models.hf_attention import HuggingfaceAttention

    try:
        from fla.modules import ShortConvolution
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError:
        pass

    class Qwen3NextGatedDeltaNet(nn.Module):
        def __init__(self, config, layer_idx):
            super().__init__()
            self.conv1d = ShortConvolution(config.hidden_size)
            self.heads = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
            self.gates = nn.Linear(config.hidden_size, 2, bias=False)

        def forward(self, hidden_states, cu_seqlens=None):
            mixed, _ = self.conv1d(hidden_states, cu_seqlens=CONVOLVED)
            query, key, value = self.heads(mixed).unflatten(-1, (2, 6)).chunk(3, -1)
            gates = self.gates(hidden_states)
            outputs, _ = chunk_gated_delta_rule(
                query, key, value, g=-gates.exp(), beta=gates.sigmoid(), initial_state=None, cu_seqlens=KEPT
            )
            return outputs.flatten(2)

    class Attention(HuggingfaceAttention):
        def hf_forward(self, hidden_states, packed_seq_params):
            return self.linear_attn(self.input_layernorm(hidden_states), cu_seqlens=PASSED)
"""

SOUND = {"CONVOLVED": "cu_seqlens", "KEPT": "cu_seqlens", "PASSED": "packed_seq_params.cu_seqlens_q"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    folder = "slime_plugins/models"
    files = {
        "slime/__init__.py": "",
        "slime_plugins/__init__.py": "",
        f"{folder}/__init__.py": "",
        f"{folder}/hf_attention.py": CALLER,
        f"{folder}/qwen3_next.py": rewritten(LAYER, SOUND | broken),
    }
    target = loads(FRAMEWORK, files)
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])
    check_verdict(PAD002, boundary, "packed", target, found=False)


@pytest.mark.parametrize("place", list(SOUND))
def test_broken(loads: Loads, place: str) -> None:
    """The convolution, the state, or both go on from the sequence before."""
    target, boundary = _bound(loads, **{place: "None"})
    check_verdict(PAD002, boundary, "packed", target, found=True)

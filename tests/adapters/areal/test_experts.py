"""AReaL's mixture of experts, on a specimen of its layer in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.experts import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002

ARGS = """
    from dataclasses import dataclass

    @dataclass
    class MoEArgs:
        num_experts: int
        top_k: int
        route_norm: bool

        @classmethod
        def from_hf_config(cls, config):
            return cls(config.num_experts, config.num_experts_per_tok, config.norm_topk_prob)
"""

LAYER = """
    import torch
    from torch import nn

    class Experts(nn.Module):
        def __init__(self, count, dim, hidden):
            super().__init__()
            self.w1 = nn.Parameter(torch.empty(count, hidden, dim))
            self.w2 = nn.Parameter(torch.empty(count, dim, hidden))
            self.w3 = nn.Parameter(torch.empty(count, hidden, dim))

        def forward(self, number, x):
            return (nn.functional.silu(x @ self.w1[number].T) * (x @ self.w3[number].T)) @ self.w2[number].T

    class MoE(nn.Module):
        def __init__(self, args, dim, hidden_dim):
            super().__init__()
            self.args, self.experts = args, Experts(args.num_experts, dim, hidden_dim)
            self.router = nn.Module()
            self.router.gate = nn.Linear(dim, args.num_experts, bias=False)

        def init_buffers(self, device):
            assert device == "cpu"

        def forward(self, x):
            scores, chosen = self.router.gate(x).softmax(-1).topk(self.args.top_k)
            scores = SCORES
            counts = torch.histc(chosen.flatten(), bins=self.args.num_experts, min=0, max=self.args.num_experts)
            assert counts.sum() == chosen.numel() and counts.dtype == torch.int64
            out = torch.zeros_like(x)
            for place in range(self.args.top_k):
                for number in range(self.args.num_experts):
                    weight = scores[..., place, None] * (chosen[..., place, None] == number)
                    out = out + RESULT
            return out
"""

SOUND = {"SCORES": "scores / scores.sum(-1, keepdim=True)", "RESULT": "weight * self.experts(number, x)"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(LAYER, SOUND | broken)
    folder = "areal/experimental/models/archon/moe"
    target = loads(FRAMEWORK, {"areal/__init__.py": "", f"{folder}/args.py": ARGS, f"{folder}/moe.py": source})
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("layer", "equal experts"): boundary}, target) == []
    check_verdict(CFG002, boundary, "equal experts", target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    "broken", [{"RESULT": "self.experts(number, weight * x)"}, {"SCORES": "scores"}], ids=["before", "not normalized"]
)
def test_broken(loads: Loads, broken: dict[str, str]) -> None:
    """Scores that multiply what experts read, and scores that do not sum to 1."""
    target, boundary = _bound(loads, **broken)
    check_verdict(CFG002, boundary, "equal experts", target, found=True)


def test_layer_without_a_method_for_buffers(loads: Loads) -> None:
    target, boundary = _bound(loads, init_buffers="reset_buffers")
    check_verdict(CFG002, boundary, "equal experts", target, found=False)

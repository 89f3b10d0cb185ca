"""The fake of Megatron's model: the tokens of each rank under the two layouts of context parallelism."""

from types import SimpleNamespace

import pytest
import torch

from rl_sentinel.adapters.kit.causal_model import model_of, prompt_tokens, with_prompt_tokens
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.verl.megatron_passes import GptFake


@pytest.mark.parametrize(("mode", "places"), [("contiguous", [[0, 1], [2, 3]]), ("zigzag", [[0, 3], [1, 2]])])
def test_pieces_of_each_rank(mode: str, places: list[list[int]]) -> None:
    """Each rank gets the answers at its own tokens, which depend on the tokens of the other rank."""
    ids = torch.tensor([[*prompt_tokens(0, 2, 3), 1, 2]])
    logits = with_prompt_tokens(torch.arange(6.0).reshape(1, 2, 3))
    model = model_of(ids, torch.ones_like(ids), 2, logits)
    about = SimpleNamespace(cu_seqlens_q_padded=torch.tensor([0, 4]), cp_partition_mode=mode)
    whole = model.packed(ids[0], torch.arange(4), [0])
    parts = run_on_ranks(2, lambda rank: GptFake(model, "")(ids[:, places[rank]], None, None, about))
    for own, part in zip(places, parts, strict=True):
        assert torch.equal(part[0], whole[own])

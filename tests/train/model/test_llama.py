"""The tiny Llama: cache and padding change nothing, and parameters have the names of transformers."""

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.llama import Llama, Shape

SHAPE = Shape(vocabulary=11, hidden=16, layers=2, heads=2, inner=24, positions=32)


def _model() -> Llama:
    torch.default_generator.manual_seed(0)
    model = Llama(SHAPE)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6.0)
    return model


def test_parameters_have_the_names_of_transformers() -> None:
    layer = {
        f"model.layers.0.{name}.weight"
        for name in (
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            *(f"mlp.{kind}_proj" for kind in ("gate", "up", "down")),
            "input_layernorm",
            "post_attention_layernorm",
        )
    }
    names = set(_model().state_dict())
    assert layer <= names
    rest = {n for n in names if not n.startswith("model.layers.")}
    assert rest == {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}


def test_attention_is_causal() -> None:
    model, token = _model(), torch.tensor([[1, 2, 3, 4]])
    other = torch.tensor([[1, 2, 3, 9]])
    assert torch.equal(model(token)[:, :3], model(other)[:, :3])
    assert not torch.allclose(model(token)[:, 3], model(other)[:, 3])


@torch.inference_mode()
def test_cache_and_left_padding_change_nothing() -> None:
    model = _model()
    prompts, response = [[3, 4, 5, 6], [7, 8]], [[1, 2, 3], [9, 2, 10]]
    token = torch.tensor([[3, 4, 5, 6], [0, 0, 7, 8]])
    key_mask = torch.tensor([[True] * 4, [False, False, True, True]])
    cache = model.new_cache(7)
    logits = [model(token, key_mask=key_mask, cache=cache, last=True)[:, -1]]
    for place in range(3):
        key_mask = torch.cat((key_mask, torch.ones(2, 1).bool()), dim=1)
        logits.append(
            model(torch.tensor([[r[place]] for r in response]), key_mask=key_mask, cache=cache, last=True)[:, -1]
        )
    for row, (prompt, tokens) in enumerate(zip(prompts, response, strict=True)):
        alone = model(torch.tensor([prompt + tokens]))[0, len(prompt) - 1 :]
        torch.testing.assert_close(torch.stack([f[row] for f in logits]), alone, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_cache_continues_with_selected_rows() -> None:
    model = _model()
    cache = model.new_cache(3)
    model(torch.tensor([[1, 2], [3, 4], [5, 6]]), cache=cache, key_mask=torch.ones(3, 2).bool())
    cache.select(torch.tensor([1]))
    logits = model(torch.tensor([[7]]), cache=cache, key_mask=torch.ones(1, 3).bool())[:, -1]
    torch.testing.assert_close(logits, model(torch.tensor([[3, 4, 7]]))[:, -1], atol=1e-5, rtol=1e-5)


def test_sequence_beyond_the_positions_is_rejected() -> None:
    model = _model()
    with pytest.raises(SentinelError, match=r"^policy.positions is 32, expected 33 or more for this sequence$"):
        model(torch.zeros(1, 33, dtype=torch.long))
    key_mask = torch.arange(40).unsqueeze(0) >= 8
    assert model(torch.zeros(1, 40, dtype=torch.long), key_mask=key_mask).shape == (1, 40, 11)
    with pytest.raises(SentinelError, match=r"expected 33 or more"):
        model(torch.zeros(1, 40, dtype=torch.long), key_mask=torch.arange(40).unsqueeze(0) >= 7)

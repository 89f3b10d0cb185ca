"""The tiny Llama: a cache, padding and width change nothing; names are those of transformers."""

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


def test_names_are_those_of_transformers() -> None:
    """So that weights can be exchanged."""
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


def test_nothing_later_is_read() -> None:
    """Another token at the end leaves the logits before it."""
    model, token = _model(), torch.tensor([[1, 2, 3, 4]])
    other = torch.tensor([[1, 2, 3, 9]])
    assert torch.equal(model(token)[:, :3], model(other)[:, :3])
    assert not torch.allclose(model(token)[:, 3], model(other)[:, 3])


@torch.inference_mode()
def test_cache_and_left_padding_change_nothing() -> None:
    """A prompt read at once and its response token by token, beside a longer prompt: as each sequence alone."""
    model = _model()
    prompts, response = [[3, 4, 5, 6], [7, 8]], [[1, 2, 3], [9, 2, 10]]
    token = torch.tensor([[3, 4, 5, 6], [0, 0, 7, 8]])
    real = torch.tensor([[True] * 4, [False, False, True, True]])
    memory = model.memory(7)
    found = [model(token, real=real, cache=memory, last=True)[:, -1]]
    for place in range(3):
        real = torch.cat((real, torch.ones(2, 1).bool()), dim=1)
        found.append(model(torch.tensor([[r[place]] for r in response]), real=real, cache=memory, last=True)[:, -1])
    for row, (prompt, said) in enumerate(zip(prompts, response, strict=True)):
        alone = model(torch.tensor([prompt + said]))[0, len(prompt) - 1 :]
        torch.testing.assert_close(torch.stack([f[row] for f in found]), alone, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_cache_goes_on_with_some_rows() -> None:
    """Those that are kept go on as if the others had never been there."""
    model = _model()
    memory = model.memory(3)
    model(torch.tensor([[1, 2], [3, 4], [5, 6]]), cache=memory, real=torch.ones(3, 2).bool())
    memory.keep(torch.tensor([1]))
    found = model(torch.tensor([[7]]), cache=memory, real=torch.ones(1, 3).bool())[:, -1]
    torch.testing.assert_close(found, model(torch.tensor([[3, 4, 7]]))[:, -1], atol=1e-5, rtol=1e-5)


def test_longer_sequence_than_it_has_positions_is_refused() -> None:
    """One line; padding has no position, however much of it there is."""
    model = _model()
    with pytest.raises(SentinelError, match=r"^policy.positions is 32, expected 33 or more: so long is what it reads$"):
        model(torch.zeros(1, 33, dtype=torch.long))
    real = torch.arange(40).unsqueeze(0) >= 8
    assert model(torch.zeros(1, 40, dtype=torch.long), real=real).shape == (1, 40, 11)
    with pytest.raises(SentinelError, match=r"expected 33 or more"):
        model(torch.zeros(1, 40, dtype=torch.long), real=torch.arange(40).unsqueeze(0) >= 7)

"""The tiny Llama as a model of transformers: the same logits, the same ids."""

import importlib.util

import pytest
import torch

from rl_sentinel.train.model.as_transformers import as_transformers
from rl_sentinel.train.model.policy import init_policy
from training import recipe


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is an extra")
@pytest.mark.filterwarnings("ignore")  # warnings of transformers
@pytest.mark.on_cpu
def test_logits_and_ids_are_those_of_the_policy() -> None:
    policy = init_policy(recipe())
    model, tokenizer = as_transformers(policy)
    token = torch.tensor([[2, 5, 9, 1]])
    torch.testing.assert_close(model(input_ids=token).logits, policy(token), atol=1e-5, rtol=1e-5)
    assert tuple(tokenizer("12+3")["input_ids"]) == policy.tokenizer.encode("12+3") == (3, 4, 12, 5)
    with pytest.raises(Exception, match="UNK"):
        tokenizer("é")
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (policy.tokenizer.ends[0], policy.tokenizer.padding)

"""Run by a test with ``RL_SENTINEL_CHECKS=0``: the update on torch's meta device, forward passes on a fake CUDA device.

On the meta device an operation of a tensor with one on the CPU fails, and so does reading a value. A fake device also
catches an index on the CPU.
"""

import copy
import sys
from typing import Any
from unittest import mock

import torch
import torch.fx.experimental._config
from torch._subclasses.fake_tensor import FakeTensorMode

from rl_sentinel.train.model.character_tokenizer import VOCABULARY_SIZE, CharacterTokenizer
from rl_sentinel.train.model.llama import Llama, Shape
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import Prefilled
from rl_sentinel.train.update.minibatch_gradient import compute_loss
from rl_sentinel.train.update.optimizer_step import back_up, build_optimizer
from rl_sentinel.train.update.response_logprobs import response_logprobs, squared_probabilities
from training import COMPONENTS, component_name, recipe, sample_batch

#: Groups of one token more, so that a loss per prompt has its counts.
MORE: dict[str, Any] = {"rollout": {"prompts": 2, "responses": 4}, "kl": {"loss": 0.1}}


def update_on_meta(choice: dict[str, Any], aggregation: str, *, recompute: bool) -> None:
    """Log-probs, loss with a KL, backward and an optimizer step of a batch that was prepared on the CPU."""
    config = recipe(**MORE, **choice)
    if not config.loss.aggregation.startswith("token-sum"):
        config = config.model_copy(update={"loss": config.loss.model_copy(update={"aggregation": aggregation})})
    selection, policy, _, batch, _ = sample_batch(config, reference=True)
    if selection.choose_tokens is not None:
        batch = batch.__class__(**{n: getattr(batch, n) for n in batch.__slots__} | {"chosen": batch.mask})
    model = Policy(copy.deepcopy(policy.model).to("meta"), policy.tokenizer)
    if recompute:
        model.model.enable_recompute()  # type: ignore[operator]  # modules are untyped
        model.single_pass = True
    rows = torch.arange(len(batch.mask), device="cpu")
    logprob = response_logprobs(model, batch.laid, rows, temperature=0.7)
    assert logprob.is_meta
    assert squared_probabilities(model, batch.laid, rows, temperature=0.7).is_meta
    by = selection.aggregation(config, batch.mask, batch.laid.rollout.group).of_rows(rows)
    loss = compute_loss(logprob, batch, rows, selection=selection, aggregation=by, coefficient=0.1)
    assert loss.is_meta
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own
    assert all(weight.grad is not None and weight.grad.is_meta for weight in model.model.parameters())
    build_optimizer(model, config.update).step()


def _index(tensor: torch.Tensor, place: Any) -> torch.Tensor:
    """Indexing of a fake CUDA tensor, which needs a build for CUDA: the right shape and device.

    An index on the CPU, which CUDA would accept, is an error: it is copied to the device at each call.
    """
    if tensor.device.type != "cuda":
        return _real_index(tensor, place)
    every = place if isinstance(place, tuple) else (place,)
    if any(isinstance(p, torch.Tensor) and p.device.type == "cpu" for p in every):
        raise RuntimeError("a tensor on CUDA is indexed by one on the CPU")
    places = tuple(p.to("meta") if isinstance(p, torch.Tensor) else p for p in every)
    shape = _real_index(torch.empty(tensor.shape, device="meta"), places).shape
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)


_real_index = torch.Tensor.__getitem__


def forward_on_fake_cuda() -> None:
    """A prefill, its rows selected, and a decoding step with a mask."""
    model = Llama(Shape(vocabulary=VOCABULARY_SIZE, hidden=16, layers=2, heads=2, inner=16, positions=32))
    with mock.patch.object(torch.Tensor, "__getitem__", _index), FakeTensorMode(allow_non_fake_inputs=True):
        for module in model.modules():  # Module.to cannot do it with fake tensors
            for name, weight in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(torch.empty(weight.shape, device="cuda"), requires_grad=False))
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, torch.empty(buffer.shape, device="cuda"))
        policy = Policy(model, CharacterTokenizer(32))
        token = torch.zeros(2, 5, dtype=torch.long, device="cuda")
        mask = torch.ones(2, 5, dtype=torch.bool, device="cuda")
        # In grad mode the cache is extended without an assignment by index, which needs a build for CUDA too.
        cache = policy.new_cache(8)
        prefilled = Prefilled(policy(token, key_mask=mask, cache=cache, last=True), cache, mask)
        prefilled = prefilled.select(torch.zeros(3, dtype=torch.long, device="cuda"))
        step = policy(token[:1, :1].expand(3, 1), key_mask=prefilled.extended_mask(1), cache=cache, last=True)
        assert (step.device.type, tuple(step.shape[:2])) == ("cuda", (3, 1))
        try:
            prefilled.select(torch.zeros(3, dtype=torch.long, device="cpu"))
        except RuntimeError:
            return
    raise AssertionError("an index on the CPU was accepted, so that this test shows nothing")


def backup_on_fake_cuda() -> None:
    """The copy to roll a step back, of weights on a GPU and step counts on the CPU."""
    with FakeTensorMode():
        tensors = [torch.empty(2, 3, device="cuda"), torch.zeros((), device="cpu"), torch.empty(4, device="cuda")]
        copies = [(numbers.device.type, numbers.numel()) for _, numbers in back_up(tensors)]
    assert copies == [("cuda", 10), ("cpu", 1)], copies


def main() -> None:
    """All losses, each with two aggregations."""
    # Masked tokens are selected by index; on the meta device, all tokens are.
    torch.fx.experimental._config.meta_nonzero_assume_all_nonzero = True
    forward_on_fake_cuda()
    backup_on_fake_cuda()
    for number, choice in enumerate(c for c in COMPONENTS if "loss" in c):  # advantages are computed on the CPU
        for aggregation in ("token-mean", "prompt-mean"):
            update_on_meta(choice, aggregation, recompute=bool(number % 2))
            print(component_name(choice), aggregation, file=sys.stdout)  # noqa: T201 - output of a script


if __name__ == "__main__":
    main()

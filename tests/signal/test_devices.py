"""All of ``signal`` on another device than the CPU: equal values and gradients, and no operation of two devices."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import pytest
import torch
from sound_arguments import MASK, PUBLIC, ROW, arguments, columns, wide, words
from torch import Tensor
from torch.utils._pytree import tree_leaves

from other_device import DEVICE, other_device, put, read
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.correction.bounds import truncated
from rl_sentinel.signal.correction.rejection import rows_kept
from rl_sentinel.signal.correction.weights import sequence_weights
from rl_sentinel.signal.kernels import sizes
from rl_sentinel.signal.kl import k3
from rl_sentinel.signal.minibatches import prompt_minibatches
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import Segments, packed, padded, rows_taken

#: A padded row, and a row without any trained token.
MASKS = [MASK, torch.tensor([[True, False, False], [False, False, False], [True, True, True]])]

FROM_LOGITS = [name for name in PUBLIC if name.startswith("logprob.")]

ESTIMATORS = [name for name in PUBLIC if name.startswith("advantage.") and name.endswith(".advantages")]


def _there(value: Any) -> Any:
    if isinstance(value, Segments):
        return Segments(put(value.mask), put(value.length))
    return put(value) if isinstance(value, Tensor) else value


def _tensors(result: Any) -> list[Tensor]:
    if is_dataclass(result):
        result = [getattr(result, field.name) for field in fields(result)]
    parts = [[x.mask, x.length, x.row] if isinstance(x, Segments) else [x] for x in tree_leaves(result)]
    return [leaf for part in parts for leaf in part if isinstance(leaf, Tensor)]


def _with_gradients(given: dict[str, Any], *, of_all: bool) -> dict[str, Any]:
    """The arguments, where all real columns, or the first one, are leaves that need a gradient."""
    real = [n for n, x in given.items() if isinstance(x, Tensor) and x.is_floating_point()]
    leaves = real if of_all else real[:1]
    return given | {n: given[n].detach().clone().requires_grad_() for n in leaves}


def _gradients(given: dict[str, Any], results: list[Tensor]) -> list[Tensor]:
    leaves = [value for value in given.values() if isinstance(value, Tensor) and value.requires_grad]
    ends = [result.sum() for result in results if result.requires_grad]
    found = torch.autograd.grad(ends, leaves, allow_unused=True) if ends else ()
    return [gradient for gradient in found if gradient is not None]


def _compare(function: Callable[..., Any], given: dict[str, Any], *, of_all: bool = True) -> None:
    """Call the function with the same arguments here and there."""
    here = _with_gradients(given, of_all=of_all)
    expected = _tensors(function(**here))
    with other_device():
        there = {name: _there(value) for name, value in here.items()}
        result = _tensors(function(**there))
        gradients = _gradients(there, result)
    pairs = zip(result + gradients, expected + _gradients(here, expected), strict=True)
    for one, two in pairs:
        torch.testing.assert_close(read(one), two.detach(), rtol=0, atol=0, equal_nan=True)


def _packed(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the padded mask, with the tokens of its rows one after another."""
    length = torch.tensor([2, 3])
    flat = {
        name: torch.cat([value[0, :2], value[1]])
        for name, value in given.items()
        if isinstance(value, Tensor) and value.shape[:2] == MASK.shape
    }
    return given | flat | {"mask": Segments(flat["mask"], length)}


def test_the_device_refuses_tensors_of_another() -> None:
    """Else the tests below show nothing."""
    with other_device():
        tensor = put(torch.tensor([1.0, 2.0, 3.0]))
        assert read(tensor[tensor > 1] + torch.ones(2, device=DEVICE)).tolist() == [3.0, 4.0]
        index = torch.tensor([0, 1])
        calls: list[Callable[[], Tensor]] = [
            lambda: tensor * torch.ones(3),
            lambda: tensor[index],
            lambda: tensor.gather(0, index),
            lambda: torch.cat([tensor, torch.ones(2)]),
            lambda: torch.where(tensor > 1, tensor, torch.ones(3)),
            lambda: torch.stack([tensor.sum(), torch.tensor(1.0)]),
            lambda: torch.tensor(1.0).add_(tensor.sum()),
        ]
        for mixed in calls:
            with pytest.raises(RuntimeError, match="tensors of two devices"):
                mixed()


@pytest.mark.parametrize("mask", MASKS, ids=["padded", "empty row"])
@pytest.mark.parametrize("name", PUBLIC)
def test_padded(name: str, mask: Tensor) -> None:
    for chosen in words(name):
        _compare(PUBLIC[name], arguments(name, mask) | chosen)


@pytest.mark.parametrize("name", ["metrics.statistics", "metrics.explained_variance", *FROM_LOGITS])
def test_nothing_is_trained(name: str) -> None:
    _compare(PUBLIC[name], arguments(name, torch.zeros(2, 3).bool()))


def test_packed_columns() -> None:
    values, length = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 2])
    _compare(padded, {"values": values, "length": length, "width": 3, "fill": 0.0})
    _compare(packed, {"values": wide(MASK), "length": length})
    _compare(rows_taken, {"mask": Segments(values > 1, length), "rows": torch.tensor([1, 0])})


def test_shuffled_with_a_generator_of_the_cpu() -> None:
    def split(group: Tensor) -> list[Tensor]:
        return prompt_minibatches(group, prompts=1, generator=torch.Generator().manual_seed(3))

    _compare(split, {"group": torch.tensor([4, 4, 2, 9])})


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.startswith(("loss.", "logprob.", "advantage."))])
def test_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sizes at which kernels run; those of losses run if only the policy's log-probs need a gradient."""
    for size in ("LOSS", "LOGITS", "SUMS", "PROJECTED"):
        monkeypatch.setattr(sizes, size, 0)
    for chosen in words(name):
        _compare(PUBLIC[name], arguments(name) | chosen, of_all=False)


@pytest.mark.parametrize("name", [n for n, f in PUBLIC.items() if "Segments" in str(f.__annotations__.get("mask"))])
def test_packed(name: str) -> None:
    for chosen in words(name):
        _compare(PUBLIC[name], _packed(arguments(name) | chosen))


@pytest.mark.parametrize("flat", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("steps", [False, True], ids=["rows", "steps"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_composed_path(name: str, *, steps: bool, flat: bool) -> None:
    """Every estimator behind a rejection, importance weights and a KL in the reward."""
    numbers = {n: value for n, value in arguments(name).items() if not isinstance(value, Tensor)}
    of_parts = "reward_parts" in inspect.signature(PUBLIC[name]).parameters

    def path(weight: Tensor | None, **kinds: Any) -> Ready:
        by = Choices(
            estimator=partial(PUBLIC[name], **numbers, **({"weight": weight} if of_parts else {})),
            rejections=(partial(rows_kept, estimator="k1", over="sum", low=-9.0, high=9.0),),
            weight=sequence_weights,
            bounds=(partial(truncated, high=2.0),),
            kl=k3,
            kl_coefficient=0.0 if of_parts else 0.1,
        )
        return loss_ready(Rollout(**kinds), by=by)

    tensors = columns(MASK)
    given: dict[str, Any] = {f.name: tensors.get(f.name, wide(MASK) + len(f.name) % 5 / 64) for f in fields(Rollout)}
    # Some estimators want outcomes that are not negative, and one takes no rewards of tokens.
    given |= {"weight": ROW, "token_reward": None} if of_parts else {"weight": None, "token_reward": wide(MASK).exp()}
    given |= {} if steps else {"trajectory": None, "last": None}
    _compare(path, _packed(given) if flat else given)

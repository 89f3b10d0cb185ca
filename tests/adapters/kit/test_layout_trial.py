"""Axes of a user's tensors, found by calling the function."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.layout_trial import accepts, all_codecs, change_codecs, mixes_rows, rebind
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.core.boundary import Boundary

CODECS = {"logps": Column("logprob"), "batch": Table({"adv": Column("advantage")})}


def per_token(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    assert advantages.dim() == 2
    return -((logprobs - old_logprobs).exp() * advantages * mask).sum() / mask.sum()


def per_response(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    assert advantages.dim() == 1
    return -((logprobs - old_logprobs).exp() * advantages[:, None] * mask).sum() / mask.sum()


def across_rows(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    weights = (logprobs - old_logprobs).exp()
    return -(weights[:, None] * advantages[None] * mask).sum() / mask.sum()


def bound(function: Callable[..., Tensor]) -> tuple[Target, Boundary]:
    target = live_target(function)
    return target, the_only(describe(target, target.path, Statement(stage="policy-loss")))


def with_bindings(boundary: Boundary, **changed: str) -> Boundary:
    (step,) = boundary.steps
    return replace(boundary, steps=(replace(step, arguments=rebind(step.arguments, changed)),))


def test_all_codecs_includes_those_of_containers() -> None:
    assert [type(one) for one in all_codecs(CODECS.values())] == [Column, Table, Column]


def test_codecs_inside_containers_are_changed() -> None:
    leaves = change_codecs(CODECS, lambda one: replace(one, leaf=True) if isinstance(one, Column) else one)
    changed = [one for one in all_codecs(leaves.values()) if isinstance(one, Column)]
    assert [(one.name, one.leaf) for one in changed] == [("logprob", True), ("advantage", True)]


def test_bindings_inside_containers_are_named_by_their_path() -> None:
    rebound = rebind(CODECS, {"batch.adv": "advantage[B]"})
    assert rebound["logps"] == CODECS["logps"]
    assert isinstance(rebound["batch"], Table)
    assert isinstance(rebound["batch"].parts["adv"], PerResponse)


def test_axes_are_chosen_that_the_function_accepts() -> None:
    for function, codec in ((per_token, Column), (per_response, PerResponse)):
        target, boundary = bound(function)
        assert isinstance(boundary.steps[0].arguments["advantages"], codec)
        assert accepts(target, boundary)


def test_other_axes_are_not_accepted() -> None:
    target, boundary = bound(per_token)
    assert not accepts(target, with_bindings(boundary, advantages="advantage[B]"))
    target, boundary = bound(per_response)
    assert not accepts(target, with_bindings(boundary, advantages="advantage"))


def test_a_loss_that_broadcasts_advantages_across_rows_mixes_them() -> None:
    target, boundary = bound(per_token)
    assert not mixes_rows(target, boundary)
    target, boundary = bound(across_rows)
    assert mixes_rows(target, boundary)

"""Small cases in a fixed order, small ones first, so that the first counterexample is small for every seed."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case
from rl_sentinel.search.filled_batch import filled


def _plain() -> Iterator[Batch]:
    yield filled([[1, 1], [1, 1]], reward=[1, 0], group=[0, 0])
    yield filled([[1, 1, 1], [1, 0, 0]], reward=[1, 0], group=[0, 0], length=[3, 1])
    yield filled([[1, 1], [1, 1], [1, 1]], reward=[1, 0, 0.5], group=[0, 0, 0])


def _of_unequal_groups() -> Iterator[Batch]:
    mask = [[1, 0], [1, 1], [1, 0], [1, 1], [1, 0]]
    yield filled(mask, reward=[2, 1, 0, 0.5, 1], group=[1, 1, 0, 0, 0], length=[1, 2, 1, 2, 1])
    yield filled([[1, 1], [1, 1], [1, 0]], reward=[1, 0, 2], group=[0, 0, 1], length=[2, 2, 1])


def _of_equal_groups() -> Iterator[Batch]:
    yield filled([[1, 1]] * 4, reward=[1, 0, 2, 5], group=[0, 0, 1, 1])
    yield filled([[1, 1]] * 4, reward=[1, 0, 2, 5], group=[0, 1, 0, 1])


def _with_dead_rows() -> Iterator[Batch]:
    yield filled([[1, 1], [0, 0], [1, 1]], reward=[1, 0, 0.5], group=[0, 0, 0])
    yield filled([[1, 1], [0, 0]], reward=[1, 0], group=[0, 0])
    yield filled([[1, 1], [0, 0], [1, 1]], reward=[1, 0, 2], group=[0, 0, 1])
    yield filled([[1, 1], [1, 1], [0, 0], [1, 1]], reward=[1, 0, 0.5, 2], group=[0, 0, 0, 1])
    yield filled(
        [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 0]],
        reward=[1, 0, 0.5, 2, 3],
        group=[0, 0, 0, 1, 1],
        length=[2, 1, 3, 3, 2],
    )


def _with_a_dead_group() -> Iterator[Batch]:
    yield filled([[0, 0], [0, 0], [1, 1], [1, 1]], reward=[1, 0, 2, 1], group=[0, 0, 1, 1])


def _with_masked_tokens() -> Iterator[Batch]:
    yield filled([[1, 0], [1, 1]], reward=[1, 0], group=[0, 0])
    yield filled([[0, 1], [1, 1]], reward=[1, 0], group=[0, 0])


def _with_a_gap() -> Iterator[Batch]:
    """Untrained tokens between trained ones, such as the observations of a tool."""
    yield filled([[1, 0, 1], [1, 1, 1]], reward=[1, 0], group=[0, 0])
    yield filled([[1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1]], reward=[1, 0, 2], group=[0, 0, 1], length=[4, 2, 4])


def _with_suppressed_rewards() -> Iterator[Batch]:
    scored = torch.tensor([True, False], device="cpu")
    yield filled([[1, 0], [1, 1]], reward=[1, 1], group=[0, 0], length=[1, 2], scored=scored)
    yield filled(
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
        reward=[1, 0, 2],
        group=[0, 0, 0],
        length=[1, 2, 3],
        scored=torch.tensor([True, True, False], device="cpu"),
    )
    yield filled(
        [[1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]],
        reward=[1, 0, 2, 1],
        group=[0, 0, 1, 1],
        length=[1, 3, 2, 3],
        scored=torch.tensor([True, False, True, False], device="cpu"),
    )


def _with_suppressed_and_dead_rows() -> Iterator[Batch]:
    scored = torch.tensor([False, True, True], device="cpu")
    yield filled([[1, 1], [0, 0], [1, 0]], reward=[1, 0, 2], group=[0, 0, 0], length=[2, 2, 1], scored=scored)


def _step_wise() -> Iterator[Batch]:
    """A trajectory of two steps and one of one step to the first prompt, two of one step to the second."""
    yield filled(
        [[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0]],
        reward=[0, 1, 0, 0.5, 0.25],
        group=[0, 0, 0, 1, 1],
        length=[3, 1, 2, 2, 1],
        trajectory=torch.tensor([0, 0, 1, 2, 3], device="cpu"),
        step=torch.tensor([0, 1, 0, 0, 0], device="cpu"),
        last_step=torch.tensor([False, True, True, True, True], device="cpu"),
    )


def _of_several_steps() -> Iterator[Batch]:
    """Trajectories of three and of two steps."""
    yield filled(
        [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
        reward=[0, 0, 1, 0, 0],
        group=[0, 0, 0, 0, 0],
        length=[5, 3, 1, 4, 2],
        trajectory=torch.tensor([0, 0, 0, 1, 1], device="cpu"),
        step=torch.tensor([0, 1, 2, 0, 1], device="cpu"),
        last_step=torch.tensor([False, False, True, False, True], device="cpu"),
    )


def _step_wise_without_its_end() -> Iterator[Batch]:
    """A trajectory whose last step is not trained, after a trained step; and a trajectory of one step."""
    yield filled(
        [[1, 1], [0, 0], [1, 1]],
        reward=[0, 1, 0],
        group=[0, 0, 0],
        trajectory=torch.tensor([0, 0, 1], device="cpu"),
        step=torch.tensor([0, 1, 0], device="cpu"),
        last_step=torch.tensor([False, True, True], device="cpu"),
    )


def _of_one_position() -> Iterator[Batch]:
    yield filled([[1], [0], [1]], reward=[1, 0, 2], group=[0, 0, 0])


def _of_single_responses() -> Iterator[Batch]:
    yield filled([[1]], reward=[0.75], group=[0])
    yield filled([[1, 1]], reward=[0.75], group=[0])
    yield filled([[1, 1], [1, 1]], reward=[0.75, 0.25], group=[0, 1])


def _with_equal_rewards() -> Iterator[Batch]:
    yield filled([[1, 1]] * 3, reward=[0.9, 0.9, 0.9], group=[0, 0, 0])  # whose float32 mean is not 0.9
    yield filled([[1, 1], [1, 1]], reward=[0.1, 0.1], group=[0, 0])
    yield filled([[1, 1]] * 4, reward=[1, 0, 0.75, 0.75], group=[0, 0, 1, 1])


def _with_one_trained_token() -> Iterator[Batch]:
    """A batch whose only trained token is far less probable under the sampler than under the old policy.

    A correction for the sampler may give this token no weight.
    """
    near, far = (torch.full((2, 3), x, device="cpu") for x in (-0.25, -2.0))
    mask = [[0, 0, 0], [1, 0, 0]]
    yield filled(mask, reward=[1, 0], group=[0, 1], length=[3, 2], old_logprob=near, rollout_logprob=far)


def _with_nothing_trained() -> Iterator[Batch]:
    yield filled([[0, 0], [0, 0]], reward=[1, 0], group=[0, 0])
    yield filled([[0]], reward=[1], group=[0])


def _signs_mixed() -> Iterator[Batch]:
    high, zero = torch.ones(1, 3, device="cpu"), torch.zeros(1, 3, device="cpu")
    advantage = torch.tensor([[-0.5, 0.25, -0.25]], device="cpu")
    logprobs: dict[str, Any] = {"logprob": zero - 1, "old_logprob": high - 1, "rollout_logprob": high - 1}
    yield filled([[1, 1, 1]], reward=[1], group=[0], advantage=advantage, **logprobs)
    yield filled(
        [[1, 1, 1], [1, 1, 0]],
        reward=[1, 0],
        group=[0, 0],
        length=[3, 2],
        advantage=torch.cat([advantage, torch.tensor([[0.5, 0.5, 0.0]], device="cpu")]),
        **{k: v.repeat(2, 1) for k, v in logprobs.items()},
    )


def _with_token_rewards() -> Iterator[Batch]:
    rewards = torch.tensor([[0.25, -0.5], [0.75, 0.0], [-0.25, 1.0]], device="cpu")
    yield filled([[1, 1], [1, 0], [0, 1]], reward=[1, 0, 2], group=[0, 0, 0], length=[2, 1, 2], token_reward=rewards)


def _without_neighbors() -> Iterator[Batch]:
    """Batches without two adjacent trained tokens."""
    yield filled([[1, 0, 1], [0, 1, 0]], reward=[1, 0], group=[0, 0], length=[3, 2])


_KINDS = (
    _plain,
    _with_dead_rows,
    _with_a_dead_group,
    _with_masked_tokens,
    _with_a_gap,
    _with_suppressed_rewards,
    _with_suppressed_and_dead_rows,
    _step_wise,
    _of_several_steps,
    _signs_mixed,
    _of_one_position,
    _of_single_responses,
    _with_equal_rewards,
    _of_equal_groups,
    _of_unequal_groups,
    _with_one_trained_token,
    _with_nothing_trained,
    _with_token_rewards,
    _step_wise_without_its_end,
    _without_neighbors,
)


@cache
def _batches() -> tuple[tuple[str, Batch], ...]:
    """All batches, each with the name of its kind."""
    return tuple((kind.__name__, batch) for kind in _KINDS for batch in kind())


def small_cases(setting: str = "default", seed: int = 0) -> list[Case]:
    """All small cases, common kinds before unusual ones.

    The batches are the same objects at each call; do not modify them.
    """
    return [Case(batch=batch, setting=setting, seed=seed) for _, batch in _batches()]


def small_kinds() -> list[str]:
    """The kind of each small case, in their order."""
    return [kind for kind, _ in _batches()]

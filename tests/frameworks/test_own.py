"""A function of one's own, bound by its parameters' names and judged by every law that applies."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from frameworks.adapters import answering, bound, judged_at
from rl_sentinel.audit.worker.main import laws
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.frameworks.own import FRAMEWORK, CallFailed
from rl_sentinel.frameworks.target import Target

Own = Callable[[str, str], Target]

BATCH = batch_of(torch.tensor([[True, True, True], [True, False, False]]), reward=torch.tensor([1.0, 0.0]))

#: A leave-one-out baseline over the rows of a group that are trained.
RLOO = """
    import torch

    def one(rewards, mask, group):
        rows = mask.any(dim=-1)
        same = ((group[:, None] == group[None, :]) & rows).to(rewards.dtype)
        others = same.sum(1) - 1
        mean = (same @ rewards - rewards) / others.clamp(min=1)
        return torch.where(rows & (others > 0), rewards - mean, 0.0)
"""

#: The shape that frameworks give it: uids in a numpy array, which key a dict; returns beside.
KEYED = """
    from collections import defaultdict
    import numpy as np
    import torch

    def one(token_level_rewards, response_mask, index: np.ndarray, epsilon=1e-6, norm_adv_by_std_in_grpo=True):
        of_prompt = defaultdict(list)
        total = token_level_rewards.sum(-1)
        out = torch.zeros_like(total)
        for row, uid in enumerate(index):
            if response_mask[row].any():
                of_prompt[uid].append(row)
        for rows in of_prompt.values():
            if len(rows) > 1:
                part = total[rows]
                std = part.std() if norm_adv_by_std_in_grpo else 1
                out[rows] = (part - part.mean()) / (std + epsilon)
        wide = out.unsqueeze(-1) * response_mask
        return wide, wide
"""

#: The reward spread over the batch's width, padding and all.
WIDTH = """
    def one(token_level_rewards, response_mask):
        return token_level_rewards.mean(-1, keepdim=True) * response_mask
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """Write a module whose function is ``one``, and point the adapter at it and a stage."""
    name = f"of_{tmp_path.name}"

    def write(source: str, stage: str) -> Target:
        (tmp_path / f"{name}.py").write_text(dedent(source), encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("RL_SENTINEL_FUNCTION", f"{name}:one")
        monkeypatch.setenv("RL_SENTINEL_STAGE", stage)
        return Target(root=tmp_path)

    return write


def _boundary(target: Target) -> Boundary:
    return bound(FRAMEWORK, target)["one", "default"]


def _broken(boundary: Boundary) -> set[str]:
    wanted = [law for law in laws().values() if law.applies(boundary) == ""]
    assert len(wanted) > 5
    return {law.code for law in wanted if judged_at(law, boundary, "default").found is not None}


@pytest.mark.parametrize("source", [RLOO, KEYED])
def test_right_ones_answer_and_break_nothing(own: Own, source: str) -> None:
    """A reward per row, and one per token with uids, are both passed in the form asked for."""
    target = own(source, "advantage")
    assert answering(bound(FRAMEWORK, target)) == []
    assert _broken(_boundary(target)) == set()


def test_wrong_one_is_found(own: Own) -> None:
    """A mean over the width falls when padding is added."""
    assert "PAD001" in _broken(_boundary(own(WIDTH, "advantage")))


def test_wrong_one_with_a_reward_per_row_is_found(own: Own) -> None:
    """A mean over the batch where dead rows stand in it."""
    source = "def one(rewards, mask): return (rewards - rewards.mean())[:, None] * mask"
    assert "MSK001" in _broken(_boundary(own(source, "advantage")))


@pytest.mark.parametrize(
    ("stage", "entries", "key", "expected"),
    [
        ("advantage", "'returns': 2 * x, 'advantages': x", "advantage", 1.0),
        ("advantage", "'my_advantage': x, 'returns': 2 * x", "advantage", 1.0),
        ("policy-loss", "'loss': x.sum(), 'loss_scale': 2 * x", "loss", 1.0),
        ("policy-loss", "'entropy': 2 * x.sum(), 'pg_loss': x.sum()", "loss", 1.0),
        ("kl", "'kl': x, 'total': 2 * x", "kl", 1.0),
    ],
)
def test_entry_of_a_dict(own: Own, stage: str, entries: str, key: str, expected: float) -> None:
    """The entry that is named for the stage's output is taken, a plain name before a longer one."""
    boundary = _boundary(own(f"def one(rewards, x=None):\n    x = rewards\n    return {{{entries}}}", stage))
    assert boundary.call(BATCH, {})[key].flatten()[0].item() == expected


def test_dict_that_names_no_output(own: Own) -> None:
    """Its entries and the wanted name are told in one line."""
    boundary = _boundary(own("def one(rewards): return {'a': rewards, 'b': rewards}", "advantage"))
    with pytest.raises(CallFailed, match=r"^the answer is a dict of a, b; expected one entry named advantage$"):
        boundary.call(BATCH, {})


def test_failure_names_what_was_passed(own: Own) -> None:
    """Parameter, column and shape."""
    boundary = _boundary(own("def one(rewards, mask, uid): return rewards * mask", "advantage"))
    passed = r"passed rewards=reward\[2\], mask=mask\[2, 3\], uid=group as numpy\[2\]$"
    with pytest.raises(CallFailed, match=rf"^RuntimeError: .*; {passed}"):
        boundary.call(BATCH, {})


def test_refusal_names_what_was_passed_and_stays_a_refusal(own: Own) -> None:
    """A ValueError in words is judged by the laws as one."""
    boundary = _boundary(own("def one(rewards): rows, width = rewards.shape", "kl"))
    with pytest.raises(ValueError, match=r"not enough values .*; passed rewards=reward\[2\]$"):
        boundary.call(BATCH, {})


def test_unknown_name_and_unknown_stage(own: Own) -> None:
    """A parameter that nobody knows is named; so is a stage."""
    (missing,) = FRAMEWORK.boundaries(own("def one(rewards, colour): return rewards", "advantage"))
    assert isinstance(missing, Unbound)
    assert "'colour'" in missing.reason
    with pytest.raises(SentinelError, match="--stage is 'x', expected one of advantage, policy-loss, value-loss, kl"):
        list(FRAMEWORK.boundaries(own("def one(rewards): return rewards", "x")))

"""A function of one's own, bound by its parameters' names and judged by every law that applies."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import Tensor

from adapters.checks import answering, bound, judged_at, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.kit.user_results import CallFailed
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_function import FRAMEWORK
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.errors import NotApplicable, SentinelError

Own = Callable[..., Target]

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
    written = count()

    def write(source: str, stage: str, *claims: str) -> Target:
        name = f"of_{tmp_path.name}_{next(written)}"
        (tmp_path / f"{name}.py").write_text(dedent(source), encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("RL_SENTINEL_FUNCTION", f"{name}:one")
        monkeypatch.setenv("RL_SENTINEL_STAGE", stage)
        monkeypatch.setenv("RL_SENTINEL_CLAIMS", "\n".join(claims))
        return Target(root=tmp_path)

    return write


def _boundary(target: Target) -> Boundary:
    return bound(FRAMEWORK, target)["one", "default"]


def _call(target: Target, batch: Batch = BATCH) -> dict[str, Tensor]:
    return outputs_of(target, _boundary(target), "default", batch)


def _broken(target: Target) -> set[str]:
    boundary = _boundary(target)
    wanted = [law for law in laws().values() if law.applies(boundary) == ""]
    assert len(wanted) > 5
    return {law.code for law in wanted if judged_at(law, boundary, "default", target).found is not None}


@pytest.mark.parametrize("source", [RLOO, KEYED])
def test_right_ones_answer_and_break_nothing(own: Own, source: str) -> None:
    target = own(source, "advantage")
    assert answering(bound(FRAMEWORK, target), target) == []
    assert _broken(target) == set()


@pytest.mark.parametrize(("source", "stage"), [(RLOO, "advantage"), (KEYED, "advantage")])
def test_every_call_reads_back(own: Own, source: str, stage: str) -> None:
    target = own(source, stage)
    check_round_trip(target, _boundary(target))


def test_wrong_one_is_found(own: Own) -> None:
    assert "PAD001" in _broken(own(WIDTH, "advantage"))


def test_wrong_one_with_a_reward_per_row_is_found(own: Own) -> None:
    source = "def one(rewards, mask): return (rewards - rewards.mean())[:, None] * mask"
    assert "MSK001" in _broken(own(source, "advantage"))


@pytest.mark.parametrize(
    ("stage", "entries", "key", "expected"),
    [
        ("advantage", "'returns': 2 * x, 'advantages': x", "advantage", 1.0),
        ("advantage", "'my_advantage': x, 'returns': 2 * x", "advantage", 1.0),
        ("policy-loss", "'loss': x.sum(), 'loss_scale': 2 * x", "loss", 1.0),
        ("policy-loss", "'entropy': 2 * x.sum(), 'pg_loss': x.sum()", "loss", 1.0),
        ("kl", "'kl': x[:, None].expand(-1, 3), 'total': 2 * x", "kl", 1.0),
    ],
)
def test_entry_of_a_dict(own: Own, stage: str, entries: str, key: str, expected: float) -> None:
    target = own(f"def one(rewards, x=None):\n    x = rewards\n    return {{{entries}}}", stage)
    assert _call(target)[key].flatten()[0].item() == expected


def test_dict_that_names_no_output(own: Own) -> None:
    target = own("def one(rewards): return {'a': rewards, 'b': rewards}", "advantage")
    with pytest.raises(
        CallFailed, match=r"^the result has the entries a, b, expected one entry named advantage: state its key"
    ):
        _call(target)


def test_failure_names_what_was_passed(own: Own) -> None:
    target = own("def one(rewards, mask, uid): return rewards.reshape(7)", "advantage")
    passed = r"passed rewards=reward\[2\], mask=mask\[2, 3\], uid=group as numpy\[2\]$"
    with pytest.raises(CallFailed, match=rf"^the function raised RuntimeError: .* at \w+.py:\d+; {passed}"):
        _call(target)


def test_refusal_names_what_was_passed_and_stays_a_refusal(own: Own) -> None:
    target = own("def one(rewards): rows, width = rewards.shape", "kl")
    with pytest.raises(ValueError, match=r"not enough values .*; passed rewards=reward\[2\]$"):
        _call(target)


def test_unknown_name_and_unknown_stage(own: Own) -> None:
    (missing,) = FRAMEWORK.boundaries(own("def one(rewards, color): return rewards * color", "advantage"))
    assert isinstance(missing, Unbound)
    assert "'color'" in missing.reason
    stages = "advantage, policy-loss, value-loss, kl, aggregate, reward, normalize, weight, keep, logprob, entropy"
    with pytest.raises(
        SentinelError, match=f"^--stage is 'x', expected one of {stages}: choose what your function computes$"
    ):
        list(FRAMEWORK.boundaries(own("def one(rewards): return rewards", "x")))


GRPO = ("algorithm=grpo", "scope=group", "baseline=relative", "credit=outcome", "grouping=id")

PPO = """
    import torch

    def one(log_prob, old_log_prob, advantages, response_mask, cliprange=0.2, cliprange_high=0.3):
        ratio = torch.where(response_mask > 0, log_prob - old_log_prob, 0.0).exp()
        held = ratio.clamp(1 - cliprange, 1 + cliprange_high)
        worse = torch.maximum(-advantages * ratio, -advantages * held)
        return torch.where(response_mask > 0, worse, 0.0).sum() / response_mask.sum().clamp(min=1)
"""


def _judged(target: Target) -> tuple[set[str], set[str]]:
    """Codes of the laws that were tried and hold, and that are broken."""
    boundary = _boundary(target)
    found = {c: judged_at(law, boundary, "default", target) for c, law in laws().items() if law.applies(boundary) == ""}
    staged = {c: j for c, j in found.items() if boundary.stage in laws()[c].stages}
    broken = {c for c, j in staged.items() if j.found is not None}
    return {c for c, j in staged.items() if j.tried} - broken, broken


def test_stated_claims_bring_their_laws(own: Own) -> None:
    exact = KEYED.replace("part = total[rows]", "part = total[rows] - total[rows][0]")  # equal rewards give 0
    holds, broken = _judged(own(exact, "advantage", *GRPO))
    assert (holds >= {"GRP001", "REF001", "SHF001", "PLC003", "PLC005"}, broken) == (True, set())
    whole = KEYED.replace("of_prompt[uid]", "of_prompt[0]")
    assert _judged(own(whole, "advantage", *GRPO))[1] >= {"GRP001", "REF001"}
    assert "REF001" not in _judged(own(whole, "advantage"))[1]


def test_clipped_loss_takes_its_range_from_its_parameters(own: Own) -> None:
    said = ("algorithm=ppo", "aggregation=token-mean", "ratio=yes", "mean=yes")
    target = own(PPO, "policy-loss", *said)
    assert _boundary(target).settings["default"] == {"clip_low": 0.2, "clip_high": 0.3}
    holds, broken = _judged(target)
    assert (holds >= {"REF001", "ONP001", "GRD002"}, broken) == (True, set())
    assert _judged(own(PPO.replace("maximum", "minimum"), "policy-loss", *said))[1] >= {"REF001"}


def test_loss_without_its_numbers_says_so(own: Own) -> None:
    body = "def one(log_prob, old_log_prob, advantages, mask): return (log_prob * advantages * mask).sum()"
    boundary = _boundary(own(body, "policy-loss", "algorithm=ppo", "aggregation=token-mean"))
    assert boundary.undecided == (
        "not compared with the formula of ppo, which needs clip_low and clip_high: state "
        'numbers={"clip_low": ..., "clip_high": ...}, or --number clip_low=NUMBER --number clip_high=NUMBER on the '
        "command line"
    )
    assert boundary.claims.algorithm is None


VALUES = """
    def one(vpreds, values, returns, mask):
        return ((vpreds - returns) ** 2 * mask).sum() / mask.sum().clamp(min=1)
"""

WEIGHTS = """
    import torch

    def one(old_log_prob, rollout_log_prob, mask):
        return torch.where(mask, (old_log_prob - rollout_log_prob).clamp(-5, 1).exp(), 0.0)
"""

KEPT = """
    def one(old_log_prob, rollout_log_prob, mask):
        gap = ((old_log_prob - rollout_log_prob) * mask).sum(1, keepdim=True)
        return mask & (gap.abs() < 1).expand(mask.shape)
"""


@pytest.mark.parametrize(
    ("stage", "source", "claims", "faulty", "law"),
    [
        (
            "aggregate",
            "def one(loss_mat, loss_mask): return (loss_mat * loss_mask).sum() / loss_mask.sum().clamp(min=1)",
            ("aggregation=token-mean", "mean=yes"),
            ("loss_mask.sum().clamp(min=1)", "loss_mask.numel()"),
            "REF001",
        ),
        ("value-loss", VALUES, ("mean=yes",), (" * mask).sum()", ").sum()"), "MSK002"),
        (
            "reward",
            "def one(rewards, mask): return rewards[:, None] * (mask.flip(1).cumsum(1).flip(1) == 1) * mask",
            ("algorithm=outcome at the last trained token", "masked=yes"),
            ("(mask.flip(1).cumsum(1).flip(1) == 1) * mask", "(mask.cumsum(1) == 1) * mask"),
            "REF001",
        ),
        (
            "normalize",
            "def one(rewards, mask): return rewards - rewards[mask.any(1)].mean() if mask.any() else rewards * 0",
            (),
            ("rewards[mask.any(1)].mean()", "rewards.mean()"),
            "MSK001",
        ),
        ("weight", WEIGHTS, ("scope=token",), ("return ", "return 0.1 * old_log_prob.sum() + "), "MSK002"),
        ("keep", KEPT, ("scope=sequence",), ("gap.abs() < 1", "gap.abs() * (old_log_prob < -1) < 1"), "SCP001"),
    ],
    ids=["aggregate", "value-loss", "reward", "normalize", "weight", "keep"],
)
def test_each_stage_is_judged(  # noqa: PLR0913 - a sound function, and how it becomes a faulty one
    own: Own, stage: str, source: str, claims: tuple[str, ...], faulty: tuple[str, str], law: str
) -> None:
    holds, broken = _judged(own(source, stage, *claims))
    assert (len(holds) > 3, broken) == (True, set())
    assert source.replace(*faulty) != source
    assert law in _judged(own(source.replace(*faulty), stage, *claims))[1]


def test_answer_that_is_no_tensor(own: Own) -> None:
    target = own("def one(rewards, mask): return {'advantage': 'none'}", "advantage")
    with pytest.raises(
        CallFailed, match=r"advantage of the result is of type str, expected a tensor with a number for each"
    ):
        _call(target, batch_of(torch.ones(1, 2, dtype=torch.bool)))


def test_number_type_that_a_function_refuses_is_its_own_affair(own: Own) -> None:
    source = """
    def one(rewards, mask):
        if str(rewards.dtype) != "torch.float32" or len(rewards) == 2:
            raise TypeError("no such numbers")
        return rewards[:, None] * mask
    """
    target, mask = own(source, "advantage"), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(NotApplicable, match="the function refuses bfloat16: TypeError: no such numbers"):
        _call(target, batch_of(mask, reward=torch.ones(1, dtype=torch.bfloat16)))
    with pytest.raises(CallFailed, match="TypeError: no such numbers"):
        _call(target, batch_of(mask.expand(2, 2)))


def test_what_is_no_function(own: Own) -> None:
    (missing,) = FRAMEWORK.boundaries(own("one = 3", "advantage"))
    assert isinstance(missing, Unbound)
    assert missing.reason.endswith(".one is of type int, expected a function")
    with pytest.raises(SentinelError, match=r"--stage is 'metric', expected one of .*audited by an adapter"):
        list(FRAMEWORK.boundaries(own("def one(rewards): return rewards", "metric")))


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        (
            "class K:\n    def m(self, rewards): return rewards",
            "K.m",
            "K.m is a method, expected a function: write a function that",
        ),
        (
            "def one(rewards, /): return rewards",
            "one",
            "one takes rewards by position only, expected parameters by name: remove the / after rewards",
        ),
        (
            "def one(*args): return args[0]",
            "one",
            "one takes *args, expected parameters by name: name the parameters, or decorate",
        ),
        (
            "def one(*a, **k): return a[0]",
            "one",
            "one takes *a, **k, expected parameters by name: name the parameters, or decorate",
        ),
    ],
)
def test_what_cannot_be_called_by_names_is_told_at_once(
    own: Own, monkeypatch: pytest.MonkeyPatch, source: str, name: str, words: str
) -> None:
    target = own(source, "advantage")
    module = os.environ["RL_SENTINEL_FUNCTION"].partition(":")[0]
    monkeypatch.setenv("RL_SENTINEL_FUNCTION", f"{module}:{name}")
    (missing,) = FRAMEWORK.boundaries(target)
    assert isinstance(missing, Unbound)
    assert missing.reason.startswith(words)


def test_error_of_several_lines_is_one(own: Own) -> None:
    target = own("def one(rewards, mask): raise TypeError('a\\n  b\\nc')", "advantage")
    with pytest.raises(CallFailed, match=r"^the function raised TypeError: a b c at \w+.py:\d+; passed rewards="):
        _call(target, batch_of(torch.ones(1, 2, dtype=torch.bool)))

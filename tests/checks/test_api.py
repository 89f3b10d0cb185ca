"""``rl_sentinel.check`` and ``rl_sentinel.assert_sound``."""

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.core.errors import InputError, SentinelError

GRPO: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "laws": ["REF001", "SHF001"]}


def centered(rewards: Tensor, group: Tensor, scale: float = 1.0) -> Tensor:
    """Rewards without the mean of their prompt."""
    same = (group[:, None] == group[None, :]).float()
    return scale * (rewards - same @ rewards / same.sum(1))


@dataclass
class Estimator:
    """A trainer with a method."""

    scale: float

    def compute(self, rewards: Tensor, group: Tensor) -> Tensor:
        return centered(rewards, group, self.scale)


async def later(rewards: Tensor, group: Tensor) -> Tensor:
    return centered(rewards, group)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import rl_sentinel, sys; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "function",
    [
        centered,
        later,
        partial(centered, scale=1.0),
        Estimator(1.0).compute,
        lambda rewards, group: 1.0 * centered(rewards, group),
    ],
    ids=["function", "async", "partial", "method", "lambda"],
)
def test_any_python_callable_is_checked(function: Any) -> None:
    result = rl_sentinel.check(function, **GRPO)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts] == ["holds", "holds"]


def test_a_finding_has_its_case_and_its_sentence() -> None:
    result = rl_sentinel.check(Estimator(2.0).compute, **GRPO)
    (finding,) = result.findings
    assert (finding.code, finding.level, result.ok) == ("REF001", "fault", False)
    assert finding.sentence.startswith("advantage is ")
    assert (finding.case.batch.rows, finding.case.batch.width) == (2, 1)
    assert str(finding).startswith("fault REF001 advantage is ")
    assert "1 finding: 1 fault" in str(result)
    assert "cannot be imported by name" in str(result)
    assert "<b style=" in result._repr_html_()


def test_the_report_is_text_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich prints to the cell, not to the text, where it finds a notebook."""
    result = rl_sentinel.check(centered, **GRPO)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert "0 findings: none" in str(result)
    assert "0 findings: none" in result._repr_html_()


def test_a_dataclass_is_built_whatever_the_parameter_is_called() -> None:
    """``policy`` is the usual name of a model."""

    @dataclass
    class Policy:
        log_probs: Tensor
        base_log_probs: Tensor

    def kl(policy: Policy) -> Tensor:
        return policy.log_probs - policy.base_log_probs

    assert rl_sentinel.check(kl, stage="kl", algorithm="k1", laws=["REF001"]).ok


@pytest.mark.parametrize("name", ["dr_grpo", "Dr. GRPO", "DR-GRPO"])
def test_names_of_algorithms_in_other_spellings(name: str) -> None:
    assert rl_sentinel.check(centered, **{**GRPO, "algorithm": name}).ok


@pytest.mark.slow
def test_a_loss_of_one_policy_needs_no_clip_range() -> None:
    """Its ratio is 1; the loss by log-probs has the same gradient, and one with the other sign is a fault."""

    def by_ratio(logp: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
        return -((logp - logp.detach()).exp() * adv * mask).sum() / mask.sum().clamp(min=1)

    def by_logprob(logp: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
        return -(logp * adv * mask).sum() / mask.sum().clamp(min=1)

    options: dict[str, Any] = {"stage": "policy-loss", "algorithm": "grpo", "laws": ["REF001"]}
    assert rl_sentinel.check(by_ratio, **options).ok
    assert rl_sentinel.check(by_logprob, **options).ok
    wrong = rl_sentinel.check(lambda logp, adv, mask: -by_ratio(logp, adv, mask), **options)
    assert [finding.code for finding in wrong.faults] == ["REF001"]


def test_assert_sound_raises_with_the_report() -> None:
    with pytest.raises(AssertionError, match=r"^fault REF001 advantage is ") as raised:
        rl_sentinel.assert_sound(partial(centered, scale=2.0), **GRPO)
    assert "\n  input " in str(raised.value)
    assert rl_sentinel.assert_sound(centered, **GRPO).ok


def test_a_function_that_fails_is_not_sound() -> None:
    def failing(rewards: Tensor, mask: Tensor) -> Tensor:
        raise RuntimeError("no such thing")

    with pytest.raises(
        AssertionError,
        match=r"could not be checked: the function raised RuntimeError: no such thing at test_api.py:\d+; passed rew",
    ):
        rl_sentinel.assert_sound(failing, stage="advantage", laws=["SHF001", "MSK003"])


def test_the_process_is_left_as_it_is() -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    rl_sentinel.check(centered, **GRPO)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_findings_of_a_lower_level_are_counted() -> None:
    """NaN on a batch without a trained token is a hazard, since a caller may never pass one."""

    def centered_over_tokens(token_rewards: Tensor, mask: Tensor) -> Tensor:
        return (token_rewards - (token_rewards * mask).sum() / mask.sum()) * mask

    result = rl_sentinel.check(centered_over_tokens, stage="normalize", laws=["DEG001"])
    assert (result.ok, result.findings, result.hidden) == (True, (), 1)
    assert '1 broken at a lower level, not shown: level="hazard" shows all' in str(result)
    (hazard,) = rl_sentinel.check(centered_over_tokens, stage="normalize", laws=["DEG001"], level="hazard").findings
    assert (hazard.code, hazard.level) == ("DEG001", "hazard")


class Stopped(BaseException):
    """An exception that ``except Exception`` does not catch."""


class Interrupted(KeyboardInterrupt):
    """One of the same kind as Ctrl-C."""


@pytest.mark.parametrize("error", [SystemExit(3), Stopped(3), Interrupted(3), GeneratorExit(3)])
def test_a_function_that_ends_the_process_is_said(error: BaseException) -> None:
    def ends(rewards: Tensor) -> Tensor:
        raise error

    result = rl_sentinel.check(ends, stage="advantage")
    assert not result.ok
    assert result.errored == [f"the target tried to end the process ({type(error).__name__}: 3)"]
    assert str(result).endswith("\nnot ok: some laws could not be checked (errored)")


def test_an_interrupt_by_the_function_is_one_line() -> None:
    def interrupts(rewards: Tensor) -> Tensor:
        raise KeyboardInterrupt("stop")

    with pytest.raises(SentinelError, match=r"^the function tried to end the process \(KeyboardInterrupt: stop\)$"):
        rl_sentinel.check(interrupts, stage="advantage")


def test_an_exception_while_the_keys_of_a_dict_are_read() -> None:
    def ends(batch: dict[str, Tensor]) -> Tensor:
        raise Stopped(batch["rewards"].sum().item())

    (reason,) = rl_sentinel.check(ends, stage="advantage", laws=["SHF001"]).errored
    assert reason.startswith("the target tried to end the process (Stopped: ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses deprecated functions of torch
def test_a_compiled_function_is_checked_as_it_is_written() -> None:
    class Module(torch.nn.Module):
        def forward(self, rewards: Tensor, group: Tensor) -> Tensor:
            return centered(rewards, group)

    for compiled in (torch.compile(centered), torch.compile(Module())):
        result = rl_sentinel.check(compiled, **GRPO)
        assert (result.ok, result.findings) == (True, ()), result


def test_contested_is_a_flag() -> None:
    with pytest.raises(InputError, match=r"^contested is 5, expected True or False$"):
        rl_sentinel.assert_sound(centered, contested=5, **GRPO)  # type: ignore[arg-type]


def test_a_dict_over_prompts_is_named() -> None:
    def by_prompt(rewards_of: dict[str, list[float]]) -> dict[str, list[float]]:
        return {key: [x - sum(row) / len(row) for x in row] for key, row in rewards_of.items()}

    with pytest.raises(InputError, match="the function iterates over all keys of 'rewards_of': bind them") as raised:
        rl_sentinel.check(by_prompt, **GRPO)
    assert "\n" not in str(raised.value)


def test_a_broadcast_is_told_with_its_binding() -> None:
    def loss(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return -(logp * advantages[:, None] * mask).sum() / mask.sum().clamp(min=1)

    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="reinforce")
    assert (result.ok, result.findings) == (True, ())
    (note,) = result.notes
    assert note.startswith("advantages seems to be one number per response: as [B, T] it broadcasts across rows, so")
    assert note.endswith('passed as advantage[B]; state it with bind={"advantages": "advantage[B]"}')


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage": "advantages"}, "stage is 'advantages', expected one of advantage, policy-loss"),
        ({"stage": "advantage", "level": "bad"}, "level is 'bad', expected one of fault, contested, hazard"),
        (
            {"stage": "advantage", "budget": 1},
            "budget is 1, expected a whole number from 2 to 100000: random cases per law",
        ),
        ({"stage": "advantage", "budget": 10**9}, "budget is 1000000000, expected a whole number from 2 to 100000"),
        ({"stage": "advantage", "budget": "9"}, "budget is '9', expected a whole number from 2 to 100000"),
        ({"stage": "advantage", "seed": "x"}, "seed is 'x', expected a whole number from 0"),
        ({"stage": "advantage", "laws": "MSK001"}, "laws is 'MSK001', expected a list of codes"),
        ({"stage": "advantage", "laws": []}, r'laws is \[\], expected at least one code, as in laws=\["MSK001"\]'),
        (
            {"stage": "advantage", "ignore": ["MSK999"]},
            "ignore: law is 'MSK999', expected a code or name that",
        ),
        ({"stage": "advantage", "algorithm": 3}, "algorithm is 3, expected a name"),
        ({"stage": "advantage", "algorithm": "gpro"}, "algorithm is 'gpro', which does not exist at stage advantage"),
        ({"stage": "advantage", "claims": "scope=group"}, "claims is 'scope=group', expected a dict"),
        ({"stage": "advantage", "bind": {3: "reward"}}, "bind is {3: 'reward'}, expected a dict with strings as keys"),
        ({"stage": "advantage", "numbers": {"epsilon": float("inf")}}, r"numbers\[epsilon\] is inf, expected a finite"),
        ({"stage": "advantage", "numbers": {"epsilon": float("nan")}}, r"numbers\[epsilon\] is nan, expected a finite"),
        ({"stage": "advantage", "numbers": {"epsilon": 10**400}}, r"numbers\[epsilon\] is 1000.*, expected a finite"),
        ({"stage": "advantage", "bind": {"scale": float("nan")}}, r"bind\[scale\] is nan, expected a number"),
        (
            {"stage": "advantage", "bind": {"rewards": "reward[]"}},
            r"bind\[rewards\] is 'reward\[\]', whose axes are \[\]",
        ),
        (
            {"stage": "advantage", "numbers": {"clip": 1.0}},
            "numbers has 'clip', which no formula reads: the near",
        ),
        ({"stage": "advantage", "numbers": {"clip_low": "x"}}, r"numbers\[clip_low\] is 'x', expected a finite"),
        (
            {"stage": "advantage", "bind": {"rewards": lambda _: 1 / 0}},
            r"the function bind\[rewards\] raised ZeroDivisionError",
        ),
        (
            {"stage": "advantage", "bind": {"x": "reward"}},
            "bind names x, expected parameters of centered: rewards, group",
        ),
        (
            {"stage": "advantage", "bind": {"rewards": "rewrd"}},
            r"bind\[rewards\] is 'rewrd', but there is no column rewrd: the near",
        ),
        ({"stage": "advantage", "bind": {"rewards": "reward[Q]"}}, r"whose axes are \[Q\], expected one of B T, B"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        rl_sentinel.check(centered, **options)
    assert "\n" not in str(raised.value)


def test_an_unknown_claim_names_the_nearest() -> None:
    with pytest.raises(InputError, match="nearest is 'scope'"):
        rl_sentinel.check(centered, stage="advantage", claims={"skope": "group"})


def test_an_adapter_function_binds_a_parameter() -> None:
    def loss(model_output: dict[str, Tensor], weight: Tensor, mask: Tensor) -> Tensor:
        return -(model_output["logp"] * weight * mask).sum() / mask.sum().clamp(min=1)

    result = rl_sentinel.check(
        loss,
        stage="policy-loss",
        algorithm="reinforce",
        bind={"model_output": lambda batch: {"logp": batch.logprob}, "weight": "advantage"},
    )
    assert (result.ok, result.findings) == (True, ()), result
    assert "REF001" in {v.law for v in result.verdicts if v.outcome == "holds"}


@pytest.mark.slow
def test_advantage_with_a_flipped_sign_shows_wrong_numbers_first() -> None:
    def flipped(rewards: Any, group: Any) -> Any:
        same = (group[:, None] == group[None, :]).float()
        return same @ rewards / same.sum(1) - rewards

    found = rl_sentinel.check(flipped, stage="advantage", algorithm="grpo").findings
    assert [f.code for f in found] == ["REF001", "RNK001", "PLC005"]
    assert "put the outcome at the last trained token" not in str(found[-1])


def test_a_level_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"level is .*, expected one of fault, contested, hazard"):
        rl_sentinel.check(lambda rewards: rewards, stage="advantage", level=np.arange(3))  # type: ignore[arg-type]


def test_the_message_of_a_fault_begins_with_it() -> None:
    def advantages(rewards: Any, group: Any) -> Any:
        centered = rewards - torch.stack([rewards[group == one].mean() for one in group])
        return centered / (rewards.std(correction=0) + 1e-6)

    with pytest.raises(AssertionError) as raised:
        rl_sentinel.assert_sound(advantages, stage="advantage", algorithm="grpo")
    first, *_, last = str(raised.value).splitlines()
    assert first.startswith("fault GRP001")
    assert last.startswith("note: the function computes grpo with the standard deviation of the whole batch")

"""Options that several commands share."""

import pytest

from command_line import error_line, run_cli
from rl_sentinel.adapters.user_function import STAGES
from rl_sentinel.audit.source.target_spec import named
from rl_sentinel.cli.options import described
from rl_sentinel.core.errors import SentinelError

#: Refusal of an option of user functions.
APPLIES = "applies to a function of yours, as in pkg.module:function, not to verl==1.0"


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "-1"), ("--seed", str(2**32)), ("--level", "worst"), ("--seed", "x")]
)
def test_value_out_of_range_is_one_line(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "audit", "verl", option, value)
    assert line.startswith(f"Invalid value for '{option}': ")
    assert line.endswith(": see rl-sentinel audit --help")


def test_stage_and_claims_are_of_a_function_of_ones_own() -> None:
    own, release = named("m:f"), named("verl==1.0")
    assert described([release], "", None) == ()
    assert described([own, release], "advantage", ["scope=group"]) == ("scope=group",)
    for targets, stage, claim, words in (
        ([own], "", None, "--stage is '', expected one of advantage, policy-loss, "),
        (
            [own],
            "advantage",
            ["skope=x"],
            "--claim is 'skope=x', but claim 'skope' does not exist: the nearest is ",
        ),
        (
            [release],
            "advantage",
            None,
            f"--stage {APPLIES}",
        ),
        (
            [release],
            "",
            ["scope=group"],
            f"--claim {APPLIES}",
        ),
    ):
        with pytest.raises(SentinelError) as told:
            described(targets, stage, claim)
        assert str(told.value).startswith(words)


def test_help_lists_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(run_cli(capsys, "audit", "--help")[1].replace("│", " ").split())
    assert f"What a function of your own computes: {', '.join(STAGES)}." in said

"""Options that several commands share."""

import pytest

from command_line import error_line, run_cli
from rl_sentinel.adapters.user_boundary import STAGES
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli.options import FunctionOptions, function_request
from rl_sentinel.core.errors import SentinelError

#: Refusal of an option of user functions.
APPLIES = "applies to a function, as in pkg.module:function, not to verl==1.0"


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "-1"), ("--seed", str(2**32)), ("--level", "worst"), ("--seed", "x")]
)
def test_value_out_of_range_is_one_line(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "audit", "verl", option, value)
    assert line.startswith(f"Invalid value for '{option}': ")
    assert line.endswith(": see rl-sentinel audit --help")


def test_stage_and_claims_are_of_a_function_of_ones_own() -> None:
    own, release = parse_target("m:f"), parse_target("verl==1.0")
    assert not any(function_request([release], FunctionOptions()).values())
    said = FunctionOptions.parsed(stage="advantage", algorithm="grpo", claim=["scope=group"])
    assert function_request([own, release], said) == {
        "stage": "advantage",
        "algorithm": "grpo",
        "claims": ("scope=group",),
        "bind": {},
        "numbers": {},
    }
    for targets, stage, claim, words in (
        ([own], "", None, "--stage is missing, expected one of advantage, policy-loss, "),
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
            function_request(targets, FunctionOptions.parsed(stage=stage, claim=claim))
        assert str(told.value).startswith(words)


def test_numbers_that_no_formula_reads_are_refused() -> None:
    said = FunctionOptions.parsed(stage="policy-loss", number=["cliplow=0.2"])
    with pytest.raises(SentinelError, match=r"^--number names cliplow, .* nearest is 'clip_low'$"):
        function_request([parse_target("own.code:loss")], said)


def test_bindings_axes_and_numbers_as_text() -> None:
    said = FunctionOptions.parsed(
        bind=["adv=advantage", "beta=0.5", 'batch={"old": "old_logprob"}', "m=mask int64"],
        axes=["adv=B", "rewards=G K", "m=B T"],
        number=["clip_low=2e-1"],
    )
    assert said.bind == {
        "adv": "advantage[B]",
        "beta": 0.5,
        "batch": {"old": "old_logprob"},
        "m": "mask[B T] int64",
        "rewards": "[G K]",
    }
    assert said.numbers == {"clip_low": 0.2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bind": ["adv"]}, "--bind is 'adv', expected NAME=VALUE, as in --bind adv=advantage"),
        ({"axes": ["=B"]}, "--axes is '=B', expected NAME=VALUE, as in --axes advantages=B"),
        ({"number": ["a=b"]}, "--number a is 'b', expected a finite number, as in a=0.2"),
        ({"number": ["epsilon=nan"]}, "--number epsilon is 'nan', expected a finite number, as in epsilon=0.2"),
        ({"number": ["epsilon=-inf"]}, "--number epsilon is '-inf', expected a finite number, as in epsilon=0.2"),
        ({"bind": ["a=reward", "a=mask"]}, "--bind names a twice, expected each name once: remove one of the options"),
        (
            {"bind": ["a=reward[B]"], "axes": ["a=G K"]},
            "axes[a] is 'G K', and a is bound to 'reward[B]': state one of them",
        ),
    ],
)
def test_what_is_not_name_and_value(options: dict[str, list[str]], words: str) -> None:
    with pytest.raises(SentinelError) as told:
        FunctionOptions.parsed(**options)  # type: ignore[arg-type]
    assert str(told.value) == words


def test_help_lists_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(run_cli(capsys, "audit", "--help")[1].replace("│", " ").split())
    assert f"What your function computes: {', '.join(STAGES)}." in said

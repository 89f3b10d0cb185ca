"""On-policy distillation in slime's specimen: log-probs of the teacher, and their penalty."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
@pytest.mark.parametrize(("law", "setting"), [(CFG001, "default"), (REF001, "other temperature")])
def test_temperature_of_the_teacher(loads: Loads, law: Law, setting: str, fixed: bool, found: bool) -> None:
    """A teacher that is queried at temperature 0 has other log-probs than a student at the temperature of a rollout."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    check_verdict(law, bound(FRAMEWORK, target)["post_process_rewards", setting], setting, target, found=found)


@pytest.mark.parametrize(
    ("file", "sound", "broken"),
    [
        (
            "rollout/on_policy_distillation",
            "scored[-sample.response_length:]",
            "scored[-sample.response_length - 1:-1]",
        ),
        ("backends/megatron_utils/loss", "[number] - args.opd_kl_coef", "[number] + args.opd_kl_coef"),
        ("backends/megatron_utils/loss", "[student - teacher for", "[teacher - student for"),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_log_probs_and_penalty(loads: Loads, file: str, sound: str, broken: str, found: bool) -> None:
    """Log-probs of the token before; a penalty that rewards distance; the KL of the teacher against the student."""
    tree = files(fixed=True)
    path = f"slime/{file}.py"
    assert sound in tree[path]
    tree[path] = tree[path].replace(sound, broken if found else sound)
    target = loads(FRAMEWORK, tree)
    name, setting = ("post_process_rewards", "default") if "distil" in file else (PENALTY, "grpo, distilled")
    check_verdict(REF001, bound(FRAMEWORK, target)[name, setting], setting, target, found=found)


@pytest.mark.parametrize("module", ["slime/rollout", "examples/on_policy_distillation"])
@pytest.mark.parametrize(
    ("request_", "found"),
    [('"input_ids": sample.tokens', False), ('"text": sample.prompt + sample.response', True)],
    ids=["token ids", "text"],
)
def test_scored_tokens(loads: Loads, module: str, request_: str, found: bool) -> None:
    """A teacher that gets the text of a response tokenizes it anew; it was an example before it was in the package."""
    tree = files(fixed=True)
    source = tree.pop("slime/rollout/on_policy_distillation.py")
    assert '"input_ids": sample.tokens' in source
    tree[f"{module}/on_policy_distillation.py"] = source.replace('"input_ids": sample.tokens', request_)
    target = loads(FRAMEWORK, tree)
    check_verdict(
        PLC004, bound(FRAMEWORK, target)["reward_func", "sampled tokens"], "sampled tokens", target, found=found
    )


PENALTY = "apply_opd_kl_to_advantages"

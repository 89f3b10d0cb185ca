"""Messages about the arguments of a user's function."""

import sys
from pathlib import Path

import pytest
import torch

from rl_sentinel.adapters.kit.argument_messages import describe_arguments, lookup_hint, unknown_message
from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.documented_columns import documented_columns
from rl_sentinel.adapters.kit.parameter_uses import Use
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.adapters.kit.user_layouts import function_codec
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.errors import Absent, Unbindable


def test_unknown_parameters_are_named_at_once() -> None:
    """One line proposes a binding for each."""
    message = unknown_message("mine", {"color": False, "old_seq_lps": False})
    assert message.startswith(
        "mine has the parameters 'color', 'old_seq_lps' of unknown name: bind each of them, as in bind={"
    )
    assert '"old_seq_lps": "old_logprob"' in message
    assert '"zq": lambda batch: ...' in unknown_message("mine", {"zq": False, "old_seq_lps": False})
    assert unknown_message("mine", {"zq": False}).startswith("mine has the parameter 'zq' of unknown name")


def test_what_was_passed() -> None:
    """Each parameter with its column and shape, or its value."""
    codecs = {"scores": codec_of("reward"), "masks": codec_of("mask"), "gamma": Constant(0.9)}
    passed = {"scores": torch.zeros(2), "masks": torch.ones(2, 3), "gamma": 0.9}
    assert describe_arguments(codecs, passed) == "scores=reward[2], masks=mask[2, 3], gamma=0.9"


@pytest.mark.parametrize(
    ("path", "why", "hint"),
    [
        ("hinted.advantage", Absent(), ": the nearest is 'advantages'"),
        ("hinted.zzz", Absent(), ", expected one of advantages"),
        ("absent.advantages", Absent(), ""),
        ("statistics.mean", Unbindable(), ": rename the file, because a standard module has its name"),
        ("hinted.advantages", Unbindable(), ""),
    ],
)
def test_lookup_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, why: Unbindable, hint: str) -> None:
    """The nearest name of the module; a standard module that shadows the file."""
    (tmp_path / "hinted.py").write_text("def advantages(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hinted", raising=False)  # of another test's folder
    assert lookup_hint(Target(tmp_path), path, why) == hint


@pytest.mark.parametrize(
    ("path", "proposed"),
    [
        ("final_reward", '"reward"'),
        ("row.verifier_reward", '"reward"'),
        ("my_old_logprobs", '"old_logprob"'),
        ("next_values", "lambda batch: ..."),
        ("reward_std", "lambda batch: ..."),
        ("outputs", "lambda batch: ..."),
        ("my_sampling_logp", '"rollout_logprob"'),
        ("previous_logprobs", '"old_logprob"'),
        ("initial_logprobs", '"ref_logprob"'),
        ("acum_steps", '"accum_steps"'),
        ("cliprng", '"cliprange"'),
        ("deltas", "lambda batch: ..."),
        ("row.zq", "lambda batch: ..."),
        ("config.zq", "NUMBER"),
        ("config.adv_eps", "NUMBER"),
    ],
)
def test_a_proposal_is_the_column_that_the_name_contains(path: str, proposed: str) -> None:
    """Of a number, its known name; an item of a dict is made of the batch, an attribute is a number."""
    assert f'bind={{"{path}": {proposed}}}' in unknown_message("mine", {path: path.startswith("config")})


def test_no_column_is_proposed_twice() -> None:
    """Neither to two unknown parameters, nor beside a known one that has it."""
    twice = unknown_message("mine", {"my_values": False, "your_values": False})
    assert 'bind={"my_values": "value", "your_values": lambda batch: ...}' in twice
    assert twice.endswith("; the column of 'your_values' (no second \"value\") is unknown")
    beside = unknown_message("mine", {"my_values": False, "my_rewards": False}, [codec_of("value"), Constant(0.9)])
    assert 'bind={"my_values": lambda batch: ..., "my_rewards": "reward"}' in beside


@pytest.mark.parametrize(
    ("path", "use", "proposed", "choice"),
    [
        ("args.kl_type", ("text", ("k1", "k2")), "TEXT", "; args.kl_type is a text: \"'k1'\" or \"'k2'\""),
        ("args.advantage_estimator", None, "TEXT", "; args.advantage_estimator is a text, as in \"'mean'\""),
        ("cfg.use_kl_loss", None, "FLAG", "; cfg.use_kl_loss is True or False"),
        ("cfg.standard_kl", ("flag", ()), "FLAG", "; cfg.standard_kl is True or False"),
        ("cfg.rollout.n", ("number", ()), '"group_size"', ""),
        ("prompt_length", ("number", ()), "1", ""),
        ("reward_size", ("number", ()), "NUMBER", ""),
        ("num_groups", None, "lambda batch: int(batch.group.max()) + 1", ""),
    ],
)
def test_a_plain_value_is_no_column(path: str, use: Use | None, proposed: str, choice: str) -> None:
    """Whatever column its name contains; only the user knows which text or flag the claim means."""
    message = unknown_message("mine", {path: True}, uses={} if use is None else {path: use})
    assert f'bind={{"{path}": {proposed}}}' in message
    assert message.endswith(f"docs/own-functions.md){choice}")


def test_beside_a_model_inputs_are_its_tokens() -> None:
    """Whether targets are shifted, only the user knows."""
    message = unknown_message("mine", {"inputs": False, "targets": False}, [codec_of("model")])
    assert 'bind={"inputs": "input_ids", "targets": lambda batch: ...}' in message


def test_a_proposal_for_tokens_is_no_reward_and_one_beside_a_model_is_its_sequence() -> None:
    assert '"sequence_ids": lambda batch: ...' in unknown_message("mine", {"sequence_ids": False})
    passed = [codec_of("model")]
    assert '"sequence_ids": "input_ids"' in unknown_message("mine", {"sequence_ids": False}, passed)


def test_short_names_beside_log_probs() -> None:
    passed = [codec_of("logprob")]
    assert '{"logq": "ref_logprob", "A": "advantage"}' in unknown_message("mine", {"logq": False, "A": False}, passed)


def test_a_docstring_proposes_columns_with_their_axes() -> None:
    def mine(r: object, g: object, color: object) -> None:
        """r: [G, K] rewards, g: prompt ids of shape (B,), color: of the plot."""

    documented = documented_columns(mine, ["r", "g", "color"])
    assert documented == {"r": "reward[G K]", "g": "group"}
    assert '"r": "reward[G K]"' in unknown_message("mine", {"r": False}, (), {}, documented)


def test_a_placeholder_is_refused_in_words() -> None:
    with pytest.raises(Unbindable, match=r"^a function in bind returns the placeholder `\.\.\.`, expected an argument"):
        function_codec(lambda _: ..., probe_batch())

"""Parameters by role: what a parameter is called decides what it is."""

from collections.abc import Callable
from functools import wraps

import pytest

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.roles import by_role, role_of, roles_of, similar_names, takes
from rl_sentinel.adapters.kit.value_codecs import Constant

CODECS = {"token_rewards": TokenRewards(), "mask": Column("mask"), "values": Column("value")}


def _estimator(token_level_rewards: int, eos_mask: int, *rest: int, index: int = 9, epsilon: float = 0.5) -> None: ...


def test_each_parameter_gets_the_codec_of_its_role() -> None:
    """A parameter whose role has no codec keeps its default; a codec that no parameter has is not passed."""
    assert by_role(_estimator, CODECS) == {"token_level_rewards": TokenRewards(), "eos_mask": Column("mask")}
    assert by_role(_estimator, {"group": Constant(3)}) == {"index": Constant(3)}


def test_values_beside_predictions_are_the_old_ones() -> None:
    """Alone they are the critic's."""
    assert roles_of(["values", "mask"]) == {"values": "values", "mask": "mask"}
    assert roles_of(["values", "vpreds"]) == {"values": "old_value", "vpreds": "value_prediction"}


def test_unknown_names_have_no_role() -> None:
    """The most similar names are suggested."""
    assert role_of("color") == ""
    assert similar_names("reward_mask")[0] in {"response_mask", "reward", "rewards", "loss_mask"}


def test_a_decorated_function_has_the_parameters_of_the_wrapped_one() -> None:
    """Decorators that use functools.wraps hide nothing."""

    def wrapping(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def inner(*args: object, **more: object) -> None:
            function(*args, **more)

        return inner

    assert set(by_role(wrapping(_estimator), CODECS)) == {"token_level_rewards", "eos_mask"}
    assert takes(wrapping(_estimator), "group")
    assert not takes(_estimator, "values")


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (["newlogprob", "b_logprobs", "mb_advantages"], ["logprob", "old_logprob", "advantage"]),
        (["newvalue", "b_values", "b_returns"], ["value_prediction", "old_value", "returns"]),
        (["b_values", "rewards"], ["values", "reward"]),
        (["sampling_logprobs", "vllm_logps"], ["rollout_logprob", "rollout_logprob"]),
        (["rollout_n", "num_samples_per_prompt_rollout"], ["group_size", "group_size"]),
        (["accum_steps", "current_gradient_accumulation_steps"], ["accumulation", "accumulation"]),
    ],
)
def test_names_of_other_trainers(names: list[str], roles: list[str]) -> None:
    """``b_`` is the buffer of the rollout: its log-probs and values are those before the update."""
    assert list(roles_of(names).values()) == roles


def test_affixes_of_mini_batches_and_tensors_are_passed_over() -> None:
    """An exact name comes first: ``b_logprobs`` are CleanRL's stored ones."""
    assert [role_of(name) for name in ("mb_advantages", "rewards_tensor", "b_logprobs", "batch_size")] == [
        "advantage",
        "reward",
        "old_logprob",
        "",
    ]

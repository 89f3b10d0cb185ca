"""The whole test of a function: its stage and its algorithm."""

from grpo.advantage import advantages

import rl_sentinel


def test_advantages() -> None:
    rl_sentinel.assert_sound(advantages, stage="advantage", algorithm="grpo")

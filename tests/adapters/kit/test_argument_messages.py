"""Messages about the arguments of a user's function."""

import torch

from rl_sentinel.adapters.kit.argument_messages import describe_arguments, unknown_message
from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.value_codecs import Constant


def test_unknown_parameters_are_named_at_once() -> None:
    """One line proposes a binding for each."""
    message = unknown_message("mine", ["colour", "old_lps"])
    assert message.startswith(
        "mine has the parameters 'colour', 'old_lps' of unknown name: bind each of them, as in bind={"
    )
    assert '"old_lps": "old_logprob"' in message
    assert unknown_message("mine", ["old_lps"]).startswith("mine has the parameter 'old_lps' of unknown name")


def test_what_was_passed() -> None:
    """Each parameter with its column and shape, or its value."""
    codecs = {"scores": codec_of("reward"), "masks": codec_of("mask"), "gamma": Constant(0.9)}
    passed = {"scores": torch.zeros(2), "masks": torch.ones(2, 3), "gamma": 0.9}
    assert describe_arguments(codecs, passed) == "scores=reward[2], masks=mask[2, 3], gamma=0.9"

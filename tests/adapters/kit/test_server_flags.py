"""Flags and options of a server's command, and of an engine's keyword arguments."""

import pytest

from rl_sentinel.adapters.kit.server_flags import engine_options, flag_of_server, option_of_server, options_of_command


@pytest.mark.parametrize(
    ("words", "on"),
    [([], True), (["--enable-prefix-caching"], True), (["--no-enable-prefix-caching"], False)],
)
def test_flag_that_is_on_by_default(words: list[str], on: bool) -> None:
    """Only its opposite turns it off; the opposite of the flag is its negation."""
    options = options_of_command(words)
    assert flag_of_server(options, "enable_prefix_caching") is on
    assert flag_of_server(options, "no_enable_prefix_caching") is not on


def test_values_have_the_type_of_the_configuration() -> None:
    options = options_of_command(["serve", "--seed", "5", "--dtype", "float16", "--eager", "--path", "a", "b"])
    assert [option_of_server(options, *pair) for pair in (("seed", 7), ("dtype", "auto"), ("eager", False))] == [
        5.0,
        "float16",
        True,
    ]
    assert options["path"] == "a b"
    assert option_of_server(options, "absent", 7) is None


def test_flags_that_are_left_out_have_the_default_of_the_engine() -> None:
    """Prefix caching is on by default, eager mode is off; a flag that arrives is taken as it is."""
    places = {"enable_prefix_caching": "cache", "enforce_eager": "eager"}
    options = {"cache": False, "eager": False}
    assert engine_options({}, options, places) == {"enable_prefix_caching": 1.0, "enforce_eager": 0.0}
    assert engine_options({"enable_prefix_caching": False, "enforce_eager": True}, options, places) == {
        "enable_prefix_caching": 0.0,
        "enforce_eager": 1.0,
    }

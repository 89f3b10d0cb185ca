"""Columns that a docstring gives to parameters of unknown names."""

from typing import Any

from rl_sentinel.adapters.kit.documented_columns import documented_columns


def _read(text: str, name: str = "x", *, only_clear: bool = False) -> str:
    def function(x: Any, y: Any) -> Any:
        return x, y

    function.__doc__ = text
    return documented_columns(function, [name], only_clear=only_clear).get(name, "")


def test_the_first_known_name_of_an_entry_is_the_column() -> None:
    """Fillers and brackets before it do not count."""
    assert _read("x: [B, T] the tensor of advantages") == "advantage[B T]"
    assert _read("x (Tensor): a float, rewards per response") == "reward"
    assert _read("x: id of the prompt; y: rewards") == ""
    assert _read("x: prompt id of each response") == "group"


def test_an_entry_ends_where_the_next_begins() -> None:
    """The rewards belong to the other parameter."""
    assert _read("x: unknown; y: rewards", "x") == ""
    assert _read("x: unknown; y: rewards", "y") == "reward"


def test_log_probs_of_another_policy() -> None:
    """The words after the log-probs name the policy; two policies are not clear."""
    assert _read("x: log-probs of the reference model") == "ref_logprob"
    assert _read("x: log-probs of the old and the reference policy") == ""


def test_a_noun_after_the_name_is_another_quantity() -> None:
    """Only where clear entries are asked for; a proposal may be less certain."""
    assert _read("x: reward model path", only_clear=True) == ""
    assert _read("x: reward of each response", only_clear=True) == "reward"

"""The columns of a counterexample that a report shows."""

from report_fixtures import evidence
from rl_sentinel.report.scenario import conditions, scenario


def test_length_is_shown_where_the_mask_does_not_tell_it() -> None:
    stored = evidence()
    columns = stored["constructed_scenario"]["batch"]
    columns["mask"]["values"], columns["length"]["values"] = [[True, False], [True, True]], [2, 2]
    columns["value"] = {"dtype": "float32", "values": [[0.0, 1.0], [0.0, 1.0]]}
    assert {"length", "value"} <= {name for name, _ in scenario(stored)}
    assert "value" not in {name for name, _ in scenario(stored | {"reads": ["reward", "mask"]})}
    columns["mask"]["values"] = [[True, True], [True, True]]
    assert "length" not in {name for name, _ in scenario(stored)}


def test_changed_cell_is_shown_before_and_after() -> None:
    stored = evidence(reads=["mask"])
    stored["expectation"]["change"]["cells"] = 3
    assert dict(scenario(stored))["reward"] == "[1, 0 -> 1]  (and 2 more cells)"


def test_excluded_rows_are_named_beside_the_mask() -> None:
    stored = evidence(reads=["mask", "reward"])
    assert dict(scenario(stored)) == {"mask": "[[1], [0]]  (row 1: padding)", "reward": "[1, 0 -> 1]"}
    stored["constructed_scenario"]["batch"]["excluded"]["values"] = [5, 5]
    assert dict(scenario(stored))["mask"] == "[[1], [0]]  (row 1: rejected)"  # a row that trains is not rejected
    stored["constructed_scenario"]["batch"]["mask"]["values"] = [[0], [0]]
    assert dict(scenario(stored))["mask"] == "[[0], [0]]  (rows 0, 1: rejected)"
    stored["expectation"]["change"] = {"column": "excluded", "cell": [0], "before": 0.0, "after": 5.0, "cells": 1}
    assert dict(scenario(stored))["excluded"] == "[0 -> 5, 5]"
    assert dict(scenario(stored))["mask"] == "[[0], [0]]"


def test_mask_is_left_out_where_it_says_nothing() -> None:
    stored = evidence(reads=["reward"])
    columns = stored["constructed_scenario"]["batch"]
    columns["excluded"]["values"] = [0, 0]
    assert "mask" in dict(scenario(stored))
    columns["mask"]["values"] = [[True], [True]]
    assert "mask" not in dict(scenario(stored))
    assert "mask" in dict(scenario(stored | {"reads": ["reward", "mask"]}))


def test_rows_without_a_score_are_shown() -> None:
    stored = evidence()
    assert "scored" not in dict(scenario(stored))
    stored["constructed_scenario"]["batch"]["scored"]["values"] = [True, False]
    assert dict(scenario(stored))["scored"] == "[1, 0]"


def test_rewards_that_are_all_zero_are_left_out() -> None:
    stored = evidence()
    columns = stored["constructed_scenario"]["batch"]
    columns["reward"]["values"] = [0.0, 0.0]
    columns["value"] = {"dtype": "float32", "values": [[0.0], [0.0]]}
    assert {"reward", "value"} & dict(scenario(stored)).keys() == {"reward"}
    columns["value"]["values"] = [[0.0], [0.5]]
    assert "value" in dict(scenario(stored))


def test_conditions_name_what_the_responses_need() -> None:
    """Rejected responses, padding rows, untrained tokens inside of a response; nothing else."""
    stored = evidence()
    columns = stored["constructed_scenario"]["batch"]
    columns["mask"]["values"], columns["length"]["values"] = [[True, True], [True, False]], [2, 1]
    columns["excluded"]["values"] = [0, 0]
    assert conditions(stored) == ""
    columns["length"]["values"] = [2, 2]
    assert conditions(stored) == "with an untrained token in a response"
    columns["mask"]["values"], columns["excluded"]["values"] = [[True, True], [False, False]], [0, 5]
    assert conditions(stored) == "with a rejected response"
    columns["excluded"]["values"] = [0, 1]
    assert conditions(stored) == "with a padding row"


def test_logits_and_tokens_are_shown_where_nothing_else_is_read() -> None:
    stored = evidence(reads=["logits", "token", "mask"])
    columns = stored["constructed_scenario"]["batch"]
    columns["logits"] = {"dtype": "float32", "values": [[[0.0, 1.0]], [[2.0, 0.0]]]}
    columns["token"] = {"dtype": "int64", "values": [[1], [0]]}
    assert {"logits", "token"} <= dict(scenario(stored)).keys()
    assert not {"logits", "token"} & dict(scenario(stored | {"reads": ["logits", "token", "mask", "reward"]})).keys()


def test_mask_is_shown_where_nothing_else_is() -> None:
    stored = evidence(reads=["length"])
    stored["expectation"]["change"] = None
    columns = stored["constructed_scenario"]["batch"]
    columns["excluded"]["values"], columns["mask"]["values"] = [0, 0], [[True], [True]]
    assert dict(scenario(stored)) == {"mask": "[[1], [1]]"}

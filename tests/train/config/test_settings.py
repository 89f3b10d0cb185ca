"""The tables of a recipe have defaults that train, and reject values out of range."""

import pydantic
import pytest

from rl_sentinel.train.config.settings import CompletionsSettings, EvaluationSettings, Table


def test_tables_reject_unknown_keys_and_other_types() -> None:
    assert CompletionsSettings().every == 1
    assert EvaluationSettings(every=5).best == "accuracy"
    for values in ({"every": 0}, {"every": 1.5}, {"every": 1, "task": 3}, {"every": 1, "k": (0,)}):
        with pytest.raises(pydantic.ValidationError):
            EvaluationSettings.model_validate(values)
    assert all(kind.model_config["frozen"] for kind in Table.__subclasses__())

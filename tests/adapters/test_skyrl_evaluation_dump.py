"""SkyRL's records of an evaluation, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.evaluation_dump import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

DUMP = """
    import json

    def dump_per_dataset_eval_results(folder, tokenizer, output, sources, environments, extras, metrics):
        for n, source in enumerate(sources):
            first, last = tokenizer.decode(output["prompt_token_ids"][n]), tokenizer.decode(output["response_ids"][n])
            record = {"input_prompt": LAST, "output_response": first if LAST is last else last}
            record |= {"score": output["rewards"][n], "stop_reason": output["stop_reasons"][n]}
            record |= {"env_class": environments[n], "env_extras": extras[OTHER], "data_source": source}
            with (folder / f"{source}.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\\n")
"""


def _bound(loads: Loads, last: str = "first", other: str = "n") -> tuple[Target, Boundary]:
    target = loads(
        FRAMEWORK, {"skyrl/train/utils/trainer_utils.py": DUMP.replace("LAST", last).replace("OTHER", other)}
    )
    return target, the_only(boundaries(target))


@pytest.mark.parametrize(
    ("last", "other", "found"), [("first", "n", False), ("last", "n", True), ("first", "-1-n", True)]
)
def test_records(loads: Loads, last: str, other: str, found: bool) -> None:
    """Prompt and response under each other's key, and records with another row's task, are found."""
    target, boundary = _bound(loads, last, other)
    check_verdict(PLC004, boundary, "default", target, found=found)


def test_round_trip(loads: Loads) -> None:
    check_round_trip(*_bound(loads))


def test_release_without_records(loads: Loads) -> None:
    """An older release writes other keys."""
    tree = {"skyrl/train/utils/trainer_utils.py": "def dump_per_dataset_eval_results(folder): ..."}
    assert list(boundaries(loads(FRAMEWORK, tree))) == []

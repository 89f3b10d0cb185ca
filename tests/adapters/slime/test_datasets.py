"""slime's data sets, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import answering, judged_at
from rl_sentinel.adapters.slime import FRAMEWORK, datasets
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

Loads = Callable[..., Target]

DATA = """
    import json
    import pathlib
    import re
    from types import SimpleNamespace

    def _parse_generalized_path(path):
        found = re.match("(.*)@\\\\[(-?[0-9]*):]$", path)
        return (found[1], int(found[2])) if found else (path, 0)

    class Dataset:
        def __init__(self, path, tokenizer, max_length, *, prompt_key, label_key, metadata_key):
            file, start = _parse_generalized_path(path)
            rows = [json.loads(line) for line in pathlib.Path(file).read_text().splitlines()][start:]
            rows = [row for row in rows if max_length is None or LENGTH <= max_length]
            keys = {"prompt": prompt_key, "label": label_key, "metadata": metadata_key}
            self.samples = [SimpleNamespace(**{name: row[key] for name, key in keys.items()}) for row in ORDER]
"""


def _bound(loads: Loads, **words: str) -> tuple[Target, Boundary]:
    source = DATA
    for name, word in {"LENGTH": "len(tokenizer.encode(row[prompt_key]))", "ORDER": "rows", **words}.items():
        source = source.replace(name, word)
    target = loads(FRAMEWORK, {"slime/utils/data.py": source})
    (boundary,) = datasets.boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert set(boundary.settings) == set(datasets.FAMILIES)
    assert answering({("data", setting): boundary for setting in boundary.settings}, target) == []


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (DAT002, "up to a length", {"LENGTH": "len(row[prompt_key])"}),
        (DAT001, "default", {"ORDER": "rows[::-1]"}),
        (DAT002, "last rows", {"ORDER": "rows[1:]"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(
    loads: Loads,
    law: Law,
    setting: str,
    broken: dict[str, str],
    found: bool,  # noqa: FBT001 - parametrised
) -> None:
    """A length in characters; another order; one row too few."""
    target, boundary = _bound(loads, **(broken if found else {}))
    judgement = judged_at(law, boundary, setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found

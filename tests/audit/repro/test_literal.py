"""Values become Python that reads back."""

import math
from argparse import Namespace
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_sentinel.audit.repro.literal import Names, Unwritable, source


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([[1.5, math.inf]]),
        torch.tensor([1, 2]),
        torch.tensor([True]),
        0.25,
        1e-8,  # such as an epsilon
        None,
        "a",
        [1, (2.0,), ()],
        {"k": 1},
        Namespace(kl_coef=0.0),
        SimpleNamespace(args=Namespace(gamma=1.0)),
    ],
)
def test_source_reads_back(value: object) -> None:
    names = {"torch": torch, "np": np, "Namespace": Namespace, "SimpleNamespace": SimpleNamespace}
    back = eval(source(value, Names({})), names)  # noqa: S307 - our own text
    if isinstance(value, torch.Tensor):
        assert torch.equal(back, value)
        assert back.dtype == value.dtype
    else:
        assert back == value


def test_labels_read_back() -> None:
    names = Names({})
    back = eval(source(np.array(["a", "b"], dtype=object), names), {"np": np})  # noqa: S307 - our own text
    assert back.tolist() == ["a", "b"]
    assert back.dtype == object
    assert list(names.imports) == ["import numpy as np"]


def test_what_cannot_be_written_is_said() -> None:
    with pytest.raises(Unwritable, match="a value of type OrderedDict cannot be written"):
        source(OrderedDict(), Names({}))


@pytest.mark.parametrize(
    ("path", "name", "line"),
    [
        (
            "rl_sentinel.audit.repro.literal.math.isfinite",
            "math.isfinite",
            "from rl_sentinel.audit.repro.literal import math",
        ),
        (
            "rl_sentinel.audit.repro.literal.Names.imported",
            "Names.imported",
            "from rl_sentinel.audit.repro.literal import Names",
        ),
        ("house.rules.scaled", "scaled", "from house.rules import scaled"),
    ],
)
def test_name_is_imported_from_its_module(path: str, name: str, line: str) -> None:
    """A path may go on through what a module imports, which is no module of a package."""
    names = Names({})
    assert names.imported(path) == name
    assert list(names.imports) == [line]

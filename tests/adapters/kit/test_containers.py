"""Arguments that hold several: dicts, objects at their places, lists per row, the whole batch."""

from pathlib import Path
from types import SimpleNamespace

import torch

from adapters.kit.by_hand import BATCH, MASK, SIZES
from rl_sentinel.adapters.kit.codecs import Column, Lengths, WholeBatch
from rl_sentinel.adapters.kit.containers import EachRow, Namespace, Object, Table
from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, IfSet, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Inputs

NOWHERE = Target(Path("/nowhere"))
INPUTS = Inputs(BATCH, {"clip": 0.2})


def test_a_table() -> None:
    """What the case does not set is left out, and what a live table lacks is absent."""
    table = Table({"rewards": Column("reward"), "clip": Knob("clip"), "other": IfSet("other"), "mask": Column("mask")})
    assert set(table.put(INPUTS)) == {"rewards", "clip", "mask"}
    live = {"rewards": torch.tensor([1.0]), "clip": 0.5, "unknown": 3}
    assert (table.take(live, table.sizes(live)), table.knobs(live)) == ({"reward": live["rewards"]}, {"clip": 0.5})
    assert table.columns == {"reward", "mask"}
    assert [value is live["rewards"] for _, value in table.references(live)] == [True]


def test_what_one_part_loses_another_may_give_back() -> None:
    """Only the other column is unreadable."""
    lossy = Computed(frozenset({"reward", "logprob"}), lambda _inputs: 0, "lost")
    assert Table({"sum": lossy, "rewards": Column("reward")}).unreadable == {"logprob": "lost"}


def test_an_object() -> None:
    """Made by position and by name; its parts are read where they are."""
    made = Object("types.SimpleNamespace", {"clip": Knob("clip"), "mode": Constant("mean")})
    value = evaluate(NOWHERE, made.put(INPUTS), StepResults())
    assert (value, made.knobs(value)) == (SimpleNamespace(clip=0.2, mode="mean"), {"clip": 0.2})
    assert Namespace(clip=Knob("clip")).make == "argparse.Namespace"
    parts = {"0": Knob("clip"), "whole": Table({"mode": Knob("mode")})}
    elsewhere = Object("made.Call", parts, {"0": "args.1.low", "whole": ""})
    live = SimpleNamespace(args=(0, SimpleNamespace(low=0.3)))
    assert elsewhere.put(INPUTS).args == (0.2,)
    assert elsewhere.get(live, "0") == 0.3
    assert elsewhere.get(live, "whole") is live
    assert elsewhere.get(live, "absent") is None


def test_a_list_of_rows() -> None:
    """Each item is made of its row alone."""
    item = Table({"reward": Cell("reward"), "logprob": RowTokens("logprob")})
    live = [{"reward": 1.5, "logprob": [-1.0, -2.0, -3.0]}, {"reward": -2.0, "logprob": [-4.0]}]
    rows = EachRow(item)
    assert rows.put(INPUTS) == live
    sizes = rows.sizes(live)
    assert sizes.rows == 2
    assert sizes.length is not None
    assert sizes.length.tolist() == [3, 1]
    columns = rows.take(live, sizes.merge(SIZES))
    assert columns["reward"].tolist() == [1.5, -2.0]
    assert columns["logprob"].tolist() == [[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]]


def test_the_whole_batch() -> None:
    """Every column comes back; those that are named count."""
    whole = WholeBatch(frozenset({"reward"}))
    assert whole.columns == {"reward"}
    assert whole.take(BATCH, whole.sizes(BATCH))["logprob"] is BATCH.logprob
    assert whole.sizes(BATCH).mask is MASK
    assert Lengths().put(INPUTS) == [3, 1]

"""Micro-batches of AReaL's call shapes, in words of our own: split, packed, padded, and what PLC004 finds there."""

import pytest
import torch

from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, by_setting, check_verdict, judged_at, rewritten
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.micro_batches import FAMILIES, KEYS, boundaries
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SPEC = """
    @dataclass
    class MicroBatchSpec:
        n_mbs: int = 1
        max_tokens_per_mb: int | None = None
"""

DATA = """
    from types import SimpleNamespace

    import torch
    from torch.nn.functional import pad

    def split_padded_tensor_dict_into_mb_list(data, spec):
        order = data["attention_mask"].sum(1).argsort(descending=True, stable=True)
        cuts = [cut for cut in order.tensor_split(spec.n_mbs) if len(cut)]
        images = data.pop("multi_modal_input", None)
        mbs = [{key: x[cut] for key, x in data.items()} for cut in cuts]
        for mb, cut in zip(mbs, cuts):
            mb.update({"multi_modal_input": [images[row] for row in ROWS]} if images else {})
        places = order.argsort() if KEEPS_ORDER else order
        return SimpleNamespace(mbs=mbs, backward_indices=places.tolist(), mb_spec=spec)

    def pack_tensor_dict(data):
        keep = data["attention_mask"].bool()
        ends = pad(keep.sum(1).cumsum(0), (1, 0)).int()
        wide = {key for key, x in data.items() if torch.is_tensor(x) and x.dim() > 1}
        return {key: x[keep] if key in wide else x for key, x in data.items()} | {"cu_seqlens": ends}

    def pad_mb_list(parts, pad_value=0.0, pad_to_maximum=False, seq_align_to=None):
        parts.padded_mbs, parts.padding_lengths = [], []
        for part in parts.mbs:
            tokens = int(part["cu_seqlens"][-1])
            to = parts.mb_spec.max_tokens_per_mb if pad_to_maximum else tokens + (tokens % 2)
            more = to - tokens
            long = {key for key, x in part.items() if torch.is_tensor(x) and len(x) == tokens}
            longer = {key: pad(x, (0, more), value=pad_value) if key in long else x for key, x in part.items()}
            if more or not SKIPS_EMPTY:
                longer["cu_seqlens"] = pad(part["cu_seqlens"], (0, 1), value=to)
            parts.padded_mbs.append(longer)
            parts.padding_lengths.append(more)
        return parts
"""


def _bound(
    loads: Loads, *, skips_empty: bool = True, keeps_order: bool = True, rows: str = "cut.tolist()"
) -> tuple[Target, dict[str, Boundary]]:
    words = {"SKIPS_EMPTY": str(skips_empty), "KEEPS_ORDER": str(keeps_order), "ROWS": rows}
    data = rewritten(DATA, words)
    tree = {"areal/__init__.py": "", "areal/api/cli_args.py": CONFIG + SPEC, "areal/utils/data.py": data}
    target = loads(FRAMEWORK, tree)
    found = by_setting(boundaries(target))
    assert set(found) == set(FAMILIES)
    return target, found


def test_release_that_aligns_nothing(loads: Loads) -> None:
    data = DATA.replace(", seq_align_to=None", "").replace("multi_modal_input", "other")
    tree = {"areal/__init__.py": "", "areal/api/cli_args.py": CONFIG + SPEC, "areal/utils/data.py": data}
    settings = [next(iter(b.settings)) for b in boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Boundary)]
    assert settings == ["number", "filled"]


@pytest.mark.parametrize("setting", FAMILIES)
def test_what_the_model_gets(loads: Loads, setting: str) -> None:
    """However the rows are cut and ordered, each comes back with its own tokens."""
    target, found = _bound(loads)
    columns = {"token": torch.tensor([[5, 6], [7, 0], [8, 9]]), "version": torch.tensor([[1, 2], [3, 0], [4, 4]])}
    mask = torch.tensor([[True, False], [True, False], [True, True]])
    batch = batch_of(mask, length=torch.tensor([2, 1, 2]), prompt_length=torch.tensor([1, 3, 2]), **columns)
    for cuts in (1, 2):
        case = Case(batch, setting=setting, layout=Layout(micro_batches=1 if setting == "filled" else cuts))
        run = execute(target, found[setting], inputs_of(found[setting], case))
        assert run.values["sequences"].item() == 3
        for name in KEYS:
            assert torch.equal(run.values[name], getattr(batch, name)), name


@pytest.mark.parametrize(("skips_empty", "found"), [(True, False), (False, True)])
def test_sequence_of_no_token(loads: Loads, skips_empty: bool, found: bool) -> None:
    """Padding of no token is no sequence."""
    target, every = _bound(loads, skips_empty=skips_empty)
    judgement = judged_at(PLC004, every["filled"], "filled", target)
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert judgement.found.expectation.sentence().startswith(
            "sequences is 3, expected 2: each row must be counted as one sequence"
        )


def test_rows_in_another_order(loads: Loads) -> None:
    target, every = _bound(loads, keeps_order=False)
    check_verdict(PLC004, every["number"], "number", target, found=True)


@pytest.mark.parametrize(("rows", "found"), [("cut.tolist()", False), ("range(len(cut))", True)])
def test_images_of_sequences(loads: Loads, rows: str, *, found: bool) -> None:
    """Images in the order of the batch, beside sequences in another order."""
    target, every = _bound(loads, rows=rows)
    check_verdict(DAT001, every["images"], "images", target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads)
    for boundary in every.values():
        check_round_trip(target, boundary)


def test_other_layout(loads: Loads) -> None:
    """A release that packs otherwise has no such boundary."""
    tree = {"areal/__init__.py": "", "areal/utils/data.py": DATA.replace("def pack_tensor_dict", "def pack")}
    assert list(boundaries(loads(FRAMEWORK, tree))) == []

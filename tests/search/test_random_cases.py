"""Random cases: the same from the same seed, and of all kinds."""

import torch

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.stored_columns import check_batch
from rl_sentinel.search import random_cases as cases_module
from rl_sentinel.search.random_cases import random_case, random_cases

MANY = [case.batch for case in random_cases(0, 300)]


def _same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


def test_a_seed_is_a_case() -> None:
    before = random_case(5).batch
    cases_module._batch.cache_clear()
    random_case(6)
    again = random_case(5).batch
    assert again is not before
    assert _same(again, before)
    assert not _same(random_case(6).batch, before)


def test_a_longer_list_begins_with_the_shorter() -> None:
    short, long = random_cases(3, 4, "edge"), random_cases(3, 9, "edge")
    assert [c.seed for c in long[:4]] == [c.seed for c in short]
    assert {c.setting for c in long} == {"edge"}
    assert len({c.seed for c in (*long, *random_cases(4, 9))}) == 18


def test_every_case_is_sound() -> None:
    for batch in MANY:
        check_batch(batch)
        assert 2 <= batch.rows <= 8
        assert 1 <= batch.width <= 6


def test_numbers_are_exact_in_every_dtype() -> None:
    """Eighths between -2 and 2; a policy gives no more than all its probability, and no token less than none."""
    for batch in MANY:
        for name in ("reward", "advantage", "value", "returns", "reward_parts", "logits"):
            column = getattr(batch, name)
            assert torch.equal((column * 8).round(), column * 8), name
            assert float(column.abs().max()) <= 2, name
        assert float(batch.logprob.max()) < 0
        assert bool((batch.pi_squared >= (2 * batch.logprob).exp() - 1e-6).all())


def test_all_kinds_are_met() -> None:
    sizes = [torch.unique(batch.group, return_counts=True)[1].tolist() for batch in MANY]
    gaps = [bool((b.mask[:, 1:] & ~b.mask[:, :-1] & b.mask[:, :-1].any(1, keepdim=True)).any()) for b in MANY]
    met = {
        "dead rows": sum(not bool(b.live.all()) for b in MANY),
        "long dead rows": sum(bool((~b.live & (b.length > 2)).any()) for b in MANY),
        "all rows live": sum(bool(b.live.all()) for b in MANY),
        "gaps": sum(gaps),
        "unequal groups": sum(len(set(s)) > 1 for s in sizes),
        "lone groups": sum(1 in s for s in sizes),
        "unequal lengths": sum(len(torch.unique(b.length)) > 1 for b in MANY),
        "some unscored": sum(not bool(b.scored.all()) for b in MANY),
        "interleaved": sum(len(torch.unique_consecutive(b.group)) > len(torch.unique(b.group)) for b in MANY),
    }
    assert min(met.values()) >= 20, met

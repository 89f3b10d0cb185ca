"""Mean logits that TRL's KTO logs over micro-batches and ranks, on a specimen of its call shapes."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.pair_logits import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005

PARTS, RANKS = "logged logits over micro-batches", "logged logits over ranks"

#: Where the specimen logs rewards, and what it logs after them: a mean, as many times as there are responses.
PLACE = "append(beta * ratios[rows].mean().item())"
KEPT = """
                logits = model(input_ids=inputs["ids"]).logits.mean((1, 2))[rows].detach()
                total, count = (
                    self.accelerator.{gather}(own.float().reshape(1)).sum() for own in (logits.sum(), rows.sum())
                )
                stored = self._metrics["train"]
                if side == "chosen":
                    stored["logits/chosen"] += [(total / count).item()] * {times}
                else:
                    stored["logits/rejected"] += [(total / count).item()] * {times}
"""


def _bound(loads: Loads, gather: str = "gather", times: str = "int(count)") -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    source = tree["trl/trainer/kto_trainer.py"]
    assert PLACE in source
    tree["trl/trainer/kto_trainer.py"] = source.replace(
        PLACE, PLACE + KEPT.replace("{gather}", gather).replace("{times}", times)
    )
    base = tree["trl/trainer/base.py"]
    device = 'device = torch.device("cpu")\n'
    tree["trl/trainer/base.py"] = base.replace(device, f"{device}        alone = staticmethod(torch.clone)\n")
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS})
    return target, by_setting(boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """Both forms bind, and every column survives the round trip."""
    target, bound = _bound(loads)
    assert set(bound) == {PARTS, RANKS}
    check_calls(target, bound.values())


@pytest.mark.parametrize(
    ("choices", "broken"),
    [({}, set()), ({"times": "1"}, {PARTS}), ({"gather": "alone"}, {RANKS})],
)
def test_split(loads: Loads, choices: dict[str, str], broken: set[str]) -> None:
    """A mean of means over micro-batches with unequal numbers of responses, and the mean of one rank alone."""
    target, bound = _bound(loads, **choices)
    found = set()
    for name, boundary in bound.items():
        judgement = judged_at(MET005, boundary, name, target)
        assert judgement.tried > 0
        found |= {name} if judgement.found is not None else set()
    assert found == broken

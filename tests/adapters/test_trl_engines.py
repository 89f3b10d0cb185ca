"""TRL's engines that sample, and its table of completions, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_engines_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, completions_table, sampling
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

OWN = "trl.trainer.grpo_trainer.GRPOTrainer._generate_single_turn"
VLLM = f"{OWN} -> trl.generation.vllm_generation.VLLMGeneration.generate"
TABLE = (
    "trl.trainer.grpo_trainer.GRPOTrainer._generate_and_score_completions -> trl.trainer.grpo_trainer.GRPOTrainer.log"
)


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    """The target, and (path, setting) to boundary."""
    target = loads(FRAMEWORK, files(**choices), overlay())
    every = [b for module in (sampling, completions_table) for b in module.boundaries(target)]
    return target, {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each engine binds, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert set(boundaries) == {
        (OWN, "options, transformers"),
        *((VLLM, f"{what}, {mode}") for what in ("options", "rows") for mode in ("server", "colocate")),
        (VLLM, "rows, an engine over ranks"),
        (TABLE, "table of completions"),
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "path", "setting", "choices"),
    [
        (CFG004, OWN, "options, transformers", {"heat": "args.top_p"}),
        (CFG004, VLLM, "options, server", {"nucleus": "1.0"}),
        (CFG004, VLLM, "options, colocate", {"nucleus": "temperature"}),
        (PLC004, VLLM, "rows, server", {"rank": "0"}),
        (PLC004, VLLM, "rows, an engine over ranks", {"shared": "prompts"}),
        (DAT001, TABLE, "table of completions", {"weights": "gather_object(made['advantages'].tolist())[::-1]"}),
    ],
)
def test_faults(  # noqa: PLR0913 - a case, and whether the tree has the fault
    loads: Loads, law: Law, path: str, setting: str, choices: dict[str, str], sound: bool
) -> None:
    """Options arrive under their own names, rows at their own ranks, advantages beside their completions."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    check_verdict(law, boundaries[path, setting], setting, target, found=not sound)

"""TRL's transfer of weights to vLLM, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, engine_weights
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

MODULE = """
    from functools import wraps

    def is_peft_model(model):
        raise RuntimeError("peft is asked here")

    def timed(method):
        @wraps(method)
        def call(self):
            return method(self)
        return call

    class VLLMGeneration:
        def _push_param_to_vllm(self, name, weight):
            if self.mode == "server":
                self.vllm_client.update_named_param(name, weight)
            else:
                self.llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights([(name, weight)])

        @timed
        def sync_weights(self):  # for FSDP, self._dist.is_fsdp; merges by merge_adapter()
            adapted = is_peft_model(self.model)
            if adapted:
                {merges}
            {first}
            for name, weight in list(self.model.state_dict().items()):
                weight = weight.full_tensor() if self._dist.is_fsdp else weight
                if adapted and (self.model.prefix in name or {skips} in name):
                    continue
                name = name.removeprefix("base_model.model.").replace(".base_layer", "")
                self._push_param_to_vllm(name.replace({saved}, ""), weight)
            {last}
            if adapted:
                self.model.unmerge_adapter()
"""

RESET = '(self.vllm_client if self.mode == "server" else self.llm).reset_prefix_cache()'

SOUND = {
    "merges": "self.model.merge_adapter()",
    "first": "pass",
    "skips": '"original_module"',
    "saved": '"modules_to_save.default."',
    "last": RESET,
}

ADAPTED = {f"weights, {mode}, {name}" for mode in engine_weights.MODES for name in ("adapters", "adapters, sharded")}
WHOLE = {f"weights, {mode}, whole" for mode in engine_weights.MODES}


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    tree = {
        "trl/__init__.py": "",
        "trl/generation/__init__.py": "",
        "trl/generation/vllm_generation.py": filled(MODULE, SOUND | choices),
    }
    target = loads(FRAMEWORK, tree, overlay())
    return target, by_setting(engine_weights.boundaries(target))


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both modes, with and without adapters."""
    target, boundaries = _bound(loads)
    assert set(boundaries) == ADAPTED | WHOLE
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, set()),
        ({"merges": "pass"}, ADAPTED),
        ({"saved": '"modules_to_save."'}, ADAPTED),
        ({"skips": '"no_such_module"'}, set()),  # the original has a name that the engine does not know
        ({"first": RESET, "last": "pass"}, ADAPTED | WHOLE),  # requests during the transfer fill the cache again
    ],
)
def test_weights(loads: Loads, choices: dict[str, str], found: set[str]) -> None:
    """The engine has the merged weights under its own names, and nothing of the weights before."""
    target, boundaries = _bound(loads, **choices)
    judged = {name: judged_at(PLC004, one, name, target) for name, one in boundaries.items()}
    assert all(judgement.tried > 0 for judgement in judged.values())
    assert {name for name, judgement in judged.items() if judgement.found is not None} == found

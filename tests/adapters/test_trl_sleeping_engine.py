"""TRL's vLLM with sleep mode, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.sleeping_engine import boundaries
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SETTING = "colocate, sleep mode"
GENERATION_PATH = "trl/generation/vllm_generation.py"

GENERATION = """
    class VLLMGeneration:
        def sync_weights(self):
            self.llm.wake_up(tags=["weights"])
            for name, weight in self.model.named_parameters():
                self.llm.load_weights([(name, weight)])
            self._llm_weights_sleeping = False

        def generate(self, prompts, images, num_generations, profiler=None):
            WAKE
            self.llm.wake_up(tags=["kv_cache"])
            done = self.llm.generate(prompts, sampling_params=SamplingParams(n=1), use_tqdm=False)
            self.llm.sleep(level=2)
            self._llm_weights_sleeping = True
            return [one.prompt_token_ids for one in done]
"""

ONLINE = """
    class OnlineDPOTrainer:
        def _move(self):
            for name, weight in self.model.named_parameters():
                self.llm.load_weights([(name, weight)])

        def _generate_vllm_colocate(self, prompts, images=None):
            assert self.args.vllm_enable_sleep_mode
            self.llm.wake_up(tags=["weights"])
            if CHANGED:
                self._move()
                self._last_loaded_step = self.state.global_step
            done = self.llm.generate(prompts, self.generation_config, use_tqdm=False)
            self.llm.sleep(level=2)
            return [list(own.outputs[n].token_ids) for n in range(2) for own in done]
"""

SYNCS = {"WAKE": "if self._llm_weights_sleeping: self.sync_weights()"}
WAKES = 'self.llm.wake_up(tags=["weights"])'


@pytest.mark.parametrize(
    ("words", "is_broken"),
    [
        (SYNCS, False),
        ({"WAKE": f'{WAKES}; self.llm.collective_rpc("reload_weights")'}, True),
        ({"WAKE": WAKES}, True),
    ],
    ids=["sound", "weights of the folder", "no weights"],
)
def test_weights_of_the_generation(loads: Loads, words: dict[str, str], *, is_broken: bool) -> None:
    target = loads(FRAMEWORK, {GENERATION_PATH: rewritten(GENERATION, words)})
    bound = the_bound(boundaries(target))
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, SETTING, target, found=is_broken)


@pytest.mark.parametrize(
    ("changed", "is_broken"), [("True", False), ("self.state.global_step != self._last_loaded_step", True)]
)
def test_weights_of_online_dpo(loads: Loads, changed: str, *, is_broken: bool) -> None:
    path = "trl/experimental/online_dpo/online_dpo_trainer.py"
    target = loads(FRAMEWORK, {path: rewritten(ONLINE, {"CHANGED": changed})})
    bound = the_bound(boundaries(target))
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, SETTING, target, found=is_broken)


def test_a_release_that_keeps_the_weights(loads: Loads) -> None:
    source = rewritten(GENERATION, SYNCS).replace("level=2", "level=1")
    assert list(boundaries(loads(FRAMEWORK, {GENERATION_PATH: source}))) == []

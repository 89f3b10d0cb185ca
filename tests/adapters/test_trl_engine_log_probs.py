"""The log-probs of the engines that TRL starts, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_engines_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.engine_log_probs import CORRECTION, WORKER, boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

COLOCATED = "trl.generation.vllm_generation.VLLMGeneration._init_vllm"

SERVE = """
    import os
    from dataclasses import dataclass

    @dataclass
    class ScriptArguments:
        model: str
        seed: int = 0

    def llm_worker(script_args, data_parallel_rank, master_port, connection):
        from vllm import LLM

        os.environ["VLLM_DP_RANK"] = str(data_parallel_rank)
        engine = LLM(model=script_args.model, seed=script_args.seed{mode})
        connection.send({{"status": "ready"}})
        while (command := connection.recv())["type"] != "shutdown":
            connection.send(getattr(engine, command["method"])(**command["kwargs"]))
"""

MODE = ', logprobs_mode="processed_logprobs"'


def _bound(loads: Loads, *, server: str = MODE, own: str = MODE) -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    place = "trl/generation/vllm_generation.py"
    tree[place] = tree[place].replace(
        'raise RuntimeError("an engine starts here")', f'self.llm = LLM(model="tiny"{own})'
    )
    tree["trl/trainer/grpo_config.py"] += f"        {CORRECTION}: bool = True\n"
    tree |= {"trl/scripts/__init__.py": "", "trl/scripts/vllm_serve.py": SERVE.format(mode=server)}
    target = loads(FRAMEWORK, tree, overlay())
    return target, {one.path: one for one in boundaries(target) if isinstance(one, Boundary)}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both engines bind, and every column survives the round trip."""
    target, bound = _bound(loads)
    assert set(bound) == {WORKER, COLOCATED}
    check_calls(target, bound.values())


@pytest.mark.parametrize("mode", [MODE, ""])
def test_temperature(loads: Loads, mode: str) -> None:
    """Raw log-probs, vLLM's default, are not those of the distribution that was sampled from."""
    target, bound = _bound(loads, server=mode, own=mode)
    for boundary in bound.values():
        check_verdict(REF001, boundary, next(iter(boundary.settings)), target, found=not mode)

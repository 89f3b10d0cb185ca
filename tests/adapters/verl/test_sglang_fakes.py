"""Workers that sample with SGLang, on a specimen in words of our own."""

import json

import pytest

from adapters.checks import Loads, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_worker_rollouts import CONFIG, PROTOCOL, ROWS
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, worker_rollouts
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SGLANG = """
    import asyncio
    import torch
    from sglang.srt.sampling.sampling_params import SamplingParams
    from verl.rows import assemble

    def padded(rows, width, value):
        return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])

    class SGLangRollout:
        def __init__(self, actor_module, config, processing_class, model_hf_config, device_mesh=None):
            self.config, self.pad = config, processing_class.pad_token_id
            self._init_distributed_env(device_mesh_cpu=device_mesh)
            self._init_inference_engine(False, actor_module, None)
            # supporting adding any sampling params from the config file
            known = [name for name in config if hasattr(SamplingParams(), name) WORDS]
            self.options = {"max_new_tokens": config.response_length} | {name: config[name] for name in known}

        def _init_distributed_env(self, device_mesh_cpu):
            raise RuntimeError("there is no cluster")

        def _init_inference_engine(self, trusted, path, port):
            raise RuntimeError("there is no engine")

        def generate_sequences(self, prompts):
            own = dict(self.options)
            if prompts.meta_info["validate"]:
                own |= self.config.val_kwargs
            requests = [list(row) for row in prompts.non_tensor_batch["raw_prompt_ids"]]
            asked = self._engine.async_generate(input_ids=requests, sampling_params=own, return_logprob=True)
            found = asyncio.get_event_loop().run_until_complete(asked)
            triples = [one["meta_info"]["output_token_logprobs"] for one in found]
            width = self.config.response_length
            tokens = padded([[token for _, token, _ in one] for one in triples], width, self.pad)
            logprobs = padded([[logprob for logprob, _, _ in one] for one in triples], width, FILL)
            ends = prompts.meta_info["eos_token_id"]
            return DataProto({**assemble(prompts, tokens, ends, self.config.n), "rollout_log_probs": logprobs}, {}, {})

    from verl.protocol import DataProto
"""

SOUND = {"WORDS": 'or "stop" in name', "FILL": "-1.0", "LAST": "1"}
TRAINER = "class RayPPOTrainer:\n    def fit(self, batch, gen_batch):\n        batch = batch.repeat(self.n)\n"


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    tree = {"verl/workers/rollout/sglang_rollout/sglang_rollout.py": SGLANG, "verl/rows.py": ROWS}
    tree = {file: rewritten(text, SOUND | broken) for file, text in tree.items()}
    tree |= {
        "verl/__init__.py": "from verl.protocol import DataProto",
        "verl/protocol.py": PROTOCOL,
        "verl/trainer/ppo/ray_trainer.py": TRAINER,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG, indent=2).replace('"', ""),
        "verl/trainer/config/_generated_ppo_trainer.yaml": json.dumps(CONFIG),
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, by_setting(worker_rollouts.boundaries(target))


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (PLC004, "rows, two of a prompt", {"LAST": "0"}),  # the end token is not covered
        (PLC004, "rows, two of a prompt", {"width, -1.0)": "width, -1.0).flip(1)"}),
        (CFG004, "options, stop words", {"WORDS": ""}),  # SGLang keeps them under another name
        (CFG004, "options, validation", {"own |= ": "own | "}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_rows_and_options(loads: Loads, law: Law, setting: str, broken: dict[str, str], *, found: bool) -> None:
    target, bound = _bound(loads, **(broken if found else {}))
    check_round_trips(target, bound.values())
    check_verdict(law, bound[setting], setting, target, found=found)

"""slime's generation, rollout loop and evaluation, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable
from types import ModuleType

import pytest

from adapters.checks import answering, judged_at
from rl_sentinel.adapters.slime import FRAMEWORK, evaluation, generation, rollout_loop
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

TYPES = """
    import enum
    from dataclasses import dataclass, field

    class Status(enum.Enum):
        PENDING, COMPLETED, ABORTED = "pending", "completed", "aborted"

    @dataclass
    class Sample:
        index: int = 0
        group_index: int = 0
        prompt: str = ""
        label: str = ""
        tokens: list = field(default_factory=list)
        response_length: int = 0
        reward: float = None
        loss_mask: list = None
        rollout_log_probs: list = field(default_factory=list)
        status: Status = Status.PENDING
"""

#: SPENT is the room that a request that goes on has used, ALL the samples of the hook, WHERE an option of evaluation.
ROLLOUT = """
    import asyncio
    import importlib
    from types import SimpleNamespace
    from slime.utils.http import get, post
    from slime.utils.tokens import load_tokenizer
    from slime.utils.data import Dataset
    from slime.utils.types import Status

    class Single(type):
        _instances = {}

        def __call__(cls, *args):
            return cls._instances.setdefault(cls, super().__call__(*args))

    class GenerateState(metaclass=Single):
        def __init__(self, args):
            self.tokenizer = load_tokenizer(args.hf_checkpoint)
            self.sampling_params = {"max_new_tokens": args.rollout_max_response_len}

    def function(path):
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)

    async def one(args, sample, params):
        if sample.status == Status.COMPLETED:
            return sample
        sample.tokens = sample.tokens or GenerateState(args).tokenizer.encode(sample.prompt)
        params["max_new_tokens"] -= SPENT
        answer = await post("http://server", {"input_ids": sample.tokens, "sampling_params": params})
        pairs = answer["meta_info"]["output_token_logprobs"]
        sample.tokens = sample.tokens + [pair[1] for pair in pairs]
        sample.rollout_log_probs += [pair[0] for pair in pairs]
        sample.response_length += len(pairs)
        stopped = answer["meta_info"]["finish_reason"]["type"] == "abort"
        sample.status = Status.ABORTED if stopped else Status.COMPLETED
        if not stopped:
            sample.reward = await function(args.custom_rm_path)(args, sample)
        return sample

    async def generate_and_rm_group(args, group, params):
        return [await one(args, sample, params.copy()) for sample in group]

    async def generate_rollout_async(args, number, source):
        data, seen = [], []
        while len(data) < args.rollout_batch_size:
            for group in source(args.over_sampling_batch_size):
                group = await generate_and_rm_group(args, group, GenerateState(args).sampling_params)
                seen.append(group)
                path = args.dynamic_sampling_filter_path
                if path is None or function(path)(args, group):
                    data.append(group)
        if args.rollout_all_samples_process_path is not None:
            function(args.rollout_all_samples_process_path)(args, ALL, source)
        return SimpleNamespace(samples=data)

    async def eval_rollout(args, number):
        rows = [sample for sample in Dataset(args.eval_prompt_data[1]).samples]
        params = {"max_new_tokens": 9, "temperature": args.WHERE}
        done = [await one(args, sample, dict(params)) for sample in rows]
        return {"task": {"rewards": [sample.reward for sample in done]}}, []
"""

MANAGER = """
    class RolloutController:
        def _convert_samples_to_train_data(self, samples):
            return {
                "tokens": [one.tokens for one in samples],
                "response_lengths": [one.response_length for one in samples],
                "rewards": [one.reward for one in samples],
                "loss_masks": [one.loss_mask or [1] * one.response_length for one in samples],
                "rollout_log_probs": [one.rollout_log_probs for one in samples],
                "partition": list(range(len(samples))),
            }
"""

RECEIVE = """
    import ray

    def process_rollout_data(args, sent, rank, size):
        return ray.get(sent.inner)
"""


def _bound(loads: Loads, module: ModuleType, **words: str) -> tuple[Target, dict[str, Boundary]]:
    source = ROLLOUT
    for name, word in {"SPENT": "sample.response_length", "ALL": "seen", "WHERE": "eval_temperature", **words}.items():
        source = source.replace(name, word)
    files = {
        "slime/utils/types.py": TYPES,
        "slime/utils/http.py": "async def post(*request): raise OSError\nasync def get(*request): raise OSError",
        "slime/utils/tokens.py": "def load_tokenizer(name): raise OSError(name)",
        "slime/utils/data.py": "class Dataset:\n    def __init__(self, path): raise OSError(path)",
        "slime/utils/arguments.py": "OPTIONS = '--eval-temperature'",
        "slime/rollout/sglang_rollout.py": source,
        "slime/ray/buffer.py": MANAGER,
        "slime/backends/utils/data.py": RECEIVE,
    }
    target = loads(FRAMEWORK, files)
    every = [b for b in module.boundaries(target) if isinstance(b, Boundary)]
    return target, {setting: b for b in every for setting in b.settings}


@pytest.mark.parametrize(
    ("module", "law", "setting", "broken"),
    [
        (generation, PLC004, "default", {"SPENT": "2 * sample.response_length"}),
        (rollout_loop, DAT002, "filtered", {"ALL": "data"}),
        (evaluation, CFG001, "command line", {"WHERE": "rollout_temperature"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads,
    module: ModuleType,
    law: Law,
    setting: str,
    broken: dict[str, str],
    found: bool,  # noqa: FBT001 - parametrised
) -> None:
    """A request that goes on with too little room; a hook that lacks dropped samples; an option of evaluation."""
    target, every = _bound(loads, module, **(broken if found else {}))
    judgement = judged_at(law, every[setting], setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found


@pytest.mark.parametrize("module", [generation, rollout_loop, evaluation])
def test_answers(loads: Loads, module: ModuleType) -> None:
    target, every = _bound(loads, module)
    assert answering({("specimen", setting): boundary for setting, boundary in every.items()}, target) == []

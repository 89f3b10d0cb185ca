"""A specimen of slime's generation, rollout loops and evaluation, as files of a source tree."""

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

#: SPENT is the room that a request that goes on has used, PREFIX what stands before its tokens, ALL the samples of the
#: hook, WHERE an option of evaluation.
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
        ids = sample.tokens or GenerateState(args).tokenizer.encode(sample.prompt)
        params["max_new_tokens"] -= SPENT
        wanted = {"return_logprob": args.use_token_output or True}
        answer = await post("http://server", {"input_ids": ids, "sampling_params": params, **wanted})
        pairs = answer["meta_info"]["output_token_logprobs"]
        sample.tokens = PREFIX + [pair[1] for pair in pairs]
        sample.rollout_log_probs += [pair[0] for pair in pairs]
        sample.response_length += len(pairs)
        stopped = answer["meta_info"]["finish_reason"]["type"] == "abort"
        sample.status = Status.ABORTED if stopped else Status.COMPLETED
        if not stopped:
            sample.reward = await function(args.custom_rm_path)(args, sample)
        return sample

    async def generate_and_rm_group(args, group, params):
        return [await one(args, sample, COPY) for sample in group]

    async def generate_rollout_async(args, number, source):
        data, seen = [], []
        while len(data) < args.rollout_batch_size:
            for group in source(args.over_sampling_batch_size):
                group = await generate_and_rm_group(args, group, GenerateState(args).sampling_params)
                seen.append(group)
                SHOWN
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
        key = KEY
        return {"task": {"rewards": [sample.reward[key] if key else sample.reward for sample in done]}}, []
"""

MANAGER = """
    class RolloutController:
        def _convert_samples_to_train_data(self, samples):
            key = self.args.reward_key
            return {
                "tokens": [one.tokens for one in samples],
                "response_lengths": [one.response_length for one in samples],
                "rewards": [one.reward[key] if key else one.reward for one in samples],
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

#: The worker generates all prompts that the source has; LIMIT is how many a rollout takes.
WORKER = """
    import asyncio
    import threading
    from slime.rollout.sglang_rollout import GenerateState, generate_and_rm_group
    from slime.utils.http import run
    from slime.utils.types import Status

    _global_worker = None

    class Worker:
        def __init__(self, args, source):
            self.args, self.source, self.ready = args, source, []
            threading.Thread(target=lambda: asyncio.run(self.work()), daemon=True).start()

        async def work(self):
            while True:
                for group in self.source.get_samples(8):
                    group = await generate_and_rm_group(self.args, group, GenerateState(self.args).sampling_params)
                    if any(sample.status == Status.ABORTED for sample in group):
                        self.source.add_samples([group])
                    else:
                        self.ready.append(group)
                await asyncio.sleep(1)

    async def collect(args, source):
        global _global_worker
        _global_worker = _global_worker or Worker(args, source)
        data = []
        while len(data) < args.rollout_batch_size:
            limit = LIMIT
            data += _global_worker.ready[:limit]
            del _global_worker.ready[:limit]
            await asyncio.sleep(0.05)
        return data[:args.rollout_batch_size]

    def generate_rollout_fully_async(args, number, source):
        return run(collect(args, source))
"""

#: Placeholder -> its text in the sound version.
SOUND = {
    "SPENT": "sample.response_length",
    "PREFIX": "ids",
    "COPY": "params.copy()",
    "ALL": "seen",
    "KEY": "args.eval_reward_key or args.reward_key",
    "SHOWN": "",
    "WHERE": "eval_temperature",
    "LIMIT": "args.rollout_batch_size - len(data)",
}


def files(**broken: str) -> dict[str, str]:
    """The tree; ``broken`` has other texts for placeholders."""
    rollout, worker = ROLLOUT, WORKER
    for name, text in {**SOUND, **broken}.items():
        rollout, worker = rollout.replace(name, text), worker.replace(name, text)
    return {
        "slime/utils/types.py": TYPES,
        "slime/utils/http.py": "async def post(*request): raise OSError\n"
        "async def get(*request): raise OSError\n"
        "def run(coroutine): raise OSError",
        "slime/utils/tokens.py": "def load_tokenizer(name): raise OSError(name)",
        "slime/utils/data.py": "class Dataset:\n    def __init__(self, path): raise OSError(path)",
        "slime/utils/arguments.py": "OPTIONS = '--eval-temperature'",
        "slime/rollout/sglang_rollout.py": rollout,
        "slime/rollout/fully_async_rollout.py": worker,
        "slime/ray/buffer.py": MANAGER,
        "slime/backends/utils/data.py": RECEIVE,
    }

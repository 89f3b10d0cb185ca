"""Call shapes of how TRL samples with an engine and logs completions, in words of our own."""

from adapters.trl_specimen import CONFIG
from adapters.trl_specimen import GRPO as SCORES
from adapters.trl_specimen import files as trainer_files

OPTIONS = """
        temperature: float = 1.0
        top_p: float = 1.0
        generation_kwargs: object = None
        vllm_mode: str = "colocate"
"""

ENGINE = """
    import torch

    def gather_object(objects):
        return objects

    def broadcast_object_list(objects, from_process):
        return objects

    class VLLMGeneration:
        def __init__(self, accelerator, mode, temperature, top_p, limit, others):
            self.accelerator, self.mode, self.others = accelerator, mode, others or {}
            self.options = {"temperature": temperature, "top_p": {nucleus}, "max_tokens": limit, "logprobs": 0}
            self.tensor_parallel_size, self.tp_group = 1, None
            self._init_vllm()

        def _init_vllm(self):
            raise RuntimeError("an engine starts here")

        def generate(self, prompts, count):
            if self.mode == "colocate":
                params = SamplingParams(n=1, **{**self.options, **self.others})
                own = prompts
                if self.tensor_parallel_size > 1:
                    parts = [None] * self.tensor_parallel_size
                    torch.distributed.all_gather_object(parts, own, group=self.tp_group)
                    prompts = [ids for part in parts for ids in part]
                asked = [{"prompt_token_ids": ids} for ids in prompts]
                outputs = self.llm.generate(asked, sampling_params=params, use_tqdm=False)
                rows = [row for output in outputs for row in output.outputs]
                if self.tensor_parallel_size > 1:
                    start = torch.distributed.get_rank(group=self.tp_group) * len({shared})
                    rows = rows[start : start + len(own)]
                logprobs = [[next(iter(one.values())).logprob for one in row.logprobs] for row in rows]
                return [row.token_ids for row in rows], logprobs
            everyone, rank = gather_object(prompts), self.accelerator.process_index
            sent = [None]
            if self.accelerator.is_main_process:
                sent = [
                    self.vllm_client.generate(
                        prompts=everyone[::count], n=count, generation_kwargs=self.others, **self.options
                    )
                ]
            broadcast_object_list(sent, from_process=0)
            mine = slice({rank} * len(prompts), ({rank} + 1) * len(prompts))
            logprobs = [[one[0] for one in row] for row in sent[0]["logprobs"]]
            return sent[0]["completion_ids"][mine], logprobs[mine]
"""

GRPO = """
    from collections import defaultdict, deque

    import torch
    from trl.generation.vllm_generation import VLLMGeneration
    from trl.trainer.grpo_scores import GRPOTrainer as Scores

    def gather_object(objects):
        return objects

    class Options(dict):
        to_dict = dict.copy

    class Frame(dict):
        def to_dict(self, form):
            return [dict(zip(self, row)) for row in zip(*self.values())]

    class GRPOTrainer(Scores):  # _metrics: {"train": defaultdict, "eval": defaultdict}
        def __init__(self, **parts):
            super().__init__(**parts)
            args = self.args
            self._logs = {name: deque(maxlen=2) for name in ("prompt", "completion", "advantages")}
            self._logs["rewards"] = defaultdict(lambda: deque(maxlen=2))
            if args.use_vllm:
                self.vllm_generation = VLLMGeneration(
                    self.accelerator,
                    args.vllm_mode,
                    temperature=args.temperature,
                    top_p=args.top_p,
                    limit=args.max_completion_length,
                    others=args.generation_kwargs,
                )
            options = {"max_new_tokens": args.max_completion_length, "temperature": {heat}, "top_p": args.top_p}
            self.generation_config = Options(**options, **(args.generation_kwargs or {}))

        def _generate_single_turn(self, prompt_ids, num_generations):
            logprobs = None
            if self.use_vllm:
                completion_ids, logprobs = self.vllm_generation.generate(prompt_ids, num_generations)
            else:
                ids = torch.tensor(prompt_ids)
                made = self.model.generate(ids, generation_config=self.generation_config)
                completion_ids = made[:, ids.shape[1]:].tolist()
            return prompt_ids, completion_ids, logprobs

        def _generate_and_score_completions(self, inputs):
            made = super()._generate_and_score_completions(inputs)
            prompts = [row["prompt"] for row in inputs]
            texts = [" ".join(f"w{token - 3}" for token in ids) for ids in self._generate(prompts)[1]]
            self._logs["prompt"].extend(gather_object(prompts))
            self._logs["completion"].extend(gather_object(texts))
            self._logs["rewards"]["first"].extend(gather_object(self.reward_funcs[0](prompts=prompts)))
            self._logs["advantages"].extend({weights})
            return made

        def log(self, logs, start_time=None):
            super().log(logs)
            if self.accelerator.is_main_process and self.log_completions and "wandb" in self.args.report_to:
                table = {
                    "step": [self.state.global_step] * len(self._logs["prompt"]),
                    "prompt": self._logs["prompt"],
                    "completion": self._logs["completion"],
                    **self._logs["rewards"],
                    "advantage": self._logs["advantages"],
                }
                wandb.log({"completions": wandb.Table(dataframe=Frame(table))})
"""

#: Place -> what stands there in a sound tree.
SOUND = {
    "nucleus": "top_p",
    "rank": "rank",
    "shared": "own",
    "heat": "args.temperature",
    "weights": 'gather_object(made["advantages"].tolist())',
}


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL with what is at the places of :data:`SOUND`."""
    texts = {"trl/generation/vllm_generation.py": ENGINE, "trl/trainer/grpo_trainer.py": GRPO}
    for name, part in (SOUND | choices).items():
        texts = {path: text.replace("{" + name + "}", part) for path, text in texts.items()}
    scores = SCORES.replace("{unweighted}", "").replace("{reduced}", "pass").replace("{trains}", "")
    config = CONFIG.format(name="GRPOConfig") + OPTIONS.lstrip("\n")
    return {
        **trainer_files(),
        "trl/generation/__init__.py": "",
        "trl/trainer/grpo_config.py": config,
        "trl/trainer/grpo_scores.py": scores,
        **texts,
    }

"""Call shapes of how TRL scores with several functions, counts, draws prompts and logs, in words of our own."""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GRPOConfig:
        output_dir: str = ""
        num_generations: int = 2
        gradient_accumulation_steps: int = 1
        beta: float = 0.0
"""

UTILS = """
    def nanstd(x):
        return x[~x.isnan()].std()
"""

GRPO = """
    import json
    import math
    from collections import defaultdict
    from types import SimpleNamespace

    import torch

    class State(SimpleNamespace):
        def save_to_json(self, path):
            with open(path, "w") as file:
                json.dump(vars(self), file)

        @classmethod
        def load_from_json(cls, path):
            with open(path) as file:
                return cls(**json.load(file))

    class Base:
        def log(self, logs, start_time=None):
            self.callback_handler.on_log(self.args, self.state, self.control, logs)

    class GRPOTrainer(Base):
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.reward_funcs, self.args, self.ref_model = model, reward_funcs, args, None
            self.accelerator, self.state, self.counted = SimpleNamespace(), State(num_input_tokens_seen=0), 0
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
            self.reward_weights = torch.ones(1)

        def _get_per_token_logps_and_entropies(self, model, ids, attention, logits_to_keep):
            raise RuntimeError("a model runs here")

        def _generate_single_turn(self, prompts, images):
            raise RuntimeError("an engine runs here")
            return prompt_ids, completion_ids

        def _generate_and_score_completions(self, inputs):
            prompts = [row["prompt"] for row in inputs]
            prompt_ids, completions = self._generate_single_turn(prompts, None)
            {holder} += sum(map(len, prompt_ids)) + sum(map(len, completions))
            self._metrics["train"]["num_tokens"] = [{holder}]
            rewards_per_func = torch.tensor([
                [x if x is not None else torch.nan for x in function(prompts)] for function in self.reward_funcs
            ])
            rewards = (rewards_per_func * self.reward_weights.unsqueeze(1)).nansum(0)
            if {leaves_out}:
                rewards[rewards_per_func.isnan().all(0)] = torch.nan
            groups = rewards.view(-1, self.num_generations)
            gaps = groups - groups.nanmean(1, keepdim=True)
            counts = (~groups.isnan()).sum(1, keepdim=True)
            deviations = ((gaps**2).nansum(1, keepdim=True) / (counts - 1)).sqrt()
            self._metrics["train"]["reward"].append(rewards.nanmean().item())
            return {"advantages": (gaps / (deviations + 1e-4)).nan_to_num(0.0).flatten()}

        def _get_train_sampler(self, dataset=None):
            generator = torch.Generator().manual_seed(self.args.seed)
            order = torch.randperm(len(self.train_dataset), generator={generator}).tolist()
            yield from (row for row in order for _ in range(self.num_generations))

        def log(self, logs, start_time=None):
            averages = {{}}
            for name, numbers in self._metrics["train" if self.model.training else "eval"].items():
                known = [one for one in numbers if {known}]
                averages[name] = sum(known) / len(known)
            super().log({{**logs, **averages}})  # of self._metrics[mode].items()
"""

#: Place -> what stands there in a sound tree.
SOUND = {
    "holder": "self.state.num_input_tokens_seen",
    "leaves_out": "True",
    "generator": "generator",
    "known": "not math.isnan(one)",
}


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL with what is at the places of :data:`SOUND`."""
    text = GRPO
    for name, part in (SOUND | choices).items():
        text = text.replace("{" + name + "}", part)
    return {
        "trl/__init__.py": "",
        "trl/trainer/utils.py": UTILS,
        "trl/trainer/grpo_config.py": CONFIG,
        "trl/trainer/grpo_trainer.py": text.replace("{{", "{").replace("}}", "}"),
    }

"""Call shapes of TRL's trainers in words of our own, and of the libraries that these are built from."""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class {name}:
        output_dir: str = ""
        use_cpu: bool = False
        bf16: bool = True
        report_to: object = None
        disable_tqdm: bool = False
        per_device_train_batch_size: int = 8
        gradient_accumulation_steps: int = 1
        steps_per_generation: int = 1
        num_generations: int = 8
        beta: float = 0.0
        epsilon: float = 0.2
        epsilon_high: object = None
        num_iterations: int = 1
        loss_type: str = "grpo"
        max_completion_length: int = 256
        mask_truncated_completions: bool = False
        scale_rewards: str = "group"
        normalize_advantages: bool = False
        reward_weights: object = None
        use_vllm: bool = False
        vllm_importance_sampling_cap: float = 2.0
"""

#: What both trainers share; an engine, a tokenizer and forward passes are never reached.
BASE = """
    from collections import defaultdict

    import torch

    class Trainer:
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.reward_funcs, self.args, self.tokenizer = model, reward_funcs, args, processing_class
            self.weight = (args.reward_weights or [1.0])[0]
            self.ref_model, self.rollout_func, self._metrics = None, None, {"train": defaultdict(list)}
            for name in ("beta", "num_generations", "use_vllm", "loss_type", "num_iterations", "scale_rewards"):
                setattr(self, name, getattr(args, name))
            self.low, self.high = 1 - args.epsilon, 1 + (args.epsilon_high or args.epsilon)

        def _generate_single_turn(self, prompt_ids, images):
            raise RuntimeError("an engine runs here")
            return completion_ids, logprobs

        def _get_per_token_logps_and_entropies(self, model, ids, attention, logits_to_keep):
            raise RuntimeError("a model runs here")

        def _generate(self, rows):
            if self.rollout_func is not None:
                output = self.rollout_func(rows, self)
                return output["completion_ids"], output["logprobs"], output["env_mask"]
            completions, logprobs = self._generate_single_turn([[4] for _ in rows], None)
            return completions, logprobs, None

        def _roll_out(self, inputs):
            completions, sampled, tools = self._generate(inputs)
            width = max(map(len, completions))
            mask = torch.tensor([[int(t < len(ids)) for t in range(width)] for ids in completions])
            if self.args.mask_truncated_completions:
                mask = mask * torch.tensor([[int(ids[-1] == 1)] for ids in completions])
            out = {"completion_mask": mask, "num_items_in_batch": mask.sum()}
            if tools is not None:
                tools = torch.tensor([row + [1] * (width - len(row)) for row in tools])
                out["num_items_in_batch"] = (mask * tools).sum()
            if self.use_vllm:
                old, _ = self._get_per_token_logps_and_entropies(self.model, None, None, width)
                sampled = torch.tensor([row + [0.0] * (width - len(row)) for row in sampled])
                out["importance_sampling_ratio"] = ((old - sampled) * mask).exp().clamp(
                    max=self.args.vllm_importance_sampling_cap
                )
            prompts = [row["prompt"] for row in inputs]
            rewards = self.reward_funcs[0](prompts=prompts, completions=completions)
            rewards = torch.tensor(rewards) * self.weight
            lengths = torch.tensor([float(len(ids)) for ids in completions])
            return out, rewards, lengths
"""

GRPO = """
    import torch
    from trl.trainer.base import Trainer

    class GRPOTrainer(Trainer):
        def _generate(self, prompts):  # the tokens of an environment come as "env_mask"
            return super()._generate(prompts)

        def _generate_and_score_completions(self, inputs):
            out, rewards, lengths = self._roll_out(inputs)
            self._metrics["train"]["reward"].append((rewards{unweighted}).mean().item())
            self._metrics["train"]["completions/mean_length"].append(lengths.mean().item())
            groups = rewards.view(-1, self.num_generations)
            centred = groups - groups.mean(1, keepdim=True)
            spread = 1.0 if self.scale_rewards == "none" else groups.std(1, keepdim=True) + 1e-4
            return {**out, "advantages": (centred / spread).nan_to_num().flatten()}

        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"]
            if "tool_mask" in inputs:
                mask = mask * inputs["tool_mask"]
            now, _ = self._get_per_token_logps_and_entropies(model, None, None, mask.shape[1])
            ratio = (now - inputs["old_per_token_logps"]).exp()
            weight = inputs["advantages"].unsqueeze(1)
            tokens = -torch.min(ratio * weight, ratio.clamp(self.low, self.high) * weight)
            if self.use_vllm:
                tokens = tokens * inputs["importance_sampling_ratio"]
            if self.beta:
                gap = inputs["ref_per_token_logps"] - now
                kl = gap.exp() - gap - 1
                tokens = tokens + self.beta * kl
                self._metrics["train"]["kl"].append(((kl * mask).sum() / mask.sum().clamp(min=1)).item())
            if self.loss_type == "dapo":
                return (tokens * mask).sum() / inputs["num_items_in_batch"].clamp(min=1)
            parts = self.current_gradient_accumulation_steps
            if self.loss_type == "grpo":
                return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).mean() / parts
            return (tokens * mask).sum() / (mask.shape[0] * self.args.max_completion_length) / parts  # "dr_grpo"
"""

RLOO = """
    import torch
    from trl.trainer.base import Trainer

    class RLOOTrainer(Trainer):
        def _generate_and_score_completions(self, inputs):
            out, rewards, lengths = self._roll_out(inputs)
            self._metrics["train"]["reward"].append((rewards{unweighted}).mean().item())
            self._metrics["train"]["completions/mean_length"].append(lengths.mean().item())
            groups = rewards.view(-1, self.num_generations)
            others = (groups.sum(1, keepdim=True) - groups) / (self.num_generations - 1)
            return {**out, "advantages": (groups - others).flatten()}

        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"]
            now, _ = self._get_per_token_logps_and_entropies(model, None, None, mask.shape[1])
            ratio = ((now * mask).sum(1) - inputs["old_logps"]).exp()
            weight = inputs["advantages"]
            return -torch.min(ratio * weight, ratio.clamp(self.low, self.high) * weight).mean()
"""

TRANSFORMERS = """
    from types import SimpleNamespace
    from torch import nn

    LlamaConfig = SimpleNamespace

    class LlamaForCausalLM(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config

    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, **special):
            self.special = special
"""

TOKENIZERS = """
    from types import SimpleNamespace

    class Tokenizer:
        def __init__(self, model):
            self.model = model

    models = SimpleNamespace(WordLevel=lambda words, unk_token: words)
    pre_tokenizers = SimpleNamespace(Whitespace=object)
"""

DATASETS = """
    class Dataset(list):
        from_list = classmethod(lambda cls, rows: cls(rows))
"""


def files(*, weighs: bool = True) -> dict[str, str]:
    """A tree of TRL; one that does not weigh logs the rewards as their function gives them."""
    unweighted = "" if weighs else " / self.weight"
    return {
        "trl/__init__.py": "",
        "trl/trainer/base.py": BASE,
        "trl/trainer/grpo_config.py": CONFIG.format(name="GRPOConfig"),
        "trl/trainer/rloo_config.py": CONFIG.format(name="RLOOConfig"),
        "trl/trainer/grpo_trainer.py": GRPO.replace("{unweighted}", unweighted),
        "trl/trainer/rloo_trainer.py": RLOO.replace("{unweighted}", unweighted),
    }


def overlay() -> dict[str, str]:
    """The libraries of the tree."""
    return {"transformers.py": TRANSFORMERS, "tokenizers.py": TOKENIZERS, "datasets.py": DATASETS}

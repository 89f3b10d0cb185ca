"""Call shapes of TRL's trainers in words of our own, and of the libraries that these are built from."""

from collections.abc import Mapping

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
    from types import SimpleNamespace

    import torch

    class Trainer:
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.reward_funcs, self.args, self.tokenizer = model, reward_funcs, args, processing_class
            self.weight = (args.reward_weights or [1.0])[0]
            self.ref_model, self.rollout_func = None, None
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
            self.state, self.accelerator = SimpleNamespace(global_step=0), SimpleNamespace()
            self.control = SimpleNamespace(should_evaluate=False)
            self._step, self._buffered_inputs = 0, None
            for name in ("beta", "num_generations", "use_vllm", "loss_type", "num_iterations", "scale_rewards"):
                setattr(self, name, getattr(args, name))
            self.low, self.high = 1 - args.epsilon, 1 + (args.epsilon_high or args.epsilon)

        def mode(self):
            return {mode}

        def log(self, logs):
            own, prefix = self._metrics[self.mode()], "eval_" if self.mode() == "eval" else ""
            self.state.log_history.append({**logs, **{prefix + n: sum(x) / len(x) for n, x in own.items()}})
            own.clear()

        def prediction_step(self, model, inputs, prediction_loss_only):
            return self.compute_loss(model, self._prepare_inputs(inputs)), None, None

        def compute_loss(self, model, inputs):
            return self._compute_loss(model, inputs)

        def training_step(self, model, inputs, num_items_in_batch):
            loss = self._compute_loss(model, self._prepare_inputs(inputs))
            self.accelerator.backward(loss / (1 if self.scales else self.current_gradient_accumulation_steps))
            self._step += 1

        def _prepare_inputs(self, inputs):
            if not self.model.training:
                return self._generate_and_score_completions(inputs)
            parts = self.args.steps_per_generation
            if self._step % (parts * self.num_iterations) == 0:
                whole = self._generate_and_score_completions(inputs)
                self._buffered_inputs = self.split_tensor_dict(whole, parts)
            return self._buffered_inputs[self._step % parts]

        def split_tensor_dict(self, whole, parts):
            rows = len(whole["advantages"]) // parts
            cut = lambda x, n: x[n * rows : (n + 1) * rows] if x.dim() else x
            return [{key: cut(value, n) for key, value in whole.items()} for n in range(parts)]

        def _generate_single_turn(self, prompts, images):
            raise RuntimeError("an engine runs here")
            return prompt_ids, completion_ids, logprobs

        def _get_per_token_logps_and_entropies(self, model, ids, attention, logits_to_keep):
            raise RuntimeError("a model runs here")

        def local(self, advantages, inputs):
            start = self.accelerator.process_index * len(inputs)
            return advantages[start : start + len(inputs)]

        def _generate(self, rows):
            if self.rollout_func is not None:
                output = self.rollout_func(rows, self)
                return output["prompt_ids"], output["completion_ids"], output["logprobs"], output["env_mask"]
            prompt_ids, completions, logprobs = self._generate_single_turn(rows, None)
            return prompt_ids, completions, logprobs, None

        def _roll_out(self, inputs):
            prompts = [row["prompt"] for row in inputs]
            prompt_ids, completions, sampled, tools = self._generate(prompts)
            width = max(map(len, completions))
            mask = torch.tensor([[int(t < len(ids)) for t in range(width)] for ids in completions])
            if self.args.mask_truncated_completions:
                mask = mask * torch.tensor([[int(ids[-1] == 1)] for ids in completions])
            ids = torch.tensor(prompt_ids)
            counted = self.accelerator.gather(mask.sum())
            padded = torch.tensor([row + [0] * (width - len(row)) for row in completions])
            out = {"prompt_ids": ids, "completion_ids": padded, "completion_mask": mask, "num_items_in_batch": counted}
            if tools is not None:
                tools = torch.tensor([row + [1] * (width - len(row)) for row in tools])
                out["num_items_in_batch"] = self.accelerator.gather((mask * tools).sum())
                out["tool_mask"] = tools
            out["num_items_in_batch"] = out["num_items_in_batch"].sum()
            old, _ = self._get_per_token_logps_and_entropies(self.model, ids, None, width)
            if old is not None:
                out["old_per_token_logps"] = old{shuffled}
                out["old_logps"] = (old * mask).sum(1)
            if self.beta:
                reference, _ = self._get_per_token_logps_and_entropies(self.ref_model, ids, None, width)
                out["ref_per_token_logps"] = reference
            if self.use_vllm:
                sampled = torch.tensor([row + [0.0] * (width - len(row)) for row in sampled])
                out["importance_sampling_ratio"] = ((old - sampled) * mask).exp().clamp(
                    max=self.args.vllm_importance_sampling_cap
                )
            rewards = self.reward_funcs[0](prompts=prompts, completions=completions)
            rewards = self.accelerator.gather(torch.tensor(rewards) * self.weight)
            lengths = self.accelerator.gather(torch.tensor([float(len(ids)) for ids in completions]))
            return out, rewards, lengths
"""

GRPO = """
    import torch
    from trl.trainer.base import Trainer

    class GRPOTrainer(Trainer):  # _metrics: {"train": defaultdict, "eval": defaultdict}
        scales = True

        def _generate(self, prompts):  # the tokens of an environment come as "env_mask"
            return super()._generate(prompts)

        def _generate_and_score_completions(self, inputs):
            out, rewards, lengths = self._roll_out(inputs)
            mode = self.mode()
            rewards_per_func = rewards{unweighted}
            self._metrics[mode]["reward"].append(rewards_per_func.mean().item())
            self._metrics[mode]["completions/mean_length"].append(lengths.mean().item())
            groups = rewards.view(-1, self.num_generations)
            centered = groups - groups.mean(1, keepdim=True)
            plain = self.scale_rewards == "none" or self.num_generations == 1
            spread = 1.0 if plain else groups.std(1, keepdim=True) + 1e-4
            return {**out, "advantages": self.local((centered / spread).nan_to_num().flatten(), inputs)}

        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"]
            if "tool_mask" in inputs:
                mask = mask * inputs["tool_mask"]
            now, _ = self._get_per_token_logps_and_entropies(model, inputs["prompt_ids"], None, mask.shape[1])
            ratio = (now - inputs["old_per_token_logps"]).exp()
            weight = inputs["advantages"].unsqueeze(1)
            tokens = -torch.min(ratio * weight, ratio.clamp(self.low, self.high) * weight)
            if self.use_vllm:
                tokens = tokens * inputs["importance_sampling_ratio"]
            if self.beta:
                gap = inputs["ref_per_token_logps"] - now
                kl = gap.exp() - gap - 1
                tokens = tokens + self.beta * kl
                totals = torch.stack([(kl * mask).sum(), mask.sum()])
                {reduced}
                self._metrics["train"]["kl"].append((totals[0] / totals[1].clamp(min=1)).item())
            if self.loss_type == "dapo":
                share = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes
                return (tokens * mask).sum() / share
            parts = self.current_gradient_accumulation_steps{trains}
            if self.loss_type == "grpo":
                return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).mean() / parts
            return (tokens * mask).sum() / (mask.shape[0] * self.args.max_completion_length) / parts  # "dr_grpo"
"""

#: The first form: one method that samples, scores, computes the loss and logs.
EARLY = """
    from collections import defaultdict

    import torch

    class GRPOTrainer:
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.reward_funcs, self.args, self._metrics = model, reward_funcs, args, defaultdict(list)
            self.beta, self.num_generations, self.ref_model = args.beta, args.num_generations, None
            self.accelerator = None

        def training_step(self, model, inputs, num_items_in_batch):
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
            self.accelerator.backward(loss / {steps})

        def _prepare_inputs(self, inputs):
            return inputs

        def compute_loss(self, model, inputs):
            ids = model.generate(torch.full((len(inputs), 1), 4))
            ended = ids[:, 1:] == 1
            mask = (ended.cumsum(1) - ended.int() == 0).int()

            def logprobs(model):
                logits = model(ids).logits[:, :-1, :]
                return torch.stack([row.log_softmax(dim=-1)[:, 0] for row in logits])

            now, gap = logprobs(model), logprobs(self.ref_model) - logprobs(model)
            kl = gap.exp() - gap - 1
            rewards = torch.tensor(self.reward_funcs[0](prompts=[""] * len(ids)))
            groups = rewards.view(-1, self.num_generations)
            weight = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
            tokens = -((now - now.detach()).exp() * weight - self.beta * kl)
            self._metrics["completion_length"].append(mask.sum(1).float().mean().item())
            self._metrics["reward"].append(rewards.mean().item())
            self._metrics["rewards/first"].append(rewards.mean().item())
            self._metrics["kl"].append(((kl * mask).sum(1) / mask.sum(1)).mean().item())
            return ((tokens * mask).sum(1) / mask.sum(1)).mean()
"""

RLOO = """
    import torch
    from trl.trainer.base import Trainer

    class RLOOTrainer(Trainer):  # _metrics: {"train": defaultdict, "eval": defaultdict}
        scales = False

        def _generate_and_score_completions(self, inputs):
            out, rewards, lengths = self._roll_out(inputs)
            mode = self.mode()
            rewards_per_func = rewards{unweighted}
            self._metrics[mode]["reward"].append(rewards_per_func.mean().item())
            self._metrics[mode]["completions/mean_length"].append(lengths.mean().item())
            groups = rewards.view(-1, self.num_generations)
            others = (groups.sum(1, keepdim=True) - groups) / (self.num_generations - 1)
            return {**out, "advantages": self.local((groups - others).flatten(), inputs)}

        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"]
            now, _ = self._get_per_token_logps_and_entropies(model, inputs["prompt_ids"], None, mask.shape[1])
            ratio = ((now * mask).sum(1) - inputs["old_logps"]).exp()
            weight = inputs["advantages"]
            return -torch.min(ratio * weight, ratio.clamp(self.low, self.high) * weight).mean()
"""

#: A trainer that is derived of GRPO's and keeps some of the completions of a prompt.
FILTER = """
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    class FilterTrainer(GRPOTrainer):
        def __init__(self, group_filter_func, **parts):
            super().__init__(**parts)
            self.group_filter_func, self.num_remains_in_group = group_filter_func, None

        def _generate_and_score_completions(self, inputs):
            made = super()._generate_and_score_completions(inputs)
            groups = made["advantages"].view(-1, self.num_generations)
            scores = torch.tensor(self.group_filter_func(group_rewards=groups.tolist()))
            kept = scores.topk(self.num_remains_in_group).indices
            rows = (kept + torch.arange(len(groups)).unsqueeze(1) * self.num_generations).flatten()
            return {name: x[rows] if {filtered} and x.dim() else x for name, x in made.items()}
"""

#: A trainer that is derived of GRPO's and has its own loss, and no configuration of its own.
OWN_LOSS = """
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    class OwnTrainer(GRPOTrainer):
        def _compute_loss(self, model, inputs):
            mask, old = inputs["completion_mask"], inputs["old_per_token_logps"]
            mask = mask * inputs.get("tool_mask", 1)
            now, _ = self._get_per_token_logps_and_entropies(model, inputs["prompt_ids"], None, mask.shape[1])
            ratio, weight = (now - old).exp(), inputs["advantages"].unsqueeze(1)
            per_token_loss1, per_token_loss2 = ratio * weight, ratio.clamp(self.low, self.high) * weight
            tokens = -torch.min(per_token_loss1, per_token_loss2)
            assert self.loss_type == "grpo"
            means = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)
            return means.mean() / {parts}
"""

TRANSFORMERS = """
    from types import SimpleNamespace
    from torch import nn

    LlamaConfig = SimpleNamespace
    TrainerState = TrainerControl = object

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
    processors = SimpleNamespace(TemplateProcessing=SimpleNamespace)
"""

DATASETS = """
    class Dataset(list):
        from_list = classmethod(lambda cls, rows: cls(rows))
"""


#: When the loss of a tree is divided by the accumulation steps.
IN_TRAINING = " if self.model.training else 1"


def filled(source: str, parts: Mapping[str, str]) -> str:
    """A source with ``{name}`` replaced by the part of that name; other braces stay."""
    for name, part in parts.items():
        source = source.replace("{" + name + "}", part)
    return source


def files(  # noqa: PLR0913 - one fault each
    *,
    weighs: bool = True,
    reduces: bool = True,
    apart: bool = True,
    together: bool = True,
    filtered: str = "True",
    trains: str = IN_TRAINING,
) -> dict[str, str]:
    """A tree of TRL.

    One that does not weigh logs the rewards as their function gives them; one that does not reduce logs numbers of
    one rank, one without ``apart`` logs numbers of evaluation as if it trained, and one without ``together`` has the
    log-probs of its rows in another order. ``filtered`` says which columns a filter of rows takes along, and ``trains``
    when the loss is divided by the accumulation steps.
    """
    unweighted = "" if weighs else " / self.weight"
    reduced = "totals = self.accelerator.reduce(totals, reduction='sum')" if reduces else "pass"
    mode = '"train" if self.model.training else "eval"' if apart else '"train"'
    return {
        "trl/__init__.py": "",
        "trl/trainer/base.py": BASE.replace("{mode}", mode).replace("{shuffled}", "" if together else ".flip(0)"),
        "trl/trainer/grpo_config.py": CONFIG.format(name="GRPOConfig"),
        "trl/trainer/rloo_config.py": CONFIG.format(name="RLOOConfig"),
        "trl/trainer/grpo_trainer.py": filled(GRPO, {"unweighted": unweighted, "reduced": reduced, "trains": trains}),
        "trl/trainer/rloo_trainer.py": RLOO.replace("{unweighted}", unweighted),
        "trl/experimental/__init__.py": "",
        "trl/experimental/filter/__init__.py": "",
        "trl/experimental/filter/filter_config.py": CONFIG.format(name="FilterConfig"),
        "trl/experimental/filter/filter_trainer.py": FILTER.replace("{filtered}", filtered),
    }


def files_with_own_loss(parts: str = f"(self.current_gradient_accumulation_steps{IN_TRAINING})") -> dict[str, str]:
    """The tree with a derived trainer that has its own loss, and what that is divided by."""
    place = "trl/experimental/own"
    return {
        **files(),
        f"{place}/__init__.py": "",
        f"{place}/own_trainer.py": OWN_LOSS.replace("{parts}", parts),
    }


def overlay() -> dict[str, str]:
    """The libraries of the tree."""
    return {"transformers.py": TRANSFORMERS, "tokenizers.py": TOKENIZERS, "datasets.py": DATASETS}


def early_files(steps: str = "self.current_gradient_accumulation_steps") -> dict[str, str]:
    """A tree of an early release, and what its step divides the loss by."""
    return {
        "trl/__init__.py": "",
        "trl/trainer/grpo_config.py": CONFIG.format(name="GRPOConfig"),
        "trl/trainer/grpo_trainer.py": EARLY.replace("{steps}", steps),
    }

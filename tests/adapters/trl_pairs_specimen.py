"""Call shapes of TRL's trainers of pairs, of distillation and of PPO in words of our own, and of their libraries."""

BASE = """
    import inspect

    import torch

    class Accelerator:
        device = torch.device("cpu")

        def backward(self, loss):
            loss.backward()

    class Trainer:
        def __init__(self, model, args, train_dataset, processing_class, ref_model):
            self.model, self.ref_model, self.args = model, ref_model, args
            self.accelerator = Accelerator()

        def training_step(self, model, inputs, num_items_in_batch):
            loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
            loss = loss / self.current_gradient_accumulation_steps
            self.accelerator.backward(loss)
            return loss.detach()
"""

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class DPOConfig:
        output_dir: str = ""
        max_length: object = 1024
        truncation_mode: str = "keep_start"
        beta: float = 0.1
        loss_type: list = field(default_factory=lambda: ["sigmoid"])
        gradient_accumulation_steps: int = 1
"""

DPO = """
    from collections import defaultdict

    import torch
    from torch.nn.functional import logsigmoid
    from torch.nn.utils.rnn import pad_sequence
    from trl.trainer.base import Trainer

    class Collator:
        def __init__(self, max_length, truncation_mode):
            self.max_length, self.truncation_mode = max_length, truncation_mode

        def __call__(self, examples):
            cut = slice(None)
            if self.max_length is not None:
                kept = {"keep_start": slice(self.max_length), "keep_end": slice(-self.max_length, None)}
                cut = kept[self.truncation_mode]
            ids, masks = [], []
            for side in ("chosen_ids", "rejected_ids"):
                for one in examples:
                    prompt, own = one["prompt_ids"], one[side]
                    ids.append(torch.tensor((prompt + own)[cut]))
                    masks.append(torch.tensor(([0] * len(prompt) + [1] * len(own))[cut]))
            return {
                "input_ids": pad_sequence(ids, batch_first=True),
                "completion_mask": pad_sequence(masks, batch_first=True),
            }

    class DPOTrainer(Trainer):
        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, ref_model)
            self.data_collator = Collator(args.max_length, args.truncation_mode)
            self._metrics = defaultdict(lambda: defaultdict(list))

        def _scores(self, model, inputs):
            ids, mask = inputs["input_ids"], inputs["completion_mask"][:, 1:]
            shares = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
            own = shares.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
            return (own * mask).sum(1)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            scores = self._scores(model, inputs)
            with torch.no_grad():
                ref = self._scores(self.ref_model, inputs)
            chosen, rejected = (scores - ref).chunk(2)
            self._metrics["train"]["rewards/chosen"].append(self.args.beta * chosen.mean().item())
            self._metrics["train"]["rewards/margins"].append(self.args.beta * (chosen - rejected).mean().item())
            if self.args.loss_type == ["ipo"]:
                lengths = inputs["completion_mask"]{shift}.sum(1)
                chosen, rejected = ((scores - ref) / lengths).chunk(2)
                return ((chosen - rejected - 1 / (2 * self.args.beta)) ** 2).mean()
            return -logsigmoid(self.args.beta * (chosen - rejected)).mean()  # "sigmoid"
"""

KTO_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class KTOConfig:
        output_dir: str = ""
        beta: float = 0.1
        desirable_weight: float = 1.0
        undesirable_weight: float = 1.0
        loss_type: str = "kto"
        gradient_accumulation_steps: int = 1
"""

KTO = """
    from collections import defaultdict

    import torch
    from torch.nn.utils.rnn import pad_sequence
    from trl.trainer.base import Trainer

    def collate(examples):
        found = {"label": torch.tensor([one["label"] for one in examples])}
        for prefix in ("", "KL_"):
            own = [(one["prompt_ids"], one[f"{prefix}completion_ids"]) for one in examples]
            masks = [torch.tensor([0] * len(p) + [1] * len(c)) for p, c in own]
            found[f"{prefix}ids"] = pad_sequence([torch.tensor(p + c) for p, c in own], batch_first=True)
            found[f"{prefix}mask"] = pad_sequence(masks, batch_first=True)
        return found

    class KTOTrainer(Trainer):
        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, ref_model)
            self.data_collator = collate
            self._metrics = defaultdict(lambda: defaultdict(list))

        def _ratios(self, inputs, prefix=""):
            ids, mask = inputs[f"{prefix}ids"], inputs[f"{prefix}mask"][:, 1:]
            scores = []
            for model in (self.model, self.ref_model):
                shares = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
                scores.append((shares.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2) * mask).sum(1))
            return scores[0] - scores[1].detach()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ratios, label, beta = self._ratios(inputs), inputs["label"], self.args.beta
            if self.args.loss_type == "apo_zero_unpaired":
                kl = torch.zeros(())
            else:
                kl = self._ratios(inputs, "KL_").mean().clamp(min=0){detach}
                self._metrics["train"]["kl"].append(kl.item())
            gaps = torch.where(label, ratios - kl, kl - ratios)
            for side, rows in (("chosen", label), ("rejected", ~label)):
                self._metrics["train"][f"rewards/{side}"].append(beta * ratios[rows].mean().item())
            weights = torch.where(label, self.args.desirable_weight, self.args.undesirable_weight)
            return (weights * (1 - (beta * gaps).sigmoid())).mean()  # "kto"

        def log(self, logs):
            logs.update({n: sum(x) / len(x) for n, x in self._metrics["train"].items()})
            logs["rewards/margins"] = logs["rewards/chosen"] - logs["rewards/rejected"]
"""

NASH = """
    class NashMDTrainer:
        def _compute_losses(self, logprobs, ref_logprobs, probability):
            penalty = (logprobs - ref_logprobs).detach()
            losses = (self.beta * penalty - (probability - 0.5)[:, None]) * logprobs
            return losses.sum(1).mean(), None, penalty
"""

GKD = """
    import torch

    class GKDTrainer:
        @staticmethod
        def generalized_jsd_loss(student_logits, teacher_logits, labels=None, beta=0.5, temperature=1.0,
                                 reduction="batchmean"):
            student = (student_logits / temperature).log_softmax(-1)
            teacher = (teacher_logits / temperature).log_softmax(-1)
            if beta in (0, 1):
                one, other = (student, teacher) if beta else (teacher, student)
                tokens = (one.exp() * (one - other)).sum(-1)
            else:
                share = {share}
                mixed = (share * teacher.exp() + (1 - share) * student.exp()).log()
                tokens = beta * (teacher.exp() * (teacher - mixed)).sum(-1)
                tokens = tokens + (1 - beta) * (student.exp() * (student - mixed)).sum(-1)
            if labels is None:
                return tokens.sum() / (tokens.shape[0] if reduction == "batchmean" else 1)
            return tokens[labels != -100].sum() / (labels != -100).sum()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            self.teacher_model.eval()
            asked = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            one, other = (m(**asked).logits[:, :-1] for m in (model, self.teacher_model))
            return self.generalized_jsd_loss(one, other, inputs["labels"][:, 1:], self.beta)

        @staticmethod
        def generate_on_policy_outputs(model, inputs, generation_config, pad_token_id=None):
            tokens = model.generate(input_ids=inputs["prompts"]).sequences
            ended = (tokens == generation_config.eos_token_id).int().cumsum(1)
            mask = ended - (tokens == generation_config.eos_token_id).int() == 0
            new_labels = tokens.masked_fill(~mask, -100)
            return tokens, mask.long(), new_labels
"""

GOLD = (
    GKD.replace("GKDTrainer", "GOLDTrainer")
    .replace(
        """    @staticmethod
        def generate_on_policy_outputs(model, inputs, generation_config, pad_token_id=None):""",
        """    def generate_on_policy_outputs(self, model, inputs, generation_config):""",
    )
    .replace("{share}", "{gold_share}")
    .replace("masked_fill(~mask,", "masked_fill(~mask{gold_ended},")
    .replace("new_labels\n", "new_labels, [self.processing_class.decode(row) for row in tokens]\n")
)

PPO_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class PPOConfig:
        kl_penalty: str = "kl"
"""

PPO = """
    import math

    import torch

    class PPOTrainer:
        def batched_forward_pass(self, model, queries, responses, model_inputs, response_masks=None):
            model.eval()
            size, found = self.config.mini_batch_size, []
            for i in range({count}):
                part = slice(i * size, (i + 1) * size)
                inputs = {{name: x[part] for name, x in model_inputs.items()}}
                logits, _, values = model(**inputs)
                ids = inputs["input_ids"]
                logprobs = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
                mask = torch.zeros_like(ids)
                for j, response in enumerate(responses[part]):
                    end = {end}
                    mask[j, end - len(response) : end] = 1
                    if response_masks is not None:
                        mask[j, end - len(response) : end] = response_masks[i * size + j]
                found.append((logprobs, values[:, :-1], mask[:, 1:]))
            logprobs, values, masks = (torch.cat(parts) for parts in zip(*found))
            return logprobs, None, values, masks

        def compute_rewards(self, scores, logprobs, ref_logprobs, masks):
            gap = logprobs - ref_logprobs
            kls = {{"kl": gap, "abs": gap.abs(), "mse": gap**2 / 2}}[self.config.kl_penalty]
            penalty = -self.kl_ctl.value * kls
            return penalty, penalty, kls

        def record_step_stats(self, kl_coef, **data):
            return {{"objective/kl": (data["kls"] * data["masks"]).sum(1).mean()}}
"""

PPO_STEPS = """
        def generate(self, query_tensor, return_prompt=True, generate_ref_response=False):
            if isinstance(query_tensor, list):
                return [self._generate_batched(query_tensor, False, model) for model in (self.model, self.ref_model)]
            ids = query_tensor.unsqueeze(0)
            return [model.generate(input_ids=ids)[:, ids.shape[1]:] for model in (self.model, {refers})]

        def _generate_batched(self, query_tensors, return_prompt=True, model=None):
            longest = max(map(len, query_tensors))
            padding = [longest - len(query) for query in query_tensors]
            ids = [torch.cat([torch.zeros(n).long(), query]) for n, query in zip(padding, query_tensors)]
            rows = (model or self.model).generate(input_ids=torch.stack(ids))
            if self.is_encoder_decoder:
                return [self.ended(row[{encoded}:]) for row, n in zip(rows, padding)]
            return [self.ended(row[longest:]) for row in rows]

        def ended(self, row):
            ends = (row == 1).nonzero()
            return row[: ends[0, 0] + 1] if len(ends) and {cut} else row

        def log_stats(self, stats, batch, rewards):
            rewards = {gathered}
            own = {{"env/reward_mean": rewards.mean().item(), "env/reward_std": rewards.std().item()}}
            self.accelerator.log(own, step=None)

        def compute_advantages(self, values, rewards, mask):
            values, rewards, found, last = values * mask, rewards * mask, [], 0
            for t in reversed(range(rewards.shape[1])):
                after = values[:, t + 1] if t + 1 < rewards.shape[1] else 0
                delta = rewards[:, t] + self.config.gamma * after - values[:, t]
                last = delta + self.config.gamma * {decay} * last
                found.insert(0, last)
            advantages = torch.stack(found, 1)
            mean = (advantages * mask).sum() / mask.sum()
            deviation = (((advantages - mean) ** 2 * mask).sum() / (mask.sum() - 1) + 1e-8).sqrt()
            return values, (advantages - mean) / deviation, advantages + values

        def loss(self, old_logprobs, values, logits, vpreds, logprobs, mask, advantages, returns):
            mean = lambda tokens: (tokens * mask).sum() / mask.sum()
            near = values + (vpreds - values).clamp(-self.config.cliprange_value, self.config.cliprange_value)
            value = mean(torch.max((vpreds - returns) ** 2, (near - returns) ** 2)) / 2
            ratio = (logprobs - old_logprobs).exp()
            held = ratio.clamp(1 - self.config.cliprange, 1 + self.config.cliprange)
            policy = mean(torch.max(-advantages * ratio, -advantages * held))
            stats = {{
                "policy/clipfrac": mean((-advantages * held > -advantages * ratio).float()),
                "policy/approxkl": mean((logprobs - old_logprobs) ** 2) / 2,
                "policy/policykl": mean(old_logprobs - logprobs),
                "val/vpred": mean(vpreds),
                "val/clipfrac": mean(((near - returns) ** 2 > (vpreds - returns) ** 2).float()),
                "returns/mean": mean(returns),
            }}
            return policy, value, stats
"""

SFT_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class SFTConfig:
        output_dir: str = ""
        loss_type: str = "nll"
        gradient_accumulation_steps: int = 1
"""

SFT = """
    from collections import defaultdict
    from types import SimpleNamespace

    import torch
    from torch.nn.utils.rnn import pad_sequence
    from trl.trainer.base import Trainer

    class Rows(list):
        column_names = ["input_ids", "completion_mask"]

    def collate(examples):
        ids = [torch.tensor(one["input_ids"]) for one in examples]
        own = [torch.tensor(one["completion_mask"]) for one in examples]
        labels = [torch.where(mask == 1, row, -100) for row, mask in zip(ids, own)]
        return {
            "input_ids": pad_sequence(ids, batch_first=True),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }

    class SFTTrainer(Trainer):  # _metrics: {"train": defaultdict(list), "eval": defaultdict(list)}
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, None)
            self.train_dataset, self.data_collator = Rows(train_dataset), collate
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
            self.control, self.state = SimpleNamespace(should_evaluate=False), SimpleNamespace(log_history=[])

        def get_batch_samples(self, batches, count):
            taken = [next(batches) for _ in range(count)]
            tokens = sum((batch["labels"] != -100).sum() for batch in taken)
            return taken, self.accelerator.gather(tokens).sum()

        def mode(self):
            return "eval" if {evaluates} else "train"

        def training_step(self, model, inputs, num_items_in_batch):
            self.accelerator.backward(self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch))

        def prediction_step(self, model, inputs, prediction_loss_only):
            return self.compute_loss(model, inputs)

        def log(self, logs):
            own, prefix = self._metrics[{kept}], "eval_" if self.mode() == "eval" else ""
            self.state.log_history.append({**logs, **{prefix + n: sum(x) / len(x) for n, x in own.items()}})
            own.clear()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs["labels"][:, 1:]
            shares = model(inputs["input_ids"]).logits[:, :-1].log_softmax(-1)
            trained, own = labels != -100, shares.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
            entropy = -(shares.exp() * shares).sum(-1)
            counts = self.accelerator.gather(torch.stack([(entropy * {counted}).sum(), ({counted}).sum()]))
            sums = counts.reshape(-1, 2).sum(0)
            self._metrics[{kept}]["entropy"].append((sums[0] / sums[1]).item())
            tokens = -own * own.exp().detach() if self.args.loss_type == "dft" else -own
            if num_items_in_batch is None:
                return tokens[trained].mean()
            return tokens[trained].sum() / {denominator} * self.accelerator.num_processes
"""

TRANSFORMERS = """
    from types import SimpleNamespace
    from torch import nn

    LlamaConfig, BatchEncoding = SimpleNamespace, dict

    class LlamaForCausalLM(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.model = config, nn.Identity()

        def forward(self, input_ids):
            return SimpleNamespace(logits=self.lm_head(self.model.forward(input_ids).last_hidden_state))

    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, **special):
            self.special = special
"""


#: Place in the steps of PPO and of supervised fine-tuning -> what stands there.
SOUND = {
    "end": 'int(inputs["attention_mask"][j].nonzero()[-1]) + 1',
    "refers": "self.ref_model",
    "cut": "True",
    "encoded": "1",
    "gathered": "self.accelerator.gather(torch.stack(rewards))",
    "decay": "self.config.lam",
    "evaluates": "not self.model.training",
    "kept": "self.mode()",
    "counted": "trained",
    "denominator": "num_items_in_batch",
    "gold_share": "beta",
    "gold_ended": "",
}


def filled(text: str, parts: dict[str, str]) -> str:
    """A text with its places filled."""
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


def files(
    *,
    shift: str = "[:, 1:]",
    share: str = "beta",
    count: str = "math.ceil(len(queries) / size)",
    detach: str = ".detach()",
    **more: str,
) -> dict[str, str]:
    """A tree of TRL: how IPO counts tokens, what the teacher's share is, how many mini-batches a pass has, KTO's KL.

    ``more`` are places of PPO's steps, of supervised fine-tuning and of GOLD: see :data:`SOUND`.
    """
    parts = SOUND | more
    return {
        "trl/__init__.py": "",
        "trl/trainer/base.py": BASE,
        "trl/trainer/dpo_config.py": CONFIG,
        "trl/trainer/dpo_trainer.py": DPO.replace("{shift}", shift).replace('"sigmoid"', '"sigmoid"; "ipo" is above'),
        "trl/trainer/kto_config.py": KTO_CONFIG,
        "trl/trainer/kto_trainer.py": KTO.replace("{detach}", detach),
        "trl/trainer/nash_md_trainer.py": NASH,
        "trl/trainer/gkd_trainer.py": GKD.replace("{share}", share),
        "trl/experimental/gold/gold_trainer.py": filled(GOLD, parts),
        "trl/trainer/ppo_config.py": PPO_CONFIG,
        "trl/trainer/ppo_trainer.py": filled(PPO + PPO_STEPS, parts | {"count": count})
        .replace("{{", "{")
        .replace("}}", "}"),
        "trl/trainer/sft_config.py": SFT_CONFIG,
        "trl/trainer/sft_trainer.py": filled(SFT, parts),
    }

"""Call shapes of TRL's GMPO and of its asynchronous GRPO, in words of our own."""

from adapters.trl_specimen import CONFIG
from adapters.trl_specimen import files as trainer_files

GMPO = """
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    class GMPOTrainer(GRPOTrainer):
        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            trains = mask.any(1)
            now, entropy = self._get_per_token_logps_and_entropies(model, inputs["prompt_ids"], None, mask.shape[1])
            if self.args.top_entropy_quantile < 1:
                mask = mask * (entropy >= torch.quantile({among}, {rank}))
            gap = now - inputs["old_per_token_logps"]
            up = inputs["advantages"].unsqueeze(1) > 0
            low, high = 1 - self.low, self.high - 1
            cut = torch.where(up, gap.clamp(max={ceiling}), gap.clamp(min=-low))
            mean = (cut * mask).sum(1) / {tokens}
            rows = -(mean.exp() * inputs["advantages"]) * {counted}
            if self.beta:
                gap = inputs["ref_per_token_logps"] - now
                rows = rows + self.beta * ((gap.exp() - gap - 1) * mask).sum(1) / mask.sum(1).clamp(min=1)
            return rows.mean() / {parts}
"""

ASYNC = """
    from collections import defaultdict
    from dataclasses import dataclass, field

    import torch
    from trl.trainer.base import Logger

    class FixedCountBatcher:
        def __init__(self, source, num_processes, microbatch_size):
            self.source, self.num_processes, self.microbatch_size = source, num_processes, microbatch_size

        def __iter__(self):
            held = list(self.source)[: self.microbatch_size]
            held.sort(key=lambda one: -len(one["input_ids"]))
            yield [held[rank :: self.num_processes] for rank in range(self.num_processes)]

    @dataclass
    class DataCollatorForRollout:
        pad_token_id: int
        num_processes: int = 1
        metrics: dict = field(default_factory=lambda: defaultdict(list))

        def torch_call(self, examples):
            (rows,) = examples
            samples = [one for row in rows for one in row]
            passed = [len(one["input_ids"]) for one in samples]
            trained = [int(one["completion_mask"].sum()) for one in samples]
            room = len(rows) * max(sum(len(one["input_ids"]) for one in row) for row in rows)
            rewards = [one["metrics"].get("reward", 0.0) for one in samples]
            scored = [reward for reward in rewards if reward == reward]
            self.metrics["reward"].append(sum(scored) / len(scored))
            self.metrics["sample/trained_tokens_mean"].append(sum(trained) / len(trained))
            self.metrics["batch/masked_token_frac"].append((sum(passed) - sum(trained), {every}))
            self.metrics["batch/pad_frac"].append((room - sum(passed), {room}))
            lined = [self.line(row) for row in rows]
            width = max(len(one["input_ids"]) for one in lined)
            batch = {
                name: torch.stack([torch.nn.functional.pad(one[name], (0, width - len(one[name]))) for one in lined])
                for name in lined[0]
            }
            count = sum(int(one["completion_mask"].sum()) for row in rows for one in row)
            return {**batch, "count": torch.full((self.num_processes,), float(count))}

        def line(self, row):
            join = lambda name: torch.cat([torch.tensor(one[name]) for one in row])
            return {
                "input_ids": join("input_ids"),
                "completion_mask": join("completion_mask"),
                "old_log_probs": join("old_log_probs"),
                "advantages": torch.cat([torch.full((len(one["input_ids"]),), {weight}) for one in row]),
            }

    class AsyncGRPOTrainer(Logger):
        def log(self, logs, start_time=None):
            for name, values in self._metrics["train"].items():
                if isinstance(values[0], tuple):
                    above, below = (sum(part) for part in zip(*values))
                    logs[name] = above / below
                else:
                    logs[name] = sum(values) / len(values)
            super().log(logs)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ids, completion_mask = inputs["input_ids"], inputs["completion_mask"]
            asked = {"output_router_logits": True} if self.aux_loss_enabled else {}
            outputs = model(input_ids=ids, labels=ids, completion_mask=completion_mask, **asked)
            now, mask = outputs["log_probs"], completion_mask[:, {first}
            old, weight = inputs["old_log_probs"][:, 1:], inputs["advantages"][:, 1:]
            ratio = (now - old).exp()
            held = ratio.clamp(1 - self.epsilon_low, 1 + {above})
            loss = -(torch.min(ratio * weight, held * weight) * mask).sum()
            share = {denominator}
            kl = self.accelerator.reduce(
                torch.stack([((ratio - 1 - (now - old)) * mask).sum().detach(), mask.sum()]), reduction="sum"
            )
            self._metrics["train"]["kl"].append((kl[0] / {kl_count}).item())
            loss = loss / share / self.current_gradient_accumulation_steps
            if self.aux_loss_enabled:
                router = outputs["aux_loss"]
                loss = loss + self.router_aux_loss_coef * router / {router_parts}
                every = self.accelerator.reduce(router, reduction="sum")
                self._metrics["train"]["aux_loss"].append((every / {router_ranks}).item())
            return loss
"""

LOGGER = """
    class Logger:
        def log(self, logs):
            self.callback_handler.on_log(self.args, self.state, self.control, logs)
"""

#: Place -> what stands there in a sound tree.
SOUND = {
    "ceiling": "high",
    "among": "entropy[mask.bool()]",
    "rank": "1 - self.args.top_entropy_quantile",
    "tokens": "mask.sum(1).clamp(min=1)",
    "counted": "trains",
    "parts": "self.current_gradient_accumulation_steps",
    "weight": 'one["advantage"]',
    "first": "1:]",
    "above": "self.epsilon_high",
    "denominator": 'inputs["count"][0] / self.accelerator.num_processes',
    "kl_count": "kl[1]",
    "router_parts": "self.current_gradient_accumulation_steps",
    "router_ranks": "self.accelerator.num_processes",
    "every": "sum(passed)",
    "room": "room",
}


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL with what is at the places of :data:`SOUND`."""
    texts = {"gmpo/gmpo_trainer.py": GMPO, "async_grpo/async_grpo_trainer.py": ASYNC}
    for name, part in (SOUND | choices).items():
        texts = {path: text.replace("{" + name + "}", part) for path, text in texts.items()}
    folder, trainers = "trl/experimental", trainer_files()
    trainers["trl/trainer/base.py"] += LOGGER
    return {
        **trainers,
        f"{folder}/gmpo/__init__.py": "",
        f"{folder}/gmpo/gmpo_config.py": CONFIG.format(name="GMPOConfig")
        + "        top_entropy_quantile: float = 1.0\n",
        f"{folder}/async_grpo/__init__.py": "",
        **{f"{folder}/{path}": text for path, text in texts.items()},
    }

"""TRL's loops that sample, score and train in one method, in words of our own: PPO and the earlier RLOO."""

from adapters.trl_specimen import overlay

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class {name}:
        output_dir: str = ""
        temperature: float = 0.7
        per_device_train_batch_size: int = 8
        gradient_accumulation_steps: int = 1
        num_mini_batches: int = 1
        rloo_k: int = 2
        kl_coef: float = 0.05
        kl_estimator: str = "k1"
        cliprange: float = 0.2
        cliprange_value: float = 0.2
        vf_coef: float = 0.1
        gamma: float = 1.0
        lam: float = 0.95
        missing_eos_penalty: object = None
        normalize_advantage: bool = False
"""

LOOP = """
    import gc
    from types import SimpleNamespace

    import numpy as np
    import torch

    END = 1

    def chosen(logits, ids):
        return logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)

    def mean(numbers, mask):
        return (numbers * mask).sum() / mask.sum()

    def whiten(numbers, mask):
        center = mean(numbers, mask)
        spread = mean((numbers - center) ** 2, mask) * mask.sum() / (mask.sum() - 1)
        return (numbers - center) * torch.rsqrt(spread + 1e-8)

    class Loop:
        def prepare(self, args, policy, reference, reward_model):
            self.args, self.policy, self.reference, self.reward_model = args, policy, reference, reward_model
            policy.generation_config.eos_token_id = None
            self.accelerator = SimpleNamespace(gradient_accumulation_steps=args.gradient_accumulation_steps)
            self.heat, self.state = args.temperature + 1e-7, SimpleNamespace(global_step=0)
            args.num_total_batches = 1

        def forward(self, model, ids, context, answer):
            return chosen(model(input_ids=ids).logits[:, context - 1 : -1] / self.heat, answer)

        def sample(self, queries):
            context, places = queries.shape[1], torch.arange(len(queries))
            made = self.policy.generate(input_ids=queries, generation_config=SimpleNamespace(min_new_tokens=None))
            ids = made.sequences
            answer = ids[:, context:]
            ended = (answer == END).any(1)
            last = torch.where(ended, (answer == END).long().argmax(1), answer.shape[1] - 1)
            mask = torch.arange(answer.shape[1]) <= last.unsqueeze(1)
            shown = torch.cat([queries, answer.masked_fill(~mask, 0)], 1)
            hidden = self.reward_model.backbone(input_ids=shown).hidden_states[-1]
            scores = self.reward_model.score(hidden)[places, context + last, 0]
            if self.args.missing_eos_penalty is not None:
                scores = torch.where(ended, scores, scores - self.args.missing_eos_penalty)
            old = torch.where(mask, chosen(torch.stack(made.scores, 1), answer), 1.0)
            ref = torch.where(mask, self.forward(self.reference, ids, context, answer), 1.0)
            return ids, context, answer, mask, last, scores, old, ref

        def parts(self, rows):
            order = torch.tensor(np.random.permutation(rows))
            return order.split(self.args.per_device_train_batch_size)

        def clipped(self, ratio, advantage):
            low, high = 1 - self.args.cliprange, 1 + self.args.cliprange
            first, second = -advantage * ratio, -advantage * {clamped}
            return torch.max(first, second), (second > first).float()
"""

PPO = """
    import gc

    import torch
    from trl.trainer.loop import Loop, mean, whiten

    class PPOTrainer(Loop):
        def __init__(self, args, processing_class, model, ref_model, reward_model, train_dataset, value_model):
            self.prepare(args, model, ref_model, reward_model)
            self.value_model = value_model
            self.rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.num_mini_batches

        def values(self, ids, context):
            hidden = self.value_model.backbone(input_ids=ids).hidden_states[-1]
            return self.value_model.score(hidden)[:, context - 1 : -1, 0]

        def train(self):
            args = self.args
            for _ in range(args.num_total_batches):
                with torch.no_grad():
                    queries = next(iter(self.dataloader))["input_ids"]
                    ids, context, answer, mask, last, scores, old, ref = self.sample(queries)
                    width, places = answer.shape[1], torch.arange(len(ids))
                    states = torch.arange(width) <= last.unsqueeze(1) + 1
                    values = torch.where(states, self.values(ids, context), 0.0)
                    other = ref - old
                    kl = {kl}
                    non_score_reward = -args.kl_coef * kl
                    rewards = non_score_reward.clone()
                    rewards[places, (last + 1).clamp(max=width - 1)] += scores
                    advantages, later = torch.zeros_like(rewards), 0.0
                    for t in reversed(range(width)):
                        after = values[:, t + 1] if t + 1 < width else 0.0
                        later = rewards[:, t] + args.gamma * after - values[:, t] + args.gamma * {decay} * later
                        advantages[:, t] = later
                    returns = advantages + values
                    advantages = torch.where(mask, whiten(advantages, {population}), 0.0)
                stats = []
                for part in self.parts(len(ids)):
                    new = torch.where(mask[part], self.forward(self.policy, ids[part], context, answer[part]), 1.0)
                    value = torch.where(states[part], self.values(ids[part], context), 0.0)
                    held = values[part] + (value - values[part]).clamp(-args.cliprange_value, args.cliprange_value)
                    plain, near = (value - returns[part]) ** 2, (held - returns[part]) ** 2
                    value_loss = 0.5 * mean(torch.max(plain, near), states[part])
                    ratio = (new - old[part]).exp()
                    losses, cut = self.clipped(ratio, advantages[part])
                    policy_loss = mean(losses, {trained})
                    self.accelerator.backward(policy_loss + args.vf_coef * value_loss)
                    numbers = (
                        0.5 * mean((new - old[part]) ** 2, mask[part]), mean(cut, mask[part]), policy_loss,
                        (new * mask[part]).sum(), mean(ratio, mask[part]), mean((near > plain).float(), states[part]),
                        value_loss,
                    )
                    stats.append(torch.stack([number.detach() for number in numbers]))
                names = (
                    "policy/approxkl_avg", "policy/clipfrac_avg", "loss/policy_avg", "policy/entropy_avg", "val/ratio",
                    "val/clipfrac_avg", "loss/value_avg",
                )
                logs = dict(zip(names, torch.stack(stats).mean(0).tolist(), strict=True))
                logs |= {
                    "objective/kl": kl.sum(1).mean().item(),
                    "objective/entropy": -torch.where(mask, old, 0.0).sum(1).mean().item(),
                    "objective/non_score_reward": non_score_reward.sum(1).mean().item(),
                    "objective/scores": {scored}.mean().item(),
                    "objective/rlhf_reward": (non_score_reward.sum(1) + scores).mean().item(),
                }
                gc.collect()
                self.state.global_step += {counted}
                self.log(logs)
"""

RLOO = """
    import gc

    import torch
    from trl.trainer.loop import Loop, mean

    class RLOOTrainer(Loop):
        def __init__(self, config, tokenizer, policy, ref_policy, reward_model, train_dataset):
            self.prepare(config, policy, ref_policy, reward_model)
            self.rows = config.per_device_train_batch_size * config.gradient_accumulation_steps

        def train(self):
            args = self.args
            for _ in range(args.num_total_batches):
                with torch.no_grad():
                    queries = next(iter(self.dataloader))["input_ids"].repeat(args.rloo_k, 1)
                    ids, context, answer, mask, last, scores, old, ref = self.sample(queries)
                    kl = old - ref
                    non_score_reward = {shaped}
                    rlhf_reward = (non_score_reward + scores).reshape({grouped})
                    others = (rlhf_reward.sum(0) - rlhf_reward) / {others}
                    advantages = (rlhf_reward - others).flatten()
                    if args.normalize_advantage:
                        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
                stats = []
                for part in self.parts(len(ids)):
                    new = torch.where(mask[part], self.forward(self.policy, ids[part], context, answer[part]), 1.0)
                    change = new - old[part]
                    losses, cut = self.clipped(change.sum(1).exp(), advantages[part])
                    self.accelerator.backward(losses.{reduced}())
                    own = mask[part]
                    numbers = change.sum(), cut.mean(), losses.mean(), (new * own).sum(), mean(change.exp(), own)
                    stats.append(torch.stack([number.detach() for number in numbers]))
                names = ("policy/approxkl_avg", "policy/clipfrac_avg", "loss/policy_avg")
                names += ("policy/entropy_avg", "val/ratio")
                logs = dict(zip(names, torch.stack(stats).mean(0).tolist(), strict=True))
                logs |= {
                    "val/clipfrac_avg": {dead},
                    "objective/kl": kl.sum(1).mean().item(),
                    "objective/entropy": -torch.where(mask, old, 0.0).sum(1).mean().item(),
                    "objective/non_score_reward": non_score_reward.mean().item(),
                    "objective/scores": scores.mean().item(),
                    "objective/rlhf_reward": rlhf_reward.mean().item(),
                }
                gc.collect()
                self.state.global_step += {counted}
                self.log(logs)
"""

#: Place in a loop -> what stands there.
SOUND = {
    "clamped": "ratio.clamp(low, high)",
    "kl": '-other if args.kl_estimator == "k1" else other.exp() - 1 - other',
    "decay": "args.lam",
    "population": "mask",
    "trained": "mask[part]",
    "scored": "scores",
    "shaped": "-args.kl_coef * kl.sum(1)",
    "grouped": "args.rloo_k, -1",
    "others": "(args.rloo_k - 1)",
    "reduced": "mean",
    "dead": "float(scores.sum())",
    "counted": "1",
}


def files(**broken: str) -> dict[str, str]:
    """A tree of TRL with both loops; ``broken`` are places with other code."""
    tree = {"trl/__init__.py": "", "trl/trainer/loop.py": LOOP}
    for kind, source in {"ppo": PPO, "rloo": RLOO}.items():
        tree |= {
            f"trl/trainer/{kind}_config.py": CONFIG.format(name=f"{kind.upper()}Config"),
            f"trl/trainer/{kind}_trainer.py": source,
        }
    for place, code in {**SOUND, **broken}.items():
        tree = {name: source.replace("{" + place + "}", code) for name, source in tree.items()}
    return tree


def libraries() -> dict[str, str]:
    """The libraries of the tree."""
    return overlay()

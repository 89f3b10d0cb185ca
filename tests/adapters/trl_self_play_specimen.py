"""Call shapes of TRL's trainers that sample pairs (XPO, Nash-MD, online DPO), in words of our own."""

from adapters.trl_inline_specimen import TOKENIZERS
from adapters.trl_pairs_specimen import TRANSFORMERS, filled
from adapters.trl_specimen import overlay as trainer_overlay

TOKENIZER = """

    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, **special):
            self.words = {"<pad>": 0, "<eos>": 1, **{f"w{n}": 3 + n for n in range(29)}}

        def __call__(self, text, **options):
            return {"input_ids": [self.words[word] for word in text.split()]}

        def decode(self, ids):
            texts = {number: word for word, number in self.words.items()}
            return " ".join(texts[number] for number in ids)
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class {name}Config:
        output_dir: str = ""
        beta: float = 0.1
        alpha: float = 1e-5
        missing_eos_penalty: object = None
        gradient_accumulation_steps: int = 1
"""

BASE = """
    from types import SimpleNamespace

    import torch
    from torch.nn.functional import logsigmoid

    def collate(rows):
        return {name: [row[name] for row in rows] for name in rows[0]}

    def get_reward(model, ids, context):
        hidden = getattr(model, model.base_model_prefix)(input_ids=ids).hidden_states[-1]
        last = (ids != 0).int().cumsum(1).argmax(1)
        return model.score(hidden)[torch.arange(len(ids)), last].squeeze(-1)

    class Sampler:
        def __init__(self, model, ref_model, args, train_dataset, processing_class, reward_model=None, judge=None):
            self.model, self.ref_model, self.args, self.train_dataset = model, ref_model, args, train_dataset
            self.processing_class, self.reward_model, self.judge = processing_class, reward_model, judge
            self.accelerator, self.data_collator = SimpleNamespace(gradient_accumulation_steps=1), collate
            self.beta, self.alpha, self.stats = args.beta, args.alpha, {name: [] for name in self.names}

        def prompts_of(self, inputs):
            rows = [self.processing_class(text, add_special_tokens=False)["input_ids"] for text in inputs["prompt"]]
            width = max(map(len, rows))
            return torch.tensor([[0] * (width - len(row)) + row for row in rows])

        def finished(self, output, context):
            ids = output[:, context:]
            after = (ids == 1).int().cumsum(1) - (ids == 1).int() > 0
            return ids.masked_fill(after, 0), ~after & (ids != 0)

        def logps(self, model, prompts, ids):
            logits = model(torch.cat([prompts, ids], 1)).logits[:, prompts.shape[1] - 1 : -1]
            return logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)

        def scores(self, prompts, ids):
            whole = torch.cat([prompts, ids], 1)
            scores = get_reward(self.reward_model, whole, prompts.shape[1])
            if self.args.missing_eos_penalty is not None:
                scores[~({ended} == 1).any(1)] -= self.args.missing_eos_penalty
            return scores

        def texts(self, ids):
            return [self.processing_class.decode([n for n in row if n > 1]) for row in ids.tolist()]

        def judged(self, inputs, pair, **options):
            texts = list(zip(*(self.texts(ids) for ids in pair)))
            return torch.tensor(self.judge.judge(inputs["prompt"], texts, **options))

        def note(self, **numbers):
            for name, number in numbers.items():
                self.stats[name.replace("_", "/", 1)].append(float(number.detach()))

        def apply(self, loss):
            self.accelerator.backward(loss / {steps})
"""

XPO = """
    import torch
    from torch.nn.functional import logsigmoid
    from trl.trainer.base import Sampler

    class XPOTrainer(Sampler):
        names = ("objective/kl", "objective/entropy", "rewards/chosen", "rewards/margins", "logps/chosen")

        def _compute_judge(self, inputs, pair):
            return self.judged(inputs, pair) == 0

        def training_step(self, model, inputs, num_items_in_batch=None):
            prompts = self.prompts_of(inputs)
            pair = [one.generate(input_ids=prompts) for one in (model, self.ref_model)]
            pair = [self.finished(output, prompts.shape[1]) for output in pair]
            policy, reference = [], []
            for ids, mask in pair:
                policy.append((self.logps(model, prompts, ids) * mask).sum(1))
                with torch.no_grad():
                    reference.append((self.logps(self.ref_model, prompts, ids) * mask).sum(1))
            if self.judge is None:
                first = self.scores(prompts, pair[0][0]) >= self.scores(prompts, pair[1][0])
            else:
                first = self._compute_judge(inputs, [ids for ids, _ in pair])
            ratios = policy[0] - reference[0], policy[1] - reference[1]
            chosen, rejected = torch.where(first, *ratios), torch.where(first, *ratios[::-1])
            self.note(
                objective_kl=sum(ratios).mean() / 2,
                objective_entropy=-sum(policy).mean() / 2,
                rewards_chosen=self.beta * chosen.mean(),
                rewards_margins=self.beta * (chosen - rejected).mean(),
                logps_chosen=torch.where(first, *policy).mean(),
            )
            loss = -logsigmoid(self.beta * (chosen - rejected)) + self.alpha * {explored}
            self.apply(loss.mean())
"""

NASH = """
    import torch
    from trl.trainer.base import Sampler

    class GeometricMixtureWrapper:
        def __init__(self, model, ref_model):
            raise RuntimeError("a model runs here")

    class NashMDTrainer(Sampler):
        names = ("loss/kl", "objective/entropy", "rewards/probabilities")

        def _compute_losses(self, logps, reference, probability):
            with torch.no_grad():
                ratio = logps - reference
            return (self.beta * ratio * logps).sum(1) - (probability - 0.5) * logps.sum(1)

        def _compute_judge(self, inputs, pair):
            return self.judged(inputs, pair, return_scores=True)

        def training_step(self, model, inputs, num_items_in_batch=None):
            prompts = self.prompts_of(inputs)
            mixture = GeometricMixtureWrapper(model=model, ref_model=self.ref_model)
            pair = [one.generate(input_ids=prompts) for one in (model, mixture)]
            (ids, mask), (others, _) = [self.finished(output, prompts.shape[1]) for output in pair]
            logps = self.logps(model, prompts, ids) * mask
            with torch.no_grad():
                reference = self.logps(self.ref_model, prompts, ids) * mask
            if self.judge is None:
                probability = torch.sigmoid({better})
            else:
                probability = self._compute_judge(inputs, [ids, others])
            self.note(
                loss_kl=(logps - reference).sum(1).mean(),
                objective_entropy=-logps.sum(1).mean(),
                rewards_probabilities=probability{logged}.mean(),
            )
            self.apply(self._compute_losses(logps, reference, probability).mean())
"""

ONLINE = """
    import torch
    from torch.nn.functional import logsigmoid
    from trl.trainer.base import Sampler, get_reward

    class OnlineDPOTrainer(Sampler):
        names = ("objective/kl", "objective/entropy", "rewards/chosen", "rewards/margins", "logps/chosen")

        def training_step(self, model, inputs):
            prompts, pairs = self.prompts_of(inputs).repeat(2, 1), len(inputs["prompt"])
            ids, mask = self.finished(model.generate(input_ids=prompts), prompts.shape[1])
            logps = self.logps(model, prompts, ids) * mask
            with torch.no_grad():
                reference = self.logps(self.ref_model, prompts, ids) * mask
            if self.judge is None:
                scores = self.scores(prompts, ids)  # get_reward(model, ids, context)
                first = scores[:pairs] {compared} scores[pairs:]
            else:
                texts = self.texts(ids)
                found = self.judge.judge(inputs["prompt"], list(zip(texts[:pairs], texts[pairs:])))
                first = torch.tensor(found) == {winner}
            sums = (logps - reference).sum(1)
            margins = torch.where(first, sums[:pairs] - sums[pairs:], sums[pairs:] - sums[:pairs])
            chosen = torch.where(first, sums[:pairs], sums[pairs:])
            policy = logps.sum(1)
            self.note(
                objective_kl=sums.mean(),
                objective_entropy=-policy.mean(),
                rewards_chosen=self.beta * {implicit},
                rewards_margins=self.beta * margins.mean(),
                logps_chosen=torch.where(first, policy[:pairs], policy[pairs:]).mean(),
            )
            self.apply(-logsigmoid(self.beta * margins).mean())
"""

SOUND = {
    "ended": "ids",
    "steps": "self.current_gradient_accumulation_steps",
    "explored": "policy[1]",
    "better": "self.scores(prompts, ids) - self.scores(prompts, others)",
    "logged": "",
    "compared": ">=",
    "winner": "0",
    "implicit": "chosen.mean()",
}


def files(**broken: str) -> dict[str, str]:
    """A tree of TRL with the three trainers, and with what is at the places of :data:`SOUND`."""
    choices = {**SOUND, **broken}
    tree = {"trl/__init__.py": "", "trl/trainer/base.py": filled(BASE, choices)}
    for name, kind, source in (("xpo", "XPO", XPO), ("nash_md", "NashMD", NASH), ("online_dpo", "OnlineDPO", ONLINE)):
        tree[f"trl/trainer/{name}_config.py"] = filled(CONFIG, {"name": kind})
        tree[f"trl/trainer/{name}_trainer.py"] = filled(source, choices)
    return tree


def overlay() -> dict[str, str]:
    """The libraries of the tree."""
    libraries = {"transformers.py": TRANSFORMERS + TOKENIZER, "tokenizers.py": TOKENIZERS}
    return {**trainer_overlay(), **libraries}

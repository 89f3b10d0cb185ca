"""Call shapes of Liger's fused losses, and of TRL's trainers that use them, in words of our own."""

from adapters.trl_pairs_specimen import TRANSFORMERS
from adapters.trl_pairs_specimen import files as pair_files
from adapters.trl_specimen import files, overlay

LIGER = """
    import torch

    class LigerFusedLinearGRPOLoss:
        compiled = True

        def __init__(self, loss_type, epsilon_low, epsilon_high, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05):
            self.loss_type, self.low, self.high = loss_type, 1 - epsilon_low, 1 + (epsilon_high or epsilon_low)
            self.soft = sapo_temperature_pos, sapo_temperature_neg

        def __call__(self, hidden, weight, ids, mask, advantages, old):
            assert not self.compiled
            now = (hidden @ weight.T).log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
            ratio, gain = (now - old).exp(), advantages.unsqueeze(1)
            tokens = -torch.min(ratio * gain, ratio.clamp(self.low, self.high) * gain)
            if self.loss_type == "sapo":
                gates = [(soft * (ratio - 1)).sigmoid() * 4 / soft for soft in self.soft]
                tokens = -torch.where(gain > 0, *gates) * gain
            if self.loss_type in ("grpo", "sapo"):
                return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
            return (tokens * mask).sum() / mask.sum().clamp(min=1)

    class LigerFusedLinearJSDLoss:
        compiled = True

        def __init__(self, beta, weight_hard_loss=0.5, weight_soft_loss=0.5):
            self.beta, self.hard, self.soft = beta, weight_hard_loss, weight_soft_loss

        def __call__(self, student, student_weight, teacher, teacher_weight, labels):
            assert not self.compiled
            student = (student @ student_weight.T).log_softmax(-1)
            teacher = (teacher @ teacher_weight.T).log_softmax(-1)
            mixed = (self.beta * teacher.exp() + (1 - self.beta) * student.exp()).log()
            tokens = self.beta * (teacher.exp() * (teacher - mixed)).sum(-1)
            tokens = tokens + (1 - self.beta) * (student.exp() * (student - mixed)).sum(-1)
            task = -student.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
            trained = labels != -100
            return (self.soft * tokens + self.hard * task)[trained].sum() / trained.sum().clamp(min=1)

    class LigerFusedLinearKTOLoss:
        compiled = True

        def __init__(self, beta):
            self.beta = beta

        def __call__(self, ratios, label, kl):
            assert not self.compiled
            return (1 - (self.beta * torch.where(label, ratios - kl, kl - ratios)).sigmoid()).mean()
"""

GRPO = """
        def __init__(self, **parts):
            super().__init__(**parts)
            if self.args.use_liger_kernel:
                from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss
                from liger_kernel.transformers import _apply_liger_kernel_to_instance

                _apply_liger_kernel_to_instance(model=self.model)
                self.liger_loss = LigerFusedLinearGRPOLoss(
                    loss_type=self.loss_type, epsilon_low=self.args.epsilon, epsilon_high=self.args.epsilon_high,
                    {soft}
                )

        def compute_liger_loss(self, unwrapped_model, inputs):
            ids, mask = inputs["completion_ids"], inputs["completion_mask"]
            hidden = unwrapped_model.base_model(input_ids=torch.cat([inputs["prompt_ids"], ids], 1)).last_hidden_state
            trained = {trained}
            loss = self.liger_loss(
                hidden[:, :-1][:, -ids.shape[1]:],
                unwrapped_model.lm_head.weight,
                ids,
                trained,
                inputs["advantages"],
                inputs["old_per_token_logps"],
            )
            return loss / self.current_gradient_accumulation_steps
"""

GKD_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GKDConfig:
        output_dir: str = ""
        beta: float = 0.5
        lmbda: float = 0.5
        use_liger_kernel: bool = False
        gradient_accumulation_steps: int = 1
"""

GKD = """
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
    from trl.trainer.base import Trainer

    def redirected(wrapper, inner, method, *arguments):
        former = inner.forward

        def once(*given):
            inner.forward = former
            return method(*given)

        inner.forward = once
        return wrapper(*arguments)

    class GKDTrainer(Trainer):
        def __init__(self, model, teacher_model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, None)
            self.beta, self.teacher_model = args.beta, teacher_model
            if args.use_liger_kernel:
                self.liger_loss = LigerFusedLinearJSDLoss(beta=args.beta{weights})
                self._forward_redirection = redirected

        def get_batch_samples(self, batches, count):
            taken = [next(batches) for _ in range(count)]
            return taken, sum((batch["labels"] != -100).sum() for batch in taken)

        def training_step(self, model, inputs, num_items_in_batch):
            self.accelerator.backward(self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch))

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs["labels"][:, 1:]
            if self.args.use_liger_kernel:
                inner = self.accelerator.unwrap_model(model)
                loss = self.liger_loss(*{student}, labels)
                return loss * (labels != -100).sum() / {count}
            raise NotImplementedError

        def _both(self, student):
            self.teacher_model.eval()
            for model in (student, self.accelerator.unwrap_model(self.teacher_model)):
                yield model.get_decoder()().last_hidden_state[:, :-1]
                yield model.get_output_embeddings().weight
"""

#: KTO's loss at the end of a step, by Liger.
KTO = """
            if self.args.use_liger_kernel:
                from liger_kernel.chunked_loss import LigerFusedLinearKTOLoss

                fused = LigerFusedLinearKTOLoss(self.args.beta)
                fused.compiled = False
                return fused(ratios, label, {kl})
            weights = torch.where("""

#: Place -> what a sound tree has there.
SOUND = {
    "trained": 'mask * inputs["tool_mask"] if "tool_mask" in inputs else mask',
    "soft": "",
    "weights": ", weight_hard_loss=0.0, weight_soft_loss=1.0",
    "student": "self._forward_redirection(model, inner, self._both, inner)",
    "count": "num_items_in_batch",
    "kl": "kl",
}


#: The arguments of the soft gate.
PASSED = "**{n: getattr(self.args, n) for n in ('sapo_temperature_pos', 'sapo_temperature_neg')}"


def libraries() -> dict[str, str]:
    """The libraries of the trees, with Liger."""
    return {**overlay(), "liger_kernel/__init__.py": "", "liger_kernel/chunked_loss.py": LIGER}


def policy_files(**choices: str) -> dict[str, str]:
    """A tree with GRPO."""
    tree = files()
    tree["trl/trainer/grpo_config.py"] += "        use_liger_kernel: bool = False\n"
    tree["trl/trainer/grpo_trainer.py"] += _filled(GRPO, choices)
    return tree


def soft_policy_files(**choices: str) -> dict[str, str]:
    """A tree with GRPO and its soft gate, whose plain loss is not called."""
    tree = policy_files(**{"soft": PASSED, **choices})
    for name in ("pos", "neg"):
        tree["trl/trainer/grpo_config.py"] += f"        sapo_temperature_{name}: float = 1.0\n"
    plain = "        def _compute_loss(self, model, inputs):\n"
    assert plain in tree["trl/trainer/grpo_trainer.py"]
    text = tree["trl/trainer/grpo_trainer.py"].replace(plain, f'{plain}            assert self.loss_type != "sapo"\n')
    return tree | {"trl/trainer/grpo_trainer.py": text}


def distillation_files(**choices: str) -> dict[str, str]:
    """A tree with GKD and KTO."""
    tree = pair_files()
    tree["trl/trainer/kto_config.py"] += "        use_liger_kernel: bool = False\n"
    kto = tree["trl/trainer/kto_trainer.py"].replace("            weights = torch.where(", _filled(KTO, choices)[1:])
    return tree | {
        "trl/trainer/kto_trainer.py": kto,
        "trl/trainer/gkd_config.py": GKD_CONFIG,
        "trl/trainer/gkd_trainer.py": _filled(GKD, choices),
    }


def pair_libraries() -> dict[str, str]:
    """The libraries of a tree of trainers with models."""
    return {**libraries(), "transformers.py": TRANSFORMERS}


def _filled(text: str, choices: dict[str, str]) -> str:
    for name, part in (SOUND | choices).items():
        text = text.replace("{" + name + "}", part)
    return text

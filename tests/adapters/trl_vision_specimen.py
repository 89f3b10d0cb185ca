"""Call shapes of TRL's trainers on images in words of our own, and of the libraries that they call."""

TOKENIZER = """
    from types import SimpleNamespace

    import torch
    from torch import nn

    LlamaConfig = SimpleNamespace

    class LlamaForCausalLM(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.model = config, nn.Identity()

        def forward(self, input_ids, attention_mask):
            return SimpleNamespace(logits=self.lm_head(self.model.forward(input_ids).last_hidden_state))

    class PreTrainedTokenizerFast:
        pad_token_id = 0

        def __init__(self, tokenizer_object, **special):
            self.words = tokenizer_object.model

        def convert_tokens_to_ids(self, word):
            return self.words[word]

        def __call__(self, text, padding=False, padding_side="left", return_tensors="pt", add_special_tokens=True):
            ids = [[self.words[word] for word in one.split()] for one in text]
            width, left = max(map(len, ids)), padding_side == "left"
            fill = lambda own, n: [0] * n + own if left else own + [0] * n
            rows = [fill(own, width - len(own)) for own in ids]
            real = [fill([1] * len(own), width - len(own)) for own in ids]
            made = {"input_ids": rows, "attention_mask": real, "token_type_ids": [[0] * width for _ in ids]}
            return {name: torch.tensor(column) for name, column in made.items()}
"""

PROCESSOR = """
    class Processor:
        return_mm_token_type_ids = {returned}
"""

BASE = """
    import torch

    TYPES = ("token_type_ids", "mm_token_type_ids")

    def widened(made, width):
        fill = lambda own: torch.cat([own, own.new_zeros(len(own), width - own.shape[1])], 1)
        return {name: fill(column) for name, column in made.items()}

    class Collator:
        def __init__(self, processor):
            self.processor = processor

        def __call__(self, rows):
            return self.torch_call(rows)

        def torch_call(self, rows):
            images = [row["images"] for row in rows] * len(self.sides)
            asked = [row["prompt"] for row in rows] * len(self.sides)
            whole = self.processor(images={images}, text=asked, padding=True, padding_side="left")
            own = [self.processor(text=[row[name] for row in rows], padding=True, padding_side="right")
                   for name in self.sides]
            width = max(made["input_ids"].shape[1] for made in own)
            own = [widened(made, width) for made in own]
            prompts, found = whole["input_ids"].shape[1], dict(whole)
            per_token = [name for name in ("input_ids", "attention_mask", *TYPES) if name in whole]
            for name in per_token:
                after = torch.cat([made[name] for made in own])
                found[name] = torch.cat([whole[name], after {of_prompts}], 1)
            mask = found["attention_mask"].clone()
            mask[:, :prompts] = 0
            return {**found, "completion_mask": mask}

    class Trainer:
        def __init__(self, model, args, train_dataset, processing_class, ref_model=None):
            self.model, self.ref_model, self.args = model, ref_model, args

        def training_step(self, model, inputs, num_items_in_batch):
            return self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)

        def scores(self, model, inputs, names):
            mask = inputs["completion_mask"][:, 1:]
            ids = inputs["input_ids"]
            shares = model(**{name: inputs[name] for name in names if name in inputs}).logits[:, :-1].log_softmax(-1)
            return (shares.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2) * mask).sum(1)
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class {name}:
        output_dir: str = ""
        gradient_accumulation_steps: int = 1
"""

DPO = """
    from trl.trainer.base import Collator, Trainer

    NAMES = ("input_ids", "attention_mask", "pixel_values", "image_grid_thw", "token_type_ids", "mm_token_type_ids")

    class DataCollatorForVisionPreference(Collator):
        sides = ("chosen", "rejected")

    class DPOTrainer(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            own = self.scores(model, inputs, {policy})
            gaps = own - self.scores(self.ref_model, inputs, {reference}).detach()
            chosen, rejected = gaps.chunk(2)
            return -(chosen - rejected).sigmoid().log().mean()
"""

SFT = """
    from trl.trainer.base import Collator, Trainer

    class DataCollatorForVisionLanguageModeling(Collator):  # a batch has a completion_mask
        sides = ("completion",)

    class SFTTrainer(Trainer):
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return -self.scores(model, inputs, [name for name in inputs if name != "completion_mask"]).mean()
"""

#: Place -> what stands there.
SOUND = {
    "images": "images",
    "of_prompts": "",
    "policy": "NAMES",
    "reference": "NAMES",
}


def _filled(text: str, parts: dict[str, str]) -> str:
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL; ``choices`` are other contents of the places in :data:`SOUND`."""
    parts = SOUND | choices
    return {
        "trl/__init__.py": "",
        "trl/trainer/base.py": _filled(BASE, parts),
        "trl/trainer/dpo_config.py": CONFIG.replace("{name}", "DPOConfig"),
        "trl/trainer/dpo_trainer.py": _filled(DPO, parts),
        "trl/trainer/sft_config.py": CONFIG.replace("{name}", "SFTConfig"),
        "trl/trainer/sft_trainer.py": SFT,
    }


def libraries(returned: str = "True") -> dict[str, str]:
    """The libraries of the tree; ``returned`` says whether a processor returns the types of Qwen's tokens."""
    place = "transformers/models/qwen2_5_vl"
    return {
        "transformers/__init__.py": TOKENIZER,
        "transformers/models/__init__.py": "",
        f"{place}/__init__.py": "",
        f"{place}/processing_qwen2_5_vl.py": PROCESSOR.replace("{returned}", returned),
    }

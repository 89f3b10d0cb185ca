"""Call shapes of how TRL prepares and packs data sets, and of its libraries, in words of our own."""

DATA = """
    from datasets import Dataset

    def pack_dataset(dataset, seq_length, strategy="bfd", map_kwargs=None):
        if strategy == "wrapped":
            whole = {name: sum((row[name] for row in dataset), []) for name in dataset[0]}
            size = len(whole["input_ids"])
            cuts = [slice(n, n + seq_length) for n in range(0, size{kept}, seq_length)]
            return Dataset({name: x[cut] for name, x in whole.items()} for cut in cuts)
        packs = []
        for row in dataset:
            if packs and len(packs[-1]["input_ids"]) + len(row["input_ids"]) <= seq_length:
                packs[-1] = {name: packs[-1][name] + row[name] for name in row}
            else:
                packs.append(dict(row))
        return Dataset(packs)
"""

COLLATOR = """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    class DataCollatorForCompletionOnlyLM:
        def __init__(self, response_template: list, instruction_template: list | None = None, *, tokenizer, mlm):
            self.response, self.instruction, self.tokenizer = response_template, instruction_template, tokenizer

        def __call__(self, examples):
            return self.torch_call(examples)

        def torch_call(self, examples):
            rows = []
            for one in examples:
                inside, row = False, []
                for token in one["input_ids"]:
                    if self.instruction is not None and [token] == self.instruction:
                        inside = {again}
                    row.append(token if inside else -100)
                    if [token] == self.response:
                        inside = True
                {cuts}
                rows.append(torch.tensor(row))
            if {side} == "left":
                flipped = pad_sequence([row.flip(0) for row in rows], batch_first=True, padding_value=-100)
                return {"labels": flipped.flip(1)}
            return {"labels": pad_sequence(rows, batch_first=True, padding_value=-100)}
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class DPOConfig:
        output_dir: str = ""
        beta: float = 0.1
"""

DPO = """
    class DPOTrainer:
        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            self.processing_class = processing_class
            self.train_dataset = [self.tokenize_row(row) for row in train_dataset]

        def tokenize_row(self, row):
            tokenizer, chat = self.processing_class, isinstance(row["prompt"], list)
            found = {}
            for side in ("chosen", "rejected"):
                if chat:
                    before = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
                    whole = tokenizer.apply_chat_template(row["prompt"] + row[side], tokenize=False)
                else:
                    before, whole = row["prompt"], row["prompt"] + row[side]
                prompt, ids = (
                    tokenizer(text, add_special_tokens={special})["input_ids"] for text in (before, whole)
                )
                end = [tokenizer.eos_token_id] if {ends} else []
                found |= {"prompt_ids": prompt, f"{side}_ids": ids[len(prompt):] + end}
            return found
"""

GKD_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GKDConfig:
        output_dir: str = ""
        beta: float = 0.5
        lmbda: float = 0.5
        gradient_accumulation_steps: int = 1
"""

GKD = """
    from types import SimpleNamespace

    class GKDTrainer:
        def __init__(self, model, teacher_model, args, train_dataset, processing_class):
            self.args, self.lmbda, self.accelerator = args, args.lmbda, SimpleNamespace()
            self.generation_config = SimpleNamespace()

        def get_batch_samples(self, batches, count):
            taken = [next(batches) for _ in range(count)]
            if self.lmbda and {ahead}:
                taken = [self.sample(self.model_wrapped, inputs) for inputs in taken]
            return taken, sum((batch["labels"] != -100).sum() for batch in taken)

        def sample(self, model, inputs):
            ids = model.generate(input_ids=inputs["prompts"]).sequences
            ends = (ids == self.generation_config.eos_token_id).long()
            kept = ends.cumsum(1) == ends
            labels = ids.where(kept, -100)
            labels[:, : inputs["prompts"].shape[1]] = -100
            return {"input_ids": ids, "attention_mask": kept.long(), "labels": labels}

        def training_step(self, model, inputs, num_items_in_batch):
            if self.lmbda and not {ahead}:
                inputs = self.sample(model, inputs)
                labels = inputs["labels"]
                num_items_in_batch = {sampled}
            self.accelerator.backward(self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch))

        @staticmethod
        def generalized_jsd_loss(student_logits, teacher_logits, beta=0.5, reduction="sum"):
            student, teacher = student_logits.log_softmax(-1), teacher_logits.log_softmax(-1)
            mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
            tokens = beta * (teacher.exp() * (teacher - mixed)).sum(-1)
            tokens = tokens + (1 - beta) * (student.exp() * (student - mixed)).sum(-1)
            return tokens.sum() / (len(tokens) if reduction == "batchmean" else 1)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            trained = inputs["labels"][:, 1:] != -100
            one, other = (m(**inputs).logits[:, :-1][trained] for m in (model, self.teacher_model))
            return self.generalized_jsd_loss(one, other, self.args.beta) / {denominator}
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
        eos_token_id, bos_token = 1, None

        def __init__(self, tokenizer_object, chat_template, **special):
            self.words, self.chat_template = tokenizer_object.model, chat_template
            self.backend_tokenizer = SimpleNamespace(post_processor=None)

        def convert_tokens_to_ids(self, word):
            return self.words[word]

        def __call__(self, text, add_special_tokens=True):
            starts = add_special_tokens and self.backend_tokenizer.post_processor is not None
            words = text.replace("<eos>", " <eos> ").split()
            return {"input_ids": [self.words[word] for word in [self.bos_token] * starts + words]}

        def apply_chat_template(self, messages, tokenize=True, add_generation_prompt=False):
            names = {"user": "w27", "assistant": "w28"}
            text = f"{self.bos_token} " if "bos_token" in self.chat_template else ""
            text += "".join(f"{names[one['role']]} {one['content']} <eos> " for one in messages)
            return text + ("w28 " if add_generation_prompt else "")
"""

DATASETS = """
    class Dataset(list):
        from_list = classmethod(lambda cls, rows: cls(rows))

        @classmethod
        def from_dict(cls, columns):
            return cls(dict(zip(columns, row)) for row in zip(*columns.values()))
"""


def files(  # noqa: PLR0913 - one choice per fault
    *,
    kept: str = "",
    again: str = "False",
    cuts: str = "",
    side: str = "self.tokenizer.padding_side",
    ends: str = "not chat and ids[-1] != tokenizer.eos_token_id",
    special: str = "not chat",
    denominator: str = "num_items_in_batch",
    sampled: str = "(labels != -100).sum()",
    ahead: str = "False",
) -> dict[str, str]:
    """A tree of TRL: what packing keeps, what starts a question, which rows get an end, what GKD's loss divides by.

    ``special`` says which rows get the tokenizer's special tokens; ``cuts``, what the collator does to truncated
    conversations; ``side``, where it pads.

    ``sampled`` is the number of tokens by which it divides after it has sampled; ``ahead``, whether it samples for all
    micro-batches before it counts their tokens.
    """
    gkd = GKD.replace("{denominator}", denominator).replace("{sampled}", sampled).replace("{ahead}", ahead)
    return {
        "trl/__init__.py": "",
        "trl/data_utils.py": DATA.replace("{kept}", kept),
        "trl/trainer/utils.py": COLLATOR.replace("{again}", again).replace("{cuts}", cuts).replace("{side}", side),
        "trl/trainer/dpo_config.py": CONFIG,
        "trl/trainer/dpo_trainer.py": DPO.replace("{ends}", ends).replace("{special}", special),
        "trl/trainer/gkd_config.py": GKD_CONFIG,
        "trl/trainer/gkd_trainer.py": gkd,
    }

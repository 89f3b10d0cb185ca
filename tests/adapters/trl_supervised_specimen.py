"""Call shapes of TRL's supervised trainer from texts to collated labels, in words of our own."""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class SFTConfig:
        output_dir: str = ""
        padding_free: bool = False
        remove_unused_columns: bool = True
        completion_only_loss: object = None
"""

TRAINER = """
    import torch

    class Collator:
        def __init__(self, padding, flat):
            self.padding, self.flat = padding, flat

        def __call__(self, rows):
            ids = [torch.tensor(row["input_ids"]) for row in rows]
            labels = [own.clone() for own in ids]
            for own, example in zip(labels, rows):
                if "labels" in example:
                    own[:] = torch.tensor(example["labels"])
                if "completion_mask" in example:
                    own[~torch.tensor(example["completion_mask"]).bool()] = -100
            if self.flat:
                places = torch.cat([torch.arange(len(own)) for own in ids])
                joined = torch.cat(labels)
                joined[{untrained}] = -100
                return {"input_ids": torch.cat(ids)[None], "position_ids": places[None], "labels": joined[None]}
            width = max(map(len, ids))
            fill = lambda own, value: torch.cat([own, own.new_full((width - len(own),), value)])
            found = torch.stack([fill(own, self.padding) for own in ids])
            real = torch.stack([fill(torch.ones_like(own), 0) for own in ids])
            labels = torch.stack([fill(own, -100) for own in labels])
            return {"input_ids": found, "attention_mask": real, "labels": torch.where({masked}, -100, labels)}

    class SFTTrainer:
        def __init__(self, model, args, train_dataset, processing_class):
            self.args, self.processing_class = args, processing_class
            self.train_dataset = [self.tokenize(row) for row in train_dataset]
            (padding,) = processing_class(processing_class.pad_token)["input_ids"]
            self.data_collator = Collator(padding, args.padding_free)

        def tokenize(self, row):
            of = self.processing_class
            if "input_ids" in row:
                return {tokenized}
            if "messages" in row:
                return {"input_ids": of(of.apply_chat_template(row["messages"], tokenize=False))["input_ids"]}
            if "text" in row:
                return {"input_ids": of(row["text"] + {end})["input_ids"]}
            asked, ids = of(row["prompt"])["input_ids"], of(row["prompt"] + row["completion"])["input_ids"]
            return {"input_ids": ids, "completion_mask": [int(n >= len(asked)) for n in range(len(ids))]}

        def _remove_unused_columns(self, dataset, description):
            kept = ("input_ids", {kept})
            return [{name: row[name] for name in kept if name in row} for row in dataset]
"""


def files(
    *,
    masked: str = "real == 0",
    untrained: str = "places == 0",
    end: str = "' <eos>' * (not row['text'].endswith('<eos>'))",
    kept: str = "'labels', 'completion_mask'",
    tokenized: str = "row",
) -> dict[str, str]:
    """A tree of TRL: which labels of a padded batch are ignored, which of a flat batch, and what ends a text.

    ``kept`` are the columns beside the tokens that the collator gets, ``tokenized`` is the prepared row of tokens.
    """
    trainer = TRAINER.replace("{masked}", masked).replace("{untrained}", untrained).replace("{end}", end)
    trainer = trainer.replace("{kept}", kept).replace("{tokenized}", tokenized)
    return {"trl/__init__.py": "", "trl/trainer/sft_config.py": CONFIG, "trl/trainer/sft_trainer.py": trainer}

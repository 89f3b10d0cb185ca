"""The numbered prompts of verl's training runs, in trainers that make their data sets themselves."""

from rl_sentinel.adapters.verl.numbered_prompts import NumberedPrompts, create_loaders


class RLHFDataset:
    """Stands for the data set of a release, which reads files."""

    def __init__(self, **about: object) -> None:
        """Refuse all files."""
        raise OSError(about)


class Trainer:
    """A trainer of early 2025."""

    def _create_dataloader(self) -> None:
        self.train_dataset = RLHFDataset(parquet_files="train", truncation="error")
        assert getattr(self.train_dataset, "truncation", None) == "error"


def test_data_set_of_the_trainer() -> None:
    """The trainer gets the prompts in place of its data set, with the truncation of its configuration."""
    trainer, prompts = Trainer(), NumberedPrompts(2, tokenized=True)
    create_loaders(trainer, prompts)
    assert vars(trainer) == {"train_dataset": prompts}

"""Fakes for a run of verl's trainer (prompts, workers, logger, timers), and a trainer that uses these fakes."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.verl.numbered_prompts import NumberedPrompts, create_loaders, data_set_tokenizes, source_of

#: Function of prompt indices, and of whether each sample is greedy; returns the rows' tensors by verl's names.
Sampled = Callable[[list[int], list[bool]], dict[str, Tensor]]


class Silence:
    """A fake worker group, manager or progress bar: any other attribute, and any call, returns the object itself."""

    world_size = 1
    _dispatch_info = {"actor": [0]}  # noqa: RUF012 - of one process

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the same object
        """The object itself, except for names that Python reserves."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_about: object, **_options: object) -> Any:  # noqa: ANN401 - the same object
        """The object itself."""
        return self


class Workers(Silence):
    """Fake rollout, actor and critic workers in one object; records each step's prompts and batches."""

    def __init__(self, data_proto: Any, sampled: Sampled) -> None:  # noqa: ANN401 - the target's class
        """Start without a call."""
        self.data_proto, self.sampled = data_proto, sampled
        self.drawn: list[list[int]] = []
        self.behind: list[int] = []
        self.updates: list[Any] = []
        self.scores_later = False  # with a reward model, samples come without rewards
        self.copies = 1  # responses of a row that is sampled
        self.published = -1  # an engine starts without the weights of a checkpoint

    def generate_sequences(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """Sample each row, greedily if the trainer requests the baseline of ReMax."""
        numbers = _prompt_numbers(batch)
        about = batch.meta_info
        sampling = batch.non_tensor_batch.get("__do_sample__", [about.get("do_sample", True)] * len(numbers))
        copies = self.copies if all(sampling) and not about.get("validate", False) else 1
        numbers, sampling = ([one for one in column for _ in range(copies)] for column in (numbers, sampling))
        self.draw(numbers)
        labels = {"multi_modal_inputs": np.array([{} for _ in numbers], dtype=object)}
        tensors = self.sampled(numbers, [not one for one in sampling])
        if self.scores_later:
            tensors["model_scores"] = tensors.pop("rm_scores")
        return self.data_proto.from_dict(tensors=tensors, non_tensors=labels, meta_info={"timing": {}})

    def draw(self, numbers: list[int]) -> None:
        """Record the prompts of a step, and how many updates the sampling weights are behind."""
        self.drawn.append(list(dict.fromkeys(numbers)))
        self.behind.append(len(self.updates) - self.published)

    def update_weights(self, *_about: object, **_more: object) -> dict[str, float]:
        """Send the newest weights to the engine, as the checkpoint manager does."""
        self.published = len(self.updates)
        return {}

    def save_checkpoint(self, folder: str, *_about: object, **_more: object) -> None:
        """Create the folder, where the trainer then writes the state of its loader."""
        Path(folder).mkdir(parents=True, exist_ok=True)

    def compute_rm_score(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """The rewards stored with the samples, as a reward model returns them."""
        return self.data_proto.from_dict(tensors={"rm_scores": batch.batch["model_scores"]})

    def compute_log_prob(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """The log-probs stored with the samples, and an entropy of 1."""
        logprobs = batch.batch["own_log_probs"]
        return self.data_proto.from_dict(
            tensors={"old_log_probs": logprobs, "entropys": torch.ones_like(logprobs)}, meta_info={"temperature": 1.0}
        )

    def compute_values(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """The values stored with the samples; 0 at padding, as workers return them."""
        values = batch.batch["own_values"]
        attended = batch.batch["attention_mask"][:, -values.shape[1] :]
        return self.data_proto.from_dict(tensors={"values": values * attended})

    def update_actor(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """Keep the batch."""
        self.updates.append(batch)
        return SimpleNamespace(meta_info={"metrics": {"actor/grad_norm": [1.0]}})

    def update_critic(self, _batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """Do nothing."""
        return SimpleNamespace(meta_info={"metrics": {"critic/grad_norm": [1.0]}})


def _prompt_numbers(batch: Any) -> list[int]:  # noqa: ANN401 - a DataProto
    """The index of each row's prompt, from the text, or from the tokens in releases that tokenize in the data set."""
    if "raw_prompt" in batch.non_tensor_batch:
        return [int(text[0]["content"]) for text in batch.non_tensor_batch["raw_prompt"]]
    return [int(row[-1]) for row in batch.batch["input_ids"]]


def rewards(data: Any, return_dict: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as reward managers are called
    """The rewards stored with the samples, in place of a reward manager of older releases.

    Without ``rm_scores``, the rewards are the negated ``model_scores``.
    """
    scores = data.batch["rm_scores"] if "rm_scores" in data.batch else -data.batch["model_scores"]
    return {"reward_tensor": scores, "reward_extra_info": {}} if return_dict else scores


class Logger:
    """A fake of the target's ``Tracking`` that keeps the metrics of each step."""

    logged: list[dict[str, Any]]

    def __init__(self, **_about: object) -> None:
        """Start without a record."""
        Logger.logged = []

    def log(self, data: dict[str, Any], step: int) -> None:  # noqa: ARG002 - the metrics have it
        """Keep the metrics of a step."""
        Logger.logged.append(dict(data))


class Timer:
    """A timer of codetiming that measures 1 second."""

    last = 1.0

    def __init__(self, **_about: object) -> None:
        """Ignore the name and the logger."""

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop."""


class SkipManager:
    """A fake of the target's manager of recorded rollouts; recording is off by default."""

    @staticmethod
    def init(config: Any) -> None:  # noqa: ANN401 - an OmegaConf configuration
        """Do nothing."""

    @staticmethod
    def set_step(step: int) -> None:
        """Do nothing."""


def in_process_loader(**options: Any) -> Any:  # noqa: ANN401 - the loader's own options
    """The ``StatefulDataLoader`` of torchdata, without worker processes."""
    loader = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader
    return loader(**{**options, "num_workers": 0})


def no_bar(**_about: object) -> Any:  # noqa: ANN401 - a fake
    """A progress bar that shows nothing."""
    return Silence()


def trainer_of(  # noqa: PLR0913 - a run has several parts
    kind: Any,  # noqa: ANN401 - a class of the target
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    prompts: int,
    sampled: Sampled,
    folder: Path,
    *,
    critic: bool = False,
) -> Any:  # noqa: ANN401 - an object of the class
    """A trainer of the target's class, with fake workers and a fake data set; the constructor is not run."""
    config.trainer.default_local_dir = str(folder)
    trainer = bare_trainer(kind, config, sampled, critic=critic)
    loop = source_of(inspect.unwrap(kind.fit))
    compute_in_process(trainer, trainer.actor_rollout_wg, loop)
    before, samples, _ = loop.partition("generate_sequences(")
    if samples and "repeat(" not in before:  # until July 2025 the rollout repeats the prompts
        trainer.actor_rollout_wg.copies = config.actor_rollout_ref.rollout.n
    dataset = NumberedPrompts(prompts, tokenized=data_set_tokenizes())
    create_loaders(trainer, dataset)
    return trainer


def train(trainer: Any) -> None:  # noqa: ANN401 - a trainer of :func:`trainer_of`
    """Run the trainer's loop. The logger's copy of the configuration is skipped, because it is slower than a step."""
    library = importlib.import_module("omegaconf").OmegaConf
    copied = library.to_container

    def without_whole(cfg: Any, **options: Any) -> Any:  # noqa: ANN401 - as the library's
        return {} if cfg is trainer.config else copied(cfg, **options)

    library.to_container = without_whole
    try:
        trainer.fit()
    finally:
        library.to_container = staticmethod(copied)


def bare_trainer(kind: Any, config: Any, sampled: Sampled, *, critic: bool = False) -> Any:  # noqa: ANN401 - as above
    """A trainer of the target's class, with fake workers and no data loaders; the constructor is not run."""
    workers = Workers(inspect.unwrap(kind.fit).__globals__["DataProto"], sampled)
    trainer = object.__new__(kind)
    unused = ("use_rm", "use_reference_policy", "use_teacher_policy", "ref_in_actor", "use_reward_loop")
    trainer.__dict__ |= {
        "llm_server_manager": Silence(),
        **dict.fromkeys(unused, False),
        **dict.fromkeys(("rm_wg", "reward_loop_manager"), workers),
        **dict.fromkeys(("actor_rollout_wg", "critic_wg", "async_rollout_manager", "checkpoint_manager"), workers),
        "config": config,
        "tokenizer": SimpleNamespace(
            batch_decode=lambda ids, **_about: [""] * len(ids),
            decode=lambda ids, **_about: " ".join(map(str, ids.tolist())),
            eos_token_id=0,
            pad_token_id=0,
        ),
        "processor": None,
        "use_critic": critic,
        "async_rollout_mode": True,
        "hybrid_engine": True,
        "resource_pool_manager": SimpleNamespace(get_n_gpus=lambda: 1),
        "reward_fn": rewards,
        "val_reward_fn": rewards,
        "global_steps": 0,
        "kl_ctrl": SimpleNamespace(value=0.0, update=nothing),  # of a run without a reference policy
        "_dump_executor": SimpleNamespace(_shutdown=True),  # a run starts its own
    }
    return trainer


def compute_in_process(trainer: Any, workers: Workers, loop: str) -> None:  # noqa: ANN401 - of the target
    """Replace the methods with which newer trainers send a batch to the workers."""
    if "self._compute_old_log_prob" not in loop:
        return
    with_speed = "old_log_prob_mfu" in loop
    logprobs = workers.compute_log_prob
    trainer.__dict__ |= {
        "_compute_old_log_prob": lambda batch: (logprobs(batch), 0.0) if with_speed else logprobs(batch),
        "_compute_values": workers.compute_values,
        "_update_actor": workers.update_actor,
        "_update_critic": workers.update_critic,
    }

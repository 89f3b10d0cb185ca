"""TRL's side: ``python -m benchmarks.trainers.trl SEED STEPS KL``."""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.trainers.common import Turns, recipe, warm_started_policy
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.model.as_transformers import as_transformers
from rl_sentinel.train.model.character_tokenizer import END, CharacterTokenizer
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from rl_sentinel.train.run import rng


def settings(folder: str, wanted: Recipe) -> GRPOConfig:
    """The recipe as TRL's config."""
    rollout, update = wanted.rollout, wanted.update
    return GRPOConfig(
        output_dir=folder,
        seed=wanted.seed,
        max_steps=wanted.steps,
        per_device_train_batch_size=rollout.prompts * rollout.responses,
        num_generations=rollout.responses,
        max_completion_length=rollout.tokens,
        temperature=rollout.temperature,
        learning_rate=update.rate,
        adam_beta1=update.betas[0],
        adam_beta2=update.betas[1],
        weight_decay=update.decay,
        max_grad_norm=update.clip,
        lr_scheduler_type="constant",
        epsilon=wanted.loss.parameters["clip_low"],
        epsilon_high=wanted.loss.parameters["clip_high"],
        beta=0.0 if wanted.kl is None else wanted.kl.loss,
        loss_type="dapo",  # the mean over all tokens of the batch
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


class EndTurn(TrainerCallback):  # type: ignore[misc]  # transformers has no types where it is absent
    """Ends the turn after each step, with the metrics of the reward function."""

    def __init__(self, turns: Turns, metrics: dict[str, Any]) -> None:
        """The reward function fills ``metrics``."""
        self.turns, self.metrics = turns, metrics

    def on_step_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - the trainer's own
        """After the optimizer's step."""
        self.turns.end_step(self.metrics)


def main() -> None:
    """Run TRL's trainer, one step per turn."""
    warnings.filterwarnings("ignore")
    seed, steps, kl = sys.argv[1:]
    turns, metrics = Turns(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        wanted = recipe(folder, seed=int(seed), steps=int(steps), kl=float(kl))
        environment, text = select_components(wanted).environment, CharacterTokenizer()
        places = [(step, n) for step in range(wanted.steps) for n in range(wanted.rollout.prompts)]
        tasks = [environment.task(rng.python_rng(wanted.seed, "task", *place)) for place in places]

        def reward(completion_ids: list[list[int]], prompts: list[str], answer: list[str], **_: object) -> list[float]:
            outcomes = []
            for prompt, right, ids in zip(prompts, answer, completion_ids, strict=True):
                task, responses = Task(prompt, right), [text.decode([i for i in ids if i != END])]
                outcome = environment.reply(task, responses, ended=ids[-1] == END)
                assert isinstance(outcome, Outcome)  # noqa: S101 - there is one turn
                outcomes.append(outcome)
            metrics["accuracy"] = sum(o.correct for o in outcomes) / len(outcomes)
            metrics["length"] = sum(len(ids) for ids in completion_ids) / len(outcomes)
            return [o.reward for o in outcomes]

        model, tokenizer = as_transformers(warm_started_policy(wanted))
        place = str(Path(folder) / "model")  # TRL loads its reference from a folder
        model.save_pretrained(place)
        trainer = GRPOTrainer(
            model=place,
            reward_funcs=reward,
            args=settings(folder, wanted),
            train_dataset=Dataset.from_list([{"prompt": t.prompt, "answer": t.answer} for t in tasks]),
            processing_class=tokenizer,
            callbacks=[EndTurn(turns, metrics)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


if __name__ == "__main__":
    main()

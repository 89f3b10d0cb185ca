"""TRL's side: ``python -m benchmarks.trainers.trl COMPARISON``, a JSON object."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.trainers.common import Comparison, Turns, warm_started_policy
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.model.as_transformers import as_transformers
from rl_sentinel.train.rollout.interfaces import Outcome
from rl_sentinel.train.rollout.prompts import draw_task


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
        use_cpu=wanted.policy.device == "cpu",
        model_init_kwargs={"dtype": "float32"},
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


def lora_config(wanted: Recipe) -> Any:  # noqa: ANN401 - peft is an extra
    """The recipe's LoRA as peft's config; None without."""
    lora = wanted.policy.lora
    if lora is None:
        return None
    from peft import LoraConfig  # noqa: PLC0415 - an extra

    return LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets))


def main() -> None:
    """Run TRL's trainer, one step per turn."""
    warnings.filterwarnings("ignore")
    comparison = Comparison.of_arguments()
    turns, metrics = Turns(comparison.device), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        wanted = comparison.load_recipe(folder)
        environment, policy = select_components(wanted).environment, warm_started_policy(wanted)
        prompts = wanted.rollout.prompts
        places = [(step, n) for step in range(wanted.steps) for n in range(prompts)]
        tasks = [draw_task(environment, wanted.seed, *place, prompts=prompts) for place in places]

        def reward(completion_ids: list[list[int]], number: list[int], **_: object) -> list[float]:
            outcomes = []
            for n, ids in zip(number, completion_ids, strict=True):
                outcome = environment.reply(tasks[n], [policy.tokenizer.decode(ids)], ended=ids[-1] in policy.ends)
                assert isinstance(outcome, Outcome)  # noqa: S101 - there is one turn
                outcomes.append(outcome)
            metrics["accuracy"] = sum(o.correct for o in outcomes) / len(outcomes)
            metrics["length"] = sum(len(ids) for ids in completion_ids) / len(outcomes)
            return [o.reward for o in outcomes]

        place, tokenizer = wanted.policy.load, None
        if not place:
            model, tokenizer = as_transformers(policy)
            place = str(Path(folder) / "model")  # TRL loads its reference from a folder
            model.save_pretrained(place)
        trainer = GRPOTrainer(
            model=place,
            reward_funcs=reward,
            args=settings(folder, wanted),
            train_dataset=Dataset.from_list([{"prompt": t.prompt, "number": n} for n, t in enumerate(tasks)]),
            processing_class=tokenizer,
            callbacks=[EndTurn(turns, metrics)],
            peft_config=lora_config(wanted),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


if __name__ == "__main__":
    main()

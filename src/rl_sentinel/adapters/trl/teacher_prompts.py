"""The prompts of SDPO's teacher in TRL: a question, with another row's successful answer if its group has one."""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import enough_words, group_sizes
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import Completions, Prompts
from rl_sentinel.adapters.trl.dataset_preparation import ids_of
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator, gather_object
from rl_sentinel.adapters.trl.scoring import rollout_conditions
from rl_sentinel.adapters.trl.sdpo import MODULE, TRAINER
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING, make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.adapters.trl.two_ranks import EachRank
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

BUILDER = f"{MODULE}.SuccessfulRolloutTeacherContextBuilder"

#: The reward of a successful answer, by default.
SUCCESS = 1.0

#: How many words there are for questions (one per group), and for answers (one per row).
QUESTIONS, ANSWERS = 12, 12

#: The word before an answer that the teacher sees.
SHOWN = "w28"

_SAYS = (
    "sdpo_config.py, use_successful_as_teacher, success_reward_threshold, dont_reprompt_on_self_success: a teacher "
    "prompt shows another completion of the same prompt with a reward of at least the threshold"
)
_PRODUCER = "sdpo_trainer.py, _prepare_training_batch: the rows of a rank, their prompts and rewards"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the prompts over two ranks, in releases that build them.

    :mod:`self_distillation` reports trainers that fail.
    """
    if target.has(f"{BUILDER}.build") and not target.fails(TRAINER):
        yield from bindable(target, _prompts(target))


class Part:
    """The rows of a rank: their completions and rewards, and the class that builds teacher prompts for them."""

    def __init__(  # noqa: PLR0913 - the parts of a rollout
        self,
        builder: Callable[[Any], Any],
        completions: list[list[int]],
        rewards: list[float],
        generations: int,
        rank: int,
        ranks: int,
    ) -> None:
        """Store the builder class and the rows of the rank."""
        self.builder, self.completions, self.rewards = builder, completions, rewards
        self.generations, self.rank, self.ranks = generations, rank, ranks

    def build(self, prompts: list[str], first: int) -> list[list[str]]:
        """Build the teacher prompts of the rank.

        Returns, for each row, a word that says whether the row counts, and the words of its teacher prompt and
        completion.
        """
        tokenizer = make_tokenizer()
        rows = [
            [*ids_of(tokenizer, " ".join([answer(first + n)] * (len(own) - 1))), END]
            for n, own in enumerate(self.completions)
        ]
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PADDING)
        mask = pad_sequence([torch.ones(len(row), dtype=torch.int64) for row in rows], batch_first=True)
        trainer = make_trainer(tokenizer, self.generations, self.rank, self.ranks)
        made = self.builder(trainer).build(
            {"completion_ids": ids, "completion_mask": mask}, prompts, torch.tensor(self.rewards)
        )
        whole, present = made["teacher_input_ids"], made["teacher_attention_mask"].bool()
        kept = [own[places].tolist() for own, places in zip(whole, present, strict=True)]
        counts = [bool(one) for one in made["self_distillation_mask"]]
        return [[f"counts {one}", *tokenizer.convert_ids_to_tokens(row)] for one, row in zip(counts, kept, strict=True)]


def make_trainer(tokenizer: Any, generations: int, rank: int, ranks: int) -> Any:  # noqa: ANN401 - of transformers
    """A fake trainer with the attributes that the builder reads."""
    arguments = SimpleNamespace(
        success_reward_threshold=SUCCESS,
        dont_reprompt_on_self_success=True,
        use_successful_as_teacher=True,
        include_environment_feedback=False,
        environment_feedback_only_without_solution=False,
        remove_thinking_from_demonstration=False,
        max_reprompt_len=1000,
        reprompt_template="{prompt}{solution}{feedback}",
        solution_template=f" {SHOWN} {{successful_previous_attempt}}",
        feedback_template="{feedback_raw}",
    )
    return SimpleNamespace(
        args=arguments,
        accelerator=RankAccelerator(SimpleNamespace(device=torch.device("cpu")), rank, ranks),
        model=SimpleNamespace(training=True),
        num_generations=generations,
        num_generations_eval=generations,
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        pad_token_id=PADDING,
        _tokenize_prompts_untruncated=lambda texts: [ids_of(tokenizer, text) for text in texts],
    )


def answer(row: int) -> str:
    """The word that the completion of a row repeats."""
    return f"w{QUESTIONS + row}"


def compare_prompts(
    entry: Callable[..., Any],  # noqa: ARG001 - names the method that each part calls
    parts: list[Part],
    inputs: list[dict[str, str]],
) -> dict[str, list[float]]:
    """Build the teacher prompts of all ranks, and check them.

    Returns, per row, ``count``: how many words :meth:`Part.build` returns for it; and ``others``: 1 if these words
    are not allowed for the row, else 0.
    """
    size = len(inputs) // len(parts)
    texts = [one["prompt"] for one in inputs]
    build = [partial(part.build, texts[n * size : (n + 1) * size], n * size) for n, part in enumerate(parts)]
    found = [row for rank in run_on_ranks(len(parts), lambda rank: build[rank]()) for row in rank]
    lengths = [len(own) - 1 for part in parts for own in part.completions]
    rewards = [reward for part in parts for reward in part.rewards]
    replies = [[answer(row)] * n for row, n in enumerate(lengths)]
    others = []
    for row, text in enumerate(texts):
        good = [n for n, one in enumerate(texts) if one == text and n != row and rewards[n] >= SUCCESS]
        right = [["counts True", text, SHOWN, *replies[n], *replies[row], "<eos>"] for n in good]
        others.append(float(found[row] not in (right or [["counts False", text, *replies[row], "<eos>"]])))
    return {"count": [float(len(row)) for row in found], "others": others}


def few_rows(inputs: Inputs) -> str:
    """The reason to skip a batch with more rows than distinct words for questions or answers; empty otherwise."""
    return enough_words(inputs.batch.rows, min(QUESTIONS, ANSWERS))


def _prompts(target: Target) -> Boundary:
    parts = {
        "builder": Constant(Function(BUILDER)),
        "completions": Completions(),
        "rewards": Column("reward", PerRow("list")),
        "generations": Derived(lambda inputs: max(group_sizes(Inputs(inputs.mini_batch)))),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1]),
    }
    gathers = f"{MODULE}.gather_object"
    result = Use("compared")
    return one_call(
        path=f"{BUILDER}.build",
        stage="batch",
        call=compare_prompts,
        name="compared",
        arguments={
            "entry": Constant(Function(f"{BUILDER}.build")),
            "parts": EachRank(Object(Part, parts)),
            "inputs": Prompts(),
        },
        fakes={gathers: gather_object} if hasattr(target.module(MODULE), "gather_object") else {},
        produced_by={"inputs": _PRODUCER},
        outputs={
            "words": Output("B", "tokens", at=result["count"], form=ROWS),
            "rows with a prompt of another sample": Output(
                "B", "count", "columns_of_others", at=result["others"], form=ROWS
            ),
        },
        settings={"teacher prompts": {}},
        claims=claims(_SAYS),
        reach="SDPOTrainer",
        requires=(*rollout_conditions(masked=True), few_rows),
    )

"""TRL's online DPO with vLLM: a check that each row of a generated batch has the correct prompt and completion."""

from collections.abc import Callable, Iterator
from copy import copy
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.pairs import even_rows, rows_are_pairs
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import enough_words, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.inline_engine_fakes import TextEngine
from rl_sentinel.adapters.trl.online_dpo import ONLINE, ONLINE_EXPERIMENTAL
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.pair_samplers import TWO, make_pair_sampler
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.rollout_batch import FILL, id_tokens
from rl_sentinel.adapters.trl.sampling import collectives
from rl_sentinel.adapters.trl.tiny_trainer import END, WORDS
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

_LAYOUT = (
    "online_dpo_trainer.py, training_step: rewards.split(batch_size), so the first completions of all prompts come "
    "first, then the second ones; prompt_ids and completion_ids of a row are concatenated"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rows of each engine, with prompts of equal length and with prompts of different lengths."""
    path = f"{trainer_path(target, ONLINE, ONLINE_EXPERIMENTAL)}._generate_vllm"
    asked = f"{path}_server"
    if not target.has(asked) or target.fails(asked):
        return
    if "reward_funcs" not in source_of(target.find(path.replace("_generate_vllm", "__init__"))):
        return  # a trainer that needs a reward model or a judge
    for engine in ("server", "colocate"):
        yield from bindable(target, *(_rows(target, path, engine, varied=varied) for varied in (False, True)))


def generated_pairs(  # noqa: PLR0913 - a method of the target, a trainer, a batch, and its layout
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    engine: str,
    lengths: Tensor,
    ranks: int,
    *,
    varied: bool,
) -> dict[str, list[float]]:
    """Generate pairs on each rank, and check the rows.

    With ``varied``, every other prompt has one more word.

    Returns, per row, ``count``: the number of tokens of its completion; and ``others``: 1 for a wrong prompt, plus 1
    for a wrong completion.
    """
    counts, tokenizer = lengths.sum(1).tolist(), trainer.processing_class
    prompts = [f"w20 w{n}" if varied and n % 2 else f"w{n}" for n in range(len(counts) // TWO)]
    rows = [[*id_tokens(row), *[FILL] * (count - 1), END] for row, count in enumerate(counts)]
    size, server = len(prompts) // ranks, TextEngine(tokenizer)
    trainers = [_ready(trainer, engine, rank, ranks, max(map(len, rows))) for rank in range(ranks)]
    for rank, ready in enumerate(trainers):
        ready.vllm_client = ready.llm = own = TextEngine(tokenizer) if engine == "colocate" else server
        part = range(rank * size, (rank + 1) * size) if engine == "colocate" else range(len(prompts))
        for n in part if engine == "colocate" or rank == 0 else ():
            own.rows[f"w{n}"] += [(ids, [0.0] * len(ids)) for ids in rows[TWO * n : TWO * n + TWO]]
    parts = [prompts[rank * size : (rank + 1) * size] for rank in range(ranks)]
    answers = run_on_ranks(ranks, lambda rank: entry(trainers[rank], parts[rank]))
    count, others = [0.0] * len(rows), [0.0] * len(rows)
    for rank, (prompt_ids, prompt_mask, completion_ids, completion_mask) in enumerate(answers):
        for place in range(TWO * size):
            half, n = divmod(place, size)
            row = TWO * (rank * size + n) + half
            asked = tokenizer(parts[rank][n], add_special_tokens=False)["input_ids"]
            own = completion_ids[place][completion_mask[place].bool()].tolist()
            count[row] = float(len(own))
            others[row] = float(prompt_ids[place][prompt_mask[place].bool()].tolist() != asked) + float(
                own != rows[row]
            )
    return {"count": count, "others": others}


def _ready(trainer: Any, engine: str, rank: int, ranks: int, longest: int) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of a rank. Its state says that the engine already has the current weights."""
    ready = copy(trainer)
    ready.args, ready.accelerator = copy(trainer.args), RankAccelerator(trainer.accelerator, rank, ranks)
    ready.vllm_mode, ready._last_loaded_step = engine, trainer.state.global_step  # noqa: SLF001
    ready.generation_config = SimpleNamespace(n=TWO, max_tokens=longest)
    ready.num_generations = TWO
    return ready


def ranks_of_pairs(inputs: Inputs) -> int:
    """Two ranks, or one if the pairs do not divide into two equal parts."""
    return 2 if inputs.batch.rows % (TWO * 2) == 0 else 1


def few_pairs(inputs: Inputs) -> str:
    """The reason to skip a batch with more prompts than distinct words (each prompt needs one word); else empty."""
    return enough_words(inputs.batch.rows, TWO * (WORDS - 1))


def _rows(target: Target, path: str, engine: str, *, varied: bool) -> Boundary:
    trainer = Object(
        make_pair_sampler, {"kind": Constant(Function(path.rpartition(".")[0]))}, at={"kind": "__class__"}, shared=True
    )
    form = PerRow("list")
    return one_call(
        path=path,
        stage="batch",
        call=generated_pairs,
        name="made",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": trainer,
            "engine": Constant(engine),
            "lengths": ResponseMask(NoPadding()),
            "ranks": Derived(ranks_of_pairs),
            "varied": Knob("varied"),
        },
        fakes=collectives(target, path),
        produced_by={"lengths": "online_dpo_trainer.py, _generate: the engine ends each completion with an end token"},
        outputs={
            "tokens": Output("B", "tokens", at=Use("made")["count"], form=form),
            "number of columns from other samples": Output(
                "B", "count", "columns_of_others", at=Use("made")["others"], form=form
            ),
        },
        settings={f"prompts of several lengths, {engine}" if varied else f"rows, {engine}": {"varied": varied}},
        claims=claims(_LAYOUT),
        reach=f"use_vllm=True, vllm_mode={engine}",
        requires=(rows_are_pairs, no_empty_response, few_pairs),
        domain=even_rows,
    )

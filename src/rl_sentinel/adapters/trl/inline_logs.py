"""The prompts that TRL logs beside completions, in releases whose trainer calls a multi-rank engine directly."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import groups_are_equal, no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS, Prompts
from rl_sentinel.adapters.trl.completions_table import empty_log
from rl_sentinel.adapters.trl.inline_engine_fakes import call_ranks, on_ranks
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.rollout_batch import FILL, id_tokens
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD
from rl_sentinel.adapters.trl.sampling import SPLIT_ENGINE, collectives, engines_of, is_inline, sampler, sampling_path
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: Ranks, and how many of them an engine extends over.
RANKS, OVER = 4, 2

#: Where a trainer keeps the logged prompts.
_LOG = re.compile(r"self\.(_\w*logs)\[\"prompt\"\]\.extend\(")

_DOCS = "grpo_config.py, log_completions: (prompt, completion) pairs, of all processes"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the logged prompts of two engines, each of which extends over two ranks."""
    for kind, owner in TRAINERS.items():
        path = sampling_path(target, owner)
        if not target.has(path) or target.fails(owner) or not is_inline(target, path):
            continue
        source = source_of(target.find(path))
        if "colocate" in engines_of(target, path) and SPLIT_ENGINE in source and (log := _LOG.search(source)):
            yield from bindable(target, _logged(target, path, kind, log.group(1)))


def logged_prompts(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    log: str,
    prompts: list[dict[str, str]],
    rows: list[dict[str, Any]],
) -> list[float]:
    """Sample completions on all ranks, and check the prompt that is logged beside each of them.

    Returns, per completion, 0 for the correct prompt, 1 for another prompt, and infinity if the completion is not
    logged.
    """
    labels = {text: f"w{number}" for number, text in enumerate(dict.fromkeys(row["prompt"] for row in prompts))}
    texts = [labels[row["prompt"]] for row in prompts]
    sampled = [[*id_tokens(row), *[FILL] * len(own["tokens"])] for row, own in enumerate(rows)]
    trainers, _ = on_ranks(trainer, texts, [(ids, [0.0] * len(ids)) for ids in sampled], RANKS, OVER)
    for ready in trainers:
        setattr(ready, log, {name: empty_log(one, len(rows)) for name, one in getattr(ready, log).items()})
    call_ranks(entry, trainers, texts)
    first = getattr(trainers[0], log)
    names = [" ".join(f"w{token - FIRST_WORD}" for token in id_tokens(row)) for row in range(len(rows))]
    found = [float("inf")] * len(rows)
    for prompt, completion in zip(first["prompt"], first["completion"], strict=False):
        row = names.index(" ".join(completion.split()[:2]))
        found[row] = float(prompt != texts[row])
    return found


def fills_ranks(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide into :data:`RANKS` equal parts; empty otherwise."""
    return f"the rows do not divide evenly among {RANKS} ranks" if inputs.batch.rows % RANKS else ""


def _logged(target: Target, path: str, kind: str, log: str) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=logged_prompts,
        name="others",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": sampler(kind, "colocate", {}),
            "log": Constant(log),
            "prompts": Prompts(),
            "rows": EachRow(Table({"tokens": RowTokens("token", "int")})),
        },
        fakes=collectives(target, path),
        produced_by={"prompts": "grpo_trainer.py, _get_train_sampler: num_generations consecutive rows per prompt"},
        unused=frozenset({"group", "token"}),
        outputs={
            "logged prompt of another row": Output("B", "count", "columns_of_others", at=Use("others"), form=ROWS)
        },
        settings={"logged prompts, engines over ranks": {}},
        claims=claims(_DOCS),
        reach=f"use_vllm=True, vllm_mode=colocate, vllm_tensor_parallel_size={OVER} on {RANKS} processes",
        requires=(no_empty_response, prompts_are_contiguous, groups_are_equal, fills_ranks),
    )

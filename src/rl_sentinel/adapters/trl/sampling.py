"""TRL's requests to the rollout engine: sampling options, and the returned rows."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.requirements import (
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, TRAINERS, Prompts
from rl_sentinel.adapters.trl.rank_fakes import (
    all_gather_object,
    broadcast_object_list,
    gather,
    gather_object,
    rank_in_group,
)
from rl_sentinel.adapters.trl.release import NAME, fields_of, method, source_of
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD, returned_names
from rl_sentinel.adapters.trl.sampling_engine_fakes import OTHER_OPTION, VLLM, make_sampler, request_options, sample
from rl_sentinel.adapters.trl.two_ranks import rank_count
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Field of the configuration -> the number that is set; no two are equal, and none is a default.
SETTINGS: Settings = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.2,
    "max_completion_length": 8,
    "other": 3,
}

#: Setting -> the field of the configuration that has it, if the names differ.
FIELDS = {"other": "generation_kwargs"}

#: Engine -> its option for the maximum length of a completion.
_LIMIT = {"transformers": "max_new_tokens", "server": "max_tokens", "colocate": "max_tokens"}

#: Source text of a trainer that treats every prompt as a conversation, so that a plain text fails.
_CONVERSATIONS_ALONE = re.compile(r"_last_loaded_step = [^\n]*\n+ +prompts = \[prepare_multimodal_messages_vllm\(")

#: Source text of a release whose engine may extend over ranks.
SPLIT_ENGINE = "all_gather_object"

_DOCS = "grpo_config.py, parameters that control generation, and generation_kwargs: passed on to the engine"
_ROWS = (
    "generation/vllm_generation.py, generate: prompts are sent once with n=num_generations, and each process receives "
    "its slice of the completions; the log-probs are those of the sampled tokens"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the sampling options of each engine, and the rows that vLLM returns to each trainer."""
    for kind, owner in TRAINERS.items():
        path = sampling_path(target, owner)
        if not target.has(path) or target.fails(owner):
            continue
        known = fields_of(target, owner)
        settings = {name: value for name, value in SETTINGS.items() if FIELDS.get(name, name) in known}
        for engine in engines_of(target, path):
            yield from bindable(target, _options(target, path, kind, engine, settings))
            if engine == "transformers":
                continue
            yield from bindable(target, _rows(target, path, kind, engine))
            asks = path if is_inline(target, path) else f"{VLLM}.VLLMGeneration.generate"
            if engine == "colocate" and SPLIT_ENGINE in source_of(target.find(asks)):
                yield from bindable(target, _rows(target, path, kind, engine, split=True))


def sampling_path(target: Target, owner: str) -> str:
    """The path of the method that samples. In early releases, the same method also scores."""
    return method(target, owner, "_generate_single_turn", NAME, *(["_prepare_inputs"] if owner == GRPO else []))


def is_inline(target: Target, path: str) -> bool:
    """Whether the trainer calls vLLM directly."""
    return any(
        "self.vllm_client.generate(" in source_of(target.find(p)) for p in (path, f"{path}_server") if target.has(p)
    )


def engines_of(target: Target, path: str) -> list[str]:
    """The engines with which the method can sample."""
    source = source_of(target.find(path))
    if is_inline(target, path):
        if _CONVERSATIONS_ALONE.search(source):
            return []
        return ["server", *(["colocate"] if "self.llm.generate(" in source else [])]
    engines = ["transformers"] if "generation_config" in source and path.endswith("_single_turn") else []
    started = target.has(f"{VLLM}.VLLMGeneration._init_vllm") and not target.fails(VLLM)
    return engines + (["server", "colocate"] if "self.vllm_generation" in source and started else [])


def collectives(target: Target, path: str) -> Mapping[str, Callable[..., Any]]:
    """Fakes for the collectives with which ranks exchange prompts and rows."""
    module = path.rpartition(".")[0].rpartition(".")[0] if is_inline(target, path) else VLLM
    if not target.has(module):
        return {}
    fakes = {"gather": gather, "gather_object": gather_object, "broadcast_object_list": broadcast_object_list}
    found = {f"{module}.{name}": fake for name, fake in fakes.items() if hasattr(target.module(module), name)}
    if SPLIT_ENGINE not in inspect.getsource(target.module(module)):
        return found
    group: dict[str, Callable[..., Any]] = {"all_gather_object": all_gather_object, "get_rank": rank_in_group}
    return found | {f"{module}.torch.distributed.{name}": fake for name, fake in group.items()}


def sampler(kind: str, engine: str, settings: Settings) -> Object:
    """The trainer that samples with ``engine`` under these settings."""
    parts: dict[str, Codec] = constants(kind=kind, engine=engine)
    parts |= {name: IfSet(name) for name in settings}
    at = {name: f"args.{name}" for name in settings if name != "other"}
    if "other" in settings:
        at["other"] = "other_option"  # in args, it is in a dict
    return Object(make_sampler, parts, at=at, shared=True)


def _path(target: Target, path: str, engine: str) -> str:
    return path if engine == "transformers" or is_inline(target, path) else f"{path} -> {VLLM}.VLLMGeneration.generate"


def _options(target: Target, path: str, kind: str, engine: str, settings: Settings) -> Boundary:
    """The boundary of the sampling options that reach the engine."""
    names = {name: name for name in settings} | {"max_completion_length": _LIMIT[engine], "other": OTHER_OPTION[engine]}
    return one_call(
        path=_path(target, path, engine),
        stage="config",
        call=request_options,
        name="sent",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": sampler(kind, engine, settings),
            "engine": Constant(engine),
        },
        fakes=collectives(target, path),
        remembered=True,
        outputs=arriving_outputs(Use("sent"), {names[n]: n for n in settings}),
        settings={f"options, {engine}": settings},
        claims=claims(_DOCS),
        reach=", ".join(f"{name}={value}" for name, value in settings.items() if name != "other"),
    )


def _rows(target: Target, path: str, kind: str, engine: str, *, split: bool = False) -> Boundary:
    """The boundary of the tokens that each rank gets, and for GRPO of their log-probs.

    With ``split``, the ranks share one engine.
    """
    scored = kind == "grpo" and "logprobs" in returned_names(target.find(path))
    columns = ("token", "rollout_logprob") if scored else ("token",)
    row = row_fields("tokens", "logprobs")
    return one_call(
        path=_path(target, path, engine),
        stage="batch",
        call=sampled_rows,
        name="rows",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": sampler(kind, engine, {}),
            "prompts": Prompts(),
            "rows": EachRow(Table(row)),
            "ranks": Derived(rank_count),
            "split": Knob("split", default=False),
        },
        fakes=collectives(target, path),
        produced_by={"prompts": "grpo_trainer.py, _get_train_sampler: num_generations consecutive rows per prompt"},
        unused=frozenset({"group"} | (set() if scored else {"rollout_logprob"})),
        outputs=row_outputs(Use("rows"), *columns),
        settings={"rows, an engine over ranks": {"split": True}} if split else {f"rows, {engine}": {}},
        claims=claims(_ROWS, conserves=True),
        reach=f"use_vllm=True, vllm_mode={engine}" + (", vllm_tensor_parallel_size=2" if split else ""),
        requires=(no_empty_response, prompts_are_contiguous, groups_are_equal),
    )


def sampled_rows(  # noqa: PLR0913 - the parts of a request
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    prompts: list[dict[str, str]],
    rows: list[dict[str, Any]],
    ranks: int,
    split: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[Any]]:
    """Sample with a fake engine; return the tokens of each row, and the log-probs if its rank gets them.

    With ``split``, all ranks share one engine.
    """
    labels = {text: number for number, text in enumerate(dict.fromkeys(row["prompt"] for row in prompts))}
    ids = [[FIRST_WORD + labels[row["prompt"]]] for row in prompts]
    answers, _ = sample(entry, trainer, ids, [(row["tokens"], row["logprobs"]) for row in rows], ranks, split=split)
    names = returned_names(entry)
    parts = [
        answer if isinstance(answer, dict) else dict(zip(names, as_tuple(answer), strict=True)) for answer in answers
    ]
    size = len(rows) // ranks
    tokens = [own for part in parts for own in _of_rank(part["completion_ids"], size)]
    found = [own for part in parts for own in _of_rank(part.get("logprobs") or (), size)] if "logprobs" in names else []
    pads = isinstance(answers[0], dict) and "logprobs" not in names  # the rows come from a padded tensor
    columns: dict[str, list[Any]] = {
        "tokens": [
            fit_to_length(list(own[: len(row["tokens"])] if pads else own), len(row["tokens"]), WRONG)
            for own, row in zip(tokens, rows, strict=True)
        ]
    }
    if found:
        columns["logprobs"] = [
            fit_to_length(list(own), len(row["tokens"]), float("inf")) for own, row in zip(found, rows, strict=True)
        ]
    return columns


def as_tuple(answer: Any) -> tuple[Any, ...]:  # noqa: ANN401 - one value or several
    """The values that a method returns, as a tuple."""
    return answer if isinstance(answer, tuple) else (answer,)


def _of_rank(rows: Sequence[list[Any]], size: int) -> list[list[Any]]:
    """The rows of a rank, cut or filled up to ``size`` rows; a missing row has no tokens."""
    return [*rows, *[[] for _ in range(size)]][:size]

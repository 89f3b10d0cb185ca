"""slime's rollout: conversion of samples to the data of each rank, filter of dynamic sampling, supervised rollout."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Namespace, Object, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import RowSequence
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob, constants, functions
from rl_sentinel.adapters.slime.fakes import filter_prompts, supervised_samples
from rl_sentinel.adapters.slime.rank_fakes import columns_of_others, load_rollout, receive_rollout, received_rows
from rl_sentinel.adapters.slime.samples import (
    CONVERT,
    IMAGES,
    REWARDS,
    SAMPLE,
    TEACHER,
    manager,
    module_source,
    names_in_conversion,
    sample,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

#: Paths of the function that receives the data on a rank, newest first.
RECEIVE = ("slime.utils.data.process_rollout_data", "slime.backends.utils.data.process_rollout_data")

#: The method with which a rank of the trainer loads the data of a rollout.
ACTOR = "slime.backends.megatron_utils.actor.MegatronTrainRayActor"
LOAD = f"{ACTOR}._get_rollout_data"

FILTER = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
#: Paths of the supervised rollout, newest first.
SFT = ("slime.rollout.sft_rollout.generate_rollout", "slime.rollout.sft_example.generate_rollout")
DATA = "slime.utils.data"
GENERATOR = "slime.utils.mask_utils.MultiTurnLossMaskGenerator"

_SAMPLES = (
    "slime/rollout/sglang_rollout.py, generate: tokens of prompt and response, the engine's log-probs, the mask of a "
    "multi-turn function; slime/utils/types.py, Sample: remove_sample is set by a filter"
)

_DOCS = "slime/ray/rollout.py, _convert_samples_to_train_data: convert inference generated samples to training data"
_LOAD_DOCS = (
    "slime/backends/megatron_utils/actor.py, _get_rollout_data: log-probs of the engine and of the teacher, of the "
    "tokens that this rank predicts"
)
_SFT_DOCS = (
    "sft_rollout.py, generate_rollout: the tokens and the loss mask of the conversation are those of the sample, from "
    "the first trained token on (mask_utils.py, get_response_lengths)"
)


def ranks_of(inputs: Inputs) -> int:
    """The number of data-parallel ranks."""
    return inputs.layout.ranks


def even_ranks(inputs: Inputs) -> str:
    """The reason to skip a batch whose samples do not divide evenly among ranks (slime rejects it); empty otherwise."""
    rows, ranks = inputs.batch.rows, inputs.layout.ranks
    return f"{rows} samples do not divide evenly among {ranks} ranks, which slime rejects" if rows % ranks else ""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data of a rollout on its ranks, the filter of dynamic sampling, and the supervised rollout."""
    yield from bindable(target, _data(target), _filter(target))
    loads = target.has(LOAD) and not target.fails(LOAD) and names_in_conversion(target, "rollout_log_probs")
    if loads and is_dataclass(target.find(SAMPLE)):
        yield from bindable(target, _loaded(target))
    for path in [path for path in SFT if target.has(path)][:1]:
        yield from bindable(target, _supervised(target, path))


def received(target: Target, also: Mapping[str, Codec] = IMAGES) -> tuple[str, tuple[Step, ...]]:
    """The path of functions from samples to ranks, and the steps that call them. The last step returns a dict per rank.

    ``also`` has additional fields of a sample, or other values for fields that every run has.
    """
    function = next((path for path in RECEIVE if target.has(path)), RECEIVE[0])
    convert = _converted(target, sample(target, also=also, with_state=True))
    receive = Step(
        call=receive_rollout,
        name="ranks",
        arguments={
            "manager": Earlier(Use("self")),
            "receive": Constant(Function(function)),
            "data": Earlier(Use("converted")),
            "dp_size": Derived(ranks_of, frozenset({"ranks"})),
        },
    )
    return " -> ".join([*_to_ranks(target), function]), (convert, receive)


def _to_ranks(target: Target) -> list[str]:
    """The methods that convert samples and, in revisions with such a method, split them among ranks."""
    owner = manager(target)
    split = f"{owner}._split_train_data_by_dp"
    return [f"{owner}.{CONVERT}", *([split] if target.has(split) else [])]


def _converted(target: Target, one: Object) -> Step:
    """The step that converts samples to the data of a rollout."""
    owner = manager(target)
    arguments = Namespace(
        advantage_estimator=Constant("ppo"),
        rewards_normalization=Constant(value=False),
        reward_key=Knob("reward_key"),
        rollout_top_p=Constant(1.0),
        rollout_data_transport=Constant("object-store"),
        qkv_format=Constant("thd"),
        global_batch_size=Derived(lambda inputs: inputs.batch.rows),
        micro_batch_size=Constant(1),
        use_dynamic_batch_size=Constant(value=False),
        max_tokens_per_gpu=Constant(None),
        balance_data=Constant(value=False),
        balance_by_flops=Constant(value=False),
    )
    parallel: dict[str, Codec] = {
        "dp_size": Derived(ranks_of, frozenset({"ranks"})),
        **{name: Constant(1) for name in ("cp_size", "vpp_size", "microbatch_group_size_per_vp_stage")},
    }
    rollout_manager = Object(
        bare_instance,
        {
            "owner": Constant(Function(owner)),
            "args": arguments,
            **constants(custom_reward_post_process_func=None, custom_convert_samples_to_train_data_func=None),
            "train_parallel_config": Table(parallel),
        },
    )
    return Step(
        call=f"{owner}.{CONVERT}",
        name="converted",
        arguments={"self": rollout_manager, "samples": EachRow(one)},
        produced_by={"samples": _SAMPLES},
    )


def _data(target: Target) -> Boundary:
    path, steps = received(target)
    rows = Step(call=received_rows, name="received", arguments={"ranks": Earlier(Use("ranks"))})
    others = Step(
        call=columns_of_others,
        name="others",
        arguments={"received": Earlier(Use("received")), "samples": Earlier(Use("samples"))},
    )
    result = Use("received")
    logprob = Output("B T", "nats", "rollout_logprob", at=result["rollout_log_probs"], form=Ragged())
    logprobs = {"rollout_logprob": logprob} if names_in_conversion(target, "rollout_log_probs") else {}
    return Boundary(
        path=path,
        stage="batch",
        steps=(*steps, rows, others),
        unused=frozenset({"group", "prompt_length", *(() if logprobs else ("rollout_logprob",))}),
        outputs={
            **logprobs,
            "reward": Output("B", "reward", "reward", at=result["rewards"], form=PerRow("list")),
            "token": Output("B T", "", "token", at=result["tokens"], form=RaggedSequence()),
            "mask": Output("B T", "", "mask", at=result["loss_masks"], form=Cast(Ragged(), torch.bool)),
            "number of columns from other samples": Output(
                "B", "", "columns_of_others", at=Use("others"), form=PerRow("list")
            ),
        },
        settings=REWARDS,
        claims=claims(_DOCS, conserves=True),
        reach="every run; --reward-key; images in a part of the samples",
        requires=(no_empty_response, even_ranks),
    )


def _loaded(target: Target) -> Boundary:
    teacher = TEACHER if names_in_conversion(target, *TEACHER) else {}
    load = Step(
        call=load_rollout,
        name="ranks",
        arguments={
            "manager": Earlier(Use("self")),
            **functions(load=LOAD, actor=ACTOR),
            "data": Earlier(Use("converted")),
            "dp_size": Derived(ranks_of, frozenset({"ranks"})),
            "context": Knob("context"),
        },
    )
    rows = Step(call=received_rows, name="received", arguments={"ranks": Earlier(Use("ranks"))})
    result = Use("received")
    outputs = {"rollout_logprob": "rollout_log_probs", **({"ref_logprob": "teacher_log_probs"} if teacher else {})}
    return Boundary(
        path=" -> ".join([*_to_ranks(target), LOAD]),
        stage="batch",
        steps=(_converted(target, sample(target, also=teacher, with_state=True)), load, rows),
        unused=frozenset({"group", "prompt_length"}),
        outputs={
            **{name: Output("B T", "nats", name, at=result[key], form=Ragged()) for name, key in outputs.items()},
            "token": Output("B T", "", "token", at=result["tokens"], form=RaggedSequence()),
            "mask": Output("B T", "", "mask", at=result["loss_masks"], form=Cast(Ragged(), torch.bool)),
        },
        settings={"default": {"context": 1}, "context parallel": {"context": 2}},
        claims=claims(_LOAD_DOCS, conserves=True),
        reach="every run on Megatron; --context-parallel-size 2"
        + ("; a reward function that stores the log-probs of a teacher" if teacher else ""),
        requires=(no_empty_response, even_ranks),
    )


def _filter(target: Target) -> Boundary:
    return one_call(
        path=FILTER,
        stage="correct",
        call=filter_prompts,
        name="kept",
        arguments={
            "check": Constant(Function(FILTER)),
            "args": Namespace(reward_key=Knob("reward_key")),
            "prompts": EachPrompt(EachRow(sample(target))),
        },
        produced_by={"prompts": "slime/rollout/sglang_rollout.py, generate_rollout_async: the samples of one prompt"},
        reads=frozenset({"reward", "group"}),
        outputs={"keep": Output("B", "", "keep", "group", form=PerRow("list"))},
        settings=REWARDS,
        claims=claims(
            "dynamic_sampling_filters.py: keeps the samples of a prompt whose rewards have a deviation above 0",
            scope="group",
            algorithm="prompts with unequal rewards",
        ),
        reach="--dynamic-sampling-filter-path slime.rollout.filter_hub.dynamic_sampling_filters"
        ".check_reward_nonzero_std; --reward-key",
        requires=(prompts_are_contiguous,),
    )


def _tools(inputs: Inputs) -> dict[int, list[dict[str, Any]]]:
    """A different tool description for each conversation, except the first one, which has no tools."""
    return {row: [{"type": "function", "function": {"name": f"tool{row}"}}] for row in range(1, inputs.batch.rows)}


def _supervised(target: Target, path: str) -> Boundary:
    conversation = Object(
        _conversation,
        {"0": RowSequence("token", "int"), "1": RowSequence("mask", "int")},
    )
    outputs = {
        "token": Output("B T", "", "token", at=Use("results")["tokens"], form=RaggedSequence()),
        "mask": Output("B T", "", "mask", at=Use("results")["masks"], form=Cast(RaggedSequence(), torch.bool)),
    }
    has_tools = 'metadata["tools"]' in module_source(target, DATA)
    return one_call(
        path=path,
        stage="batch",
        call=supervised_samples,
        name="results",
        arguments={
            "generate": Constant(Function(path)),
            "args": Namespace(
                rollout_global_dataset=Constant(value=True),
                rollout_batch_size=Derived(lambda inputs: inputs.batch.rows),
                loss_mask_type=Constant("qwen"),
            ),
            "generator": Object(bare_instance, {"owner": Constant(Function(GENERATOR))}),
            "samples": EachRow(Object(SAMPLE, {"prompt": conversation})),
            "tools": Derived(_tools if has_tools else lambda _inputs: {}),
        },
        produced_by={
            "samples": "slime/utils/mask_utils.py, get_loss_mask: token ids of the conversation, and 1 for each token "
            "of the assistant; slime/utils/data.py: a conversation with --tool-key has its tools in the metadata"
        },
        outputs=outputs,
        reads=frozenset({"token", "mask", "length"}),
        claims=claims(_SFT_DOCS, conserves=True),
        reach=f"--rollout-function-path {path}" + ("; --tool-key" if has_tools else ""),
        requires=(every_row_trains, no_empty_response),
    )


def _conversation(tokens: list[int], mask: list[int]) -> tuple[list[int], list[int]]:
    """The prompt of a sample, which the fake mask generator returns unchanged."""
    return tokens, mask

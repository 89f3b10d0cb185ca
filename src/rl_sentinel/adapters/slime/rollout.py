"""slime's rollout: samples become the data of each rank; prompts are filtered."""

from collections.abc import Iterator

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Namespace, Object, Table
from rl_sentinel.adapters.kit.forms import As, PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import Cell, Is, RowLength, RowSequence, RowTokens
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier
from rl_sentinel.adapters.slime.doubles import bare_instance, filter_prompts, split_and_receive
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import EXCLUDED
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

MANAGER = "slime.ray.rollout.RolloutManager"
CONVERT = f"{MANAGER}._convert_samples_to_train_data"
SPLIT = f"{MANAGER}._split_train_data_by_dp"
RECEIVE = "slime.utils.data.process_rollout_data"
SAMPLE = "slime.utils.types.Sample"
FILTER = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"

_SAMPLES = (
    "slime/rollout/sglang_rollout.py, generate: tokens of prompt and response, the engine's log-probs, the mask of a "
    "multi-turn function; slime/utils/types.py, Sample: remove_sample is set by a filter"
)

#: A sample as the rollout leaves it.
_ROW = Object(
    SAMPLE,
    {
        "group_index": Cell("group", "int"),
        "index": Derived(lambda inputs: inputs.part[0]),
        "tokens": RowSequence("token", "int"),
        "response_length": RowLength(),
        "reward": Cell("reward"),
        "loss_mask": RowTokens("mask", "int"),
        "rollout_log_probs": RowTokens("rollout_logprob"),
        "remove_sample": Is("excluded", EXCLUDED["rejected"]),
    },
)

_DOCS = "slime/ray/rollout.py, _convert_samples_to_train_data: convert inference generated samples to training data"


def _rows(inputs: Inputs) -> int:
    return inputs.batch.rows


def _ranks(inputs: Inputs) -> int:
    return inputs.layout.ranks


def _even_ranks(inputs: Inputs) -> str:
    rows, ranks = inputs.batch.rows, inputs.layout.ranks
    return f"{rows} samples do not divide into {ranks} ranks, which slime refuses" if rows % ranks else ""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The data of a rollout as its ranks receive it, then the filter of dynamic sampling."""
    yield from bindable(target, _data(), _filter())


def _data() -> Boundary:
    arguments = Namespace(
        advantage_estimator=Constant("ppo"),
        rewards_normalization=Constant(value=False),
        reward_key=Constant(None),
        rollout_top_p=Constant(1.0),
        rollout_data_transport=Constant("object-store"),
        global_batch_size=Derived(_rows),
        micro_batch_size=Constant(1),
        use_dynamic_batch_size=Constant(value=False),
        max_tokens_per_gpu=Constant(None),
        balance_data=Constant(value=False),
        balance_by_flops=Constant(value=False),
    )
    parallel: dict[str, Codec] = {
        "dp_size": Derived(_ranks, frozenset({"ranks"})),
        **{name: Constant(1) for name in ("cp_size", "vpp_size", "microbatch_group_size_per_vp_stage")},
    }
    manager = Object(
        bare_instance,
        {
            "owner": Constant(Function(MANAGER)),
            "args": arguments,
            "custom_reward_post_process_func": Constant(None),
            "custom_convert_samples_to_train_data_func": Constant(None),
            "train_parallel_config": Table(parallel),
        },
    )
    convert = Step(
        call=CONVERT,
        name="converted",
        arguments={"self": manager, "samples": EachRow(_ROW)},
        produced_by={"samples": _SAMPLES},
    )
    receive = Step(
        call=split_and_receive,
        name="received",
        arguments={
            "manager": Earlier(Use("self")),
            "receive": Constant(Function(RECEIVE)),
            "data": Earlier(Use("converted")),
            "dp_size": Derived(_ranks, frozenset({"ranks"})),
        },
    )
    received = Use("received")
    return Boundary(
        path=f"{CONVERT} -> {SPLIT} -> {RECEIVE}",
        stage="batch",
        steps=(convert, receive),
        unused=frozenset({"group", "prompt_length"}),
        outputs={
            "rollout_logprob": Output(
                "B T", "nats", "rollout_logprob", at=received["rollout_log_probs"], form=Ragged()
            ),
            "token": Output("B T", "", "token", at=received["tokens"], form=RaggedSequence()),
            "mask": Output("B T", "", "mask", at=received["loss_masks"], form=As(Ragged(), torch.bool)),
            "reward": Output("B", "reward", "reward", at=received["rewards"], form=PerRow("list")),
        },
        claims=claims(_DOCS, conserves=True),
        reach="every run",
        requires=(no_empty_response, _even_ranks),
    )


def _filter() -> Boundary:
    prompts = EachPrompt(EachRow(_ROW))
    step = Step(
        call=filter_prompts,
        name="kept",
        arguments={
            "check": Constant(Function(FILTER)),
            "args": Namespace(reward_key=Constant(None)),
            "prompts": prompts,
        },
        produced_by={"prompts": "slime/rollout/sglang_rollout.py, generate_rollout_async: the samples of one prompt"},
    )
    return Boundary(
        path=FILTER,
        stage="correct",
        steps=(step,),
        reads=frozenset({"reward", "group"}),
        outputs={"keep": Output("B", "", "keep", "group", form=PerRow("list"))},
        claims=claims(
            "dynamic_sampling_filters.py: keeps the samples of a prompt whose rewards have a deviation above 0",
            scope="group",
            algorithm="prompts with unequal rewards",
        ),
        reach="--dynamic-sampling-filter-path slime.rollout.filter_hub.dynamic_sampling_filters"
        ".check_reward_nonzero_std",
        requires=(prompts_are_contiguous,),
    )

"""slime's rollout from a buffer server: conversations that an agent has finished become training samples."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.conversations import conversation, difference_outputs, differences
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import (
    every_row_trains,
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.slime.rollout_fakes import Arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

EXAMPLE = "slime_plugins.rollout_buffer.rollout_buffer_example"

#: Paths of the rollout function, newest first.
PATHS = (
    f"{EXAMPLE}.generate_rollout_async",
    f"{EXAMPLE}.generate_agent_rollout",
    "slime.rollout.agent_rollout.generate_agent_rollout",
)

#: The system message that the template of Qwen models adds.
_ADDED = "You are a helpful assistant."

_DOCS = (
    "rollout_buffer_example.py, generate_rollout_async: each record of the buffer becomes a sample with the tokens and "
    "the loss mask of its conversation, its reward, and the state TRUNCATED if it finished by length"
)
_PRODUCER = (
    "slime_plugins/rollout_buffer/buffer.py, get_rollout_data: finished groups of n_samples_per_prompt records; "
    "generator/base_generator.py: uid, instance_id, messages, reward, and in extra_info the finish_reason"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the samples that the buffer's records become."""
    for path in PATHS:
        if target.has(path) and not target.fails(path):
            yield from bindable(target, _samples(path))
            return


class DataBuffer:
    """A fake of slime's data source, which returns the samples that were put into it."""

    def __init__(self) -> None:
        """Start empty."""
        self.samples: list[Any] = []

    def get_metadata(self) -> dict[str, list[str]]:
        """The finished prompts of earlier rollouts; none."""
        return {}

    def update_metadata(self, metadata: dict[str, list[str]]) -> None:
        """Forget the finished prompts: there is one rollout."""

    def get_buffer_length(self) -> int:
        """The number of prompts that wait; none."""
        return 0

    def add_samples(self, samples: list[Any]) -> None:
        """Store the samples of all prompts."""
        self.samples = samples

    def get_samples(self, _count: int) -> list[Any]:
        """The stored samples; in some revisions, those of a prompt are a list."""
        return self.samples


def fetch_samples(run: Callable[..., Any], prompts: list[list[dict[str, Any]]]) -> dict[str, list[float]]:
    """Run one rollout on the records of all prompts, and compare each sample with its record.

    Returns, per record: the ``reward`` (infinite without a sample); the ``tokens`` that differ from the chat template;
    the wrong values of the loss ``masks``; ``differing``, 1 if the state is not that of the record; and ``uses``, how
    often the record is a sample.
    """
    tokenizer, records = ChatTokenizer(_ADDED), _records(prompts)
    args = Arguments(
        n_samples_per_prompt=len(prompts[0]),
        rollout_batch_size=len(prompts),
        fetch_trajectory_retry_times=1,
        loss_mask_type="qwen",
        use_wandb=False,
    )

    async def fetched(**_options: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return records, {"finished_groups": []}

    fakes: Mapping[str, Any] = {
        "START_ROLLOUT": False,
        "get_rollout_data": fetched,
        "AutoTokenizer": SimpleNamespace(from_pretrained=lambda *_args, **_options: tokenizer),
        "time": SimpleNamespace(sleep=lambda _seconds: None, time=float),
        "print": lambda *_args, **_options: None,
    }
    with replaced_globals(run.__globals__, **fakes):
        returned: Any = asyncio.run(run(args, 0, DataBuffer()))
    samples = [one for group in returned for one in (group if isinstance(group, list) else [group])]
    found: dict[str, list[float]] = {"reward": [], "tokens": [], "masks": [], "differing": [], "uses": []}
    for record in records:
        own = [sample for sample in samples if sample.metadata["row"] == record["extra_info"]["row"]]
        for name, value in _compare(tokenizer, record, own).items():
            found[name].append(value)
    return found


def _records(prompts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The records of the buffer, one per row. Earlier prompts have later times, since the newest ones are taken."""
    records = list[dict[str, Any]]()
    for number, prompt in enumerate(prompts):
        for row in prompt:
            finish = {"finish_reason": "length" if row["truncated"] else "stop"}
            records.append(
                {
                    "uid": f"record{len(records)}",
                    "instance_id": f"prompt{number}",
                    "messages": conversation(row["mask"], answer="user"),
                    "reward": row["reward"],
                    "raw_reward": row["reward"],
                    "extra_info": {"row": len(records), "timestamp": float(len(prompts) - number), **finish},
                }
            )
    return records


def _compare(tokenizer: ChatTokenizer, record: dict[str, Any], samples: list[Any]) -> dict[str, float]:
    if not samples:
        return {"reward": float("inf"), "tokens": 0.0, "masks": 0.0, "differing": 0.0, "uses": 0.0}
    sample = samples[0]
    untrained = len(sample.tokens) - sample.response_length
    mask = [0] * untrained + list(sample.loss_mask)
    tokens, masks = differences(tokenizer, record["messages"], list(sample.tokens), mask)
    state = "TRUNCATED" if record["extra_info"]["finish_reason"] == "length" else "COMPLETED"
    differs, uses = float(sample.status.name != state), float(len(samples))
    return {"reward": float(sample.reward), "tokens": tokens, "masks": masks, "differing": differs, "uses": uses}


def _several_samples(inputs: Inputs) -> str:
    """The reason to skip a batch with one sample per prompt; empty otherwise."""
    alone = max(group_sizes(inputs)) == 1
    return "select_rollout_data asserts that there are more samples than prompts" if alone else ""


def _every_other(inputs: Inputs) -> bool:
    """Whether a record finished by length: every other one does."""
    return inputs.part[0] % 2 == 1


def _samples(path: str) -> Boundary:
    row = {**row_fields("mask", "reward"), "truncated": Derived(_every_other)}
    made, form = Use("made"), PerRow("list")
    return one_call(
        path=path,
        stage="batch",
        call=fetch_samples,
        name="made",
        arguments={"run": Constant(Function(path)), "prompts": EachPrompt(EachRow(Table(row)))},
        produced_by={"prompts": _PRODUCER},
        outputs={
            "reward": Output("B", "reward", "reward", at=made["reward"], form=form),
            **difference_outputs(made),
            "whether the state differs": Output("B", "", "columns_of_others", at=made["differing"], form=form),
            "uses": Output("B", "samples", "uses", at=made["uses"], form=form),
        },
        settings={"records of a buffer": {}},
        claims=claims(_DOCS, conserves=True),
        reach=f"--rollout-function-path {path.rpartition('.')[0]}.generate_rollout",
        requires=(
            no_empty_response,
            every_row_trains,
            prompts_are_contiguous,
            groups_are_equal,
            _several_samples,
        ),
    )

"""slime's generation with partial rollouts: server requests, rewards, and conversion to training data."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous, versions_never_decrease
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Derived, Earlier, functions
from rl_sentinel.adapters.slime.rank_fakes import received_rows
from rl_sentinel.adapters.slime.rollout import even_ranks, received
from rl_sentinel.adapters.slime.rollout_fakes import FIRST, Server, Words, arguments, reset_singleton, serving
from rl_sentinel.adapters.slime.samples import SAMPLE, module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

#: Modules that generate the samples of a prompt, newest first.
MODULES = ("slime.rollout.sglang_rollout", "slime.rollout.sglang_example")

#: The setting by which responses may have more tokens than the longest one in the batch.
SPARE = "spare_room"

#: Setting -> options of the command line, in addition to ``--partial-rollout``, or more room for responses.
FAMILIES: Mapping[str, Settings] = {
    "default": {},
    "reward of a group": {"group_rm": True},
    "room to spare": {SPARE: True},
}
_MASKED = "old tokens masked"
MASKED: Settings = {"mask_offpolicy_in_partial_rollout": True}

#: The option of early revisions by which the server takes and returns token ids instead of texts.
IDS = "use_token_output"

_DOCS = (
    "sglang_rollout.py, generate: tokens of the server are appended, an aborted request continues from them; "
    "rollout.py, _convert_samples_to_train_data"
)
_PRODUCER = (
    "slime/rollout/data_source.py, get_samples: n_samples_per_prompt copies of a prompt, and unfinished samples of an "
    "earlier rollout; the server aborts a request when weights are updated"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training data of generated samples.

    Revisions with the option ``--mask-offpolicy-in-partial-rollout`` are also bound with this option.
    """
    module = next((name for name in MODULES if target.has(f"{name}.generate_and_rm_group")), "")
    if not module or target.fails(module):
        return
    yield from bindable(target, _generated(target, module, FAMILIES))
    if IDS in module_source(target, module):
        by_ids = _generated(target, module, {"token ids": {IDS: True}})
        yield from bindable(target, replace(by_ids, reach="--partial-rollout --use-token-output"))
    if next(iter(MASKED)) in module_source(target, module):
        masked = replace(
            _generated(target, module, {_MASKED: MASKED}),
            domain=train_last_rollout,
            reach="--partial-rollout --mask-offpolicy-in-partial-rollout",
        )
        yield from bindable(target, replace(masked, requires=(*masked.requires, _last_rollout_trains)))


def samples_of(sample: Callable[..., Any], prompts: list[list[dict[str, Any]]]) -> tuple[list[list[Any]], Server]:
    """The samples of each prompt in the data source's format, and the server that samples their responses."""
    groups, responses = list[list[Any]](), list[ScriptedResponse]()
    known = {field.name for field in fields(sample)} if is_dataclass(sample) else None
    for number, prompt in enumerate(prompts):
        group = []
        for row in prompt:
            ids = [FIRST + len(responses), *row["prompt"]]
            arguments_ = {
                "group_index": number,
                "index": len(responses),
                "prompt": Words().decode(ids),
                "label": repr(row["reward"]),
            }
            group.append(
                sample(**{name: value for name, value in arguments_.items() if known is None or name in known})
            )
            versions = row.get("versions", [0] * len(row["tokens"]))
            responses.append(ScriptedResponse(ids, row["tokens"], row["logprobs"], versions))
        groups.append(group)
    return groups, Server(responses, max(1, *(len(response.tokens) for response in responses)))


def generate_all(
    generate: Callable[..., Any],
    sample: Callable[..., Any],
    prompts: list[list[dict[str, Any]]],
    room: int,
    options: Settings,
) -> list[Any]:
    """Run enough rollouts to finish every sample, and return the samples of all prompts in order."""
    groups, server = samples_of(sample, prompts)
    room += 4 if options.get(SPARE) else 0
    server.room, server.exact = room, True
    run = arguments(room, len(groups[0]), **{name: value for name, value in options.items() if name != SPARE})
    with serving(generate, server) as module:

        async def rollout() -> list[list[Any]]:
            reset_singleton(module["GenerateState"])  # each rollout here has its own event loop
            state = module["GenerateState"](run)
            return [
                await generate(run, group, state.sampling_params.copy()) if _unfinished(group) else group
                for group in groups
            ]

        for _ in range(1 + max(len(set(response.versions)) for response in server.responses)):
            groups = asyncio.run(rollout())
    return [row for group in groups for row in group]


def _unfinished(group: list[Any]) -> bool:
    """Whether any sample of a prompt is unfinished. The next rollout then continues all samples of the prompt."""
    return any(sample.status.name in {"PENDING", "ABORTED"} for sample in group)


def fit_rows(rows: dict[str, list[Any]], lengths: list[int], prompts: list[int]) -> dict[str, list[Any]]:
    """The data of each response, fitted to the length that the server sampled; see :func:`fit_to_length`.

    ``prompts`` has the lengths of the prompts. If a row has a wrong prompt, its response starts with :data:`WRONG`.
    """
    columns: dict[str, list[Any]] = {
        "rewards": [float("inf") if reward is None else reward for reward in rows["rewards"]]
    }
    wrong = {"tokens": WRONG, "loss_masks": 0, "rollout_log_probs": float("inf")}
    for name, value in wrong.items():
        columns[name] = []
        for row, length, whole in zip(
            rows.get(name) or [[]] * len(lengths), rows["response_lengths"], lengths, strict=True
        ):
            response = list(row)[-int(length) :] if length else []
            columns[name].append(fit_to_length(response, whole, value))
    for number, (row, fitted, length) in enumerate(zip(rows["tokens"], columns["tokens"], prompts, strict=True)):
        if [int(token) for token in row[: len(row) - int(rows["response_lengths"][number])]] != prompt_of(
            number, length
        ):
            fitted[0] = WRONG
    return columns


def prompt_of(number: int, length: int) -> list[int]:
    """The prompt of row ``number``: a token that tells the server which response to sample, then ``length`` zeros."""
    return [FIRST + number, *[0] * length]


def train_last_rollout(batch: Batch) -> Batch:
    """Train only the tokens of each prompt's last rollout. A new rollout starts where the weight version changes."""
    starts = (batch.version.diff(dim=1) != 0).long()
    rollout = torch.nn.functional.pad(starts.cumsum(1), (1, 0)).masked_fill(~batch.valid, -1)
    prompts = torch.unique_consecutive(batch.group, return_inverse=True)[1]
    last = torch.stack([rollout[prompts == prompts[row]].max() for row in range(batch.rows)])
    return with_columns(batch, mask=(rollout == last.unsqueeze(1)) & batch.valid)


def _last_rollout_trains(inputs: Inputs) -> str:
    batch = inputs.batch
    same = torch.equal(train_last_rollout(batch).mask, batch.mask)
    return "" if same else "the trained tokens are not those of the last rollout of their prompt"


def all_train(inputs: Inputs) -> str:
    """The reason to skip a batch with an untrained response token; empty otherwise."""
    batch = inputs.batch
    return "" if torch.equal(batch.mask, batch.valid) else "a response of one turn has a token that is not trained"


def train_all(batch: Batch) -> Batch:
    """Train all tokens, because each response has only one turn."""
    return with_columns(batch, mask=batch.valid)


def room_of(inputs: Inputs) -> int:
    """The maximum number of tokens of a response."""
    return inputs.mini_batch.width


#: One row: a response to sample, its prompt and its reward.
ROW: Mapping[str, Codec] = row_fields("prompt", "tokens", "logprobs", "versions", "reward")

#: The same without weight updates during requests.
ONE_VERSION: Mapping[str, Codec] = {name: part for name, part in ROW.items() if name != "versions"}


def _generated(target: Target, module: str, settings: Mapping[str, Settings]) -> Boundary:
    path = f"{module}.generate_and_rm_group"
    generate = Step(
        call=generate_all,
        name="generated",
        arguments={
            **functions(generate=path, sample=SAMPLE),
            "prompts": EachPrompt(EachRow(Table(ROW))),
            "room": Derived(room_of),
            "options": AllSettings(),
        },
        produced_by={"prompts": _PRODUCER},
    )
    assembled, (convert, receive) = received(target)
    convert = replace(convert, arguments={**convert.arguments, "samples": Earlier(Use("generated"))}, produced_by={})
    rows = Step(call=received_rows, name="received", arguments={"ranks": Earlier(Use("ranks"))})
    fit = Step(
        call=fit_rows,
        name="data",
        arguments={
            "rows": Earlier(Use("received")),
            "lengths": Derived(lambda inputs: inputs.batch.length.tolist()),
            "prompts": Derived(lambda inputs: inputs.batch.prompt_length.tolist()),
        },
    )
    data, form = Use("data"), Ragged()
    logprob = Output("B T", "nats", "rollout_logprob", at=data["rollout_log_probs"], form=form)
    logprobs = {"rollout_logprob": logprob} if "rollout_log_probs" in module_source(target, module) else {}
    return Boundary(
        path=f"{path} -> {assembled}",
        stage="batch",
        steps=(generate, convert, receive, rows, fit),
        reads=frozenset({"token", "reward", "mask", "version", "group", *logprobs}),
        outputs={
            **logprobs,
            # Tokens are labels, and the check before an audit moves signals.
            "reward": Output("B", "reward", "reward", at=data["rewards"], form=PerRow("list")),
            "token": Output("B T", "", "token", at=data["tokens"], form=form),
            "mask": Output("B T", "", "mask", at=data["loss_masks"], form=Cast(form, torch.bool)),
        },
        settings=settings,
        domain=train_all,
        claims=claims(_DOCS, conserves=True),
        reach="every run with --partial-rollout",
        requires=(no_empty_response, prompts_are_contiguous, versions_never_decrease, even_ranks)
        + (() if _MASKED in settings else (all_train,)),
    )

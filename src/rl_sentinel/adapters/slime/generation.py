"""slime's generation: samples go to the server, come back in parts, are scored, and become training data."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import Cell, RowPrompt, RowTokens
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, Earlier
from rl_sentinel.adapters.slime.engine import FIRST, WRONG, Response, Server, Words, arguments, forget, serving
from rl_sentinel.adapters.slime.ranks import received_rows
from rl_sentinel.adapters.slime.rollout import even_ranks, received
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

#: Where releases generate the samples of a prompt, newest first.
MODULES = ("slime.rollout.sglang_rollout", "slime.rollout.sglang_example")

#: Setting -> options of the command line beside ``--partial-rollout``.
FAMILIES: Mapping[str, Settings] = {"default": {}, "reward of a group": {"group_rm": True}}
MASKED: Settings = {"mask_offpolicy_in_partial_rollout": True}

_DOCS = (
    "sglang_rollout.py, generate: tokens of the server are appended, a stopped request goes on from them; "
    "rollout.py, _convert_samples_to_train_data"
)
_PRODUCER = (
    "slime/rollout/data_source.py, get_samples: n_samples_per_prompt copies of a prompt, and samples that an earlier "
    "rollout did not finish; the server stops a request when weights are updated"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The training data of generated samples; with --mask-offpolicy-in-partial-rollout, where a release has it."""
    module = next((one for one in MODULES if target.has(f"{one}.generate_and_rm_group")), "")
    if not module or target.fails(module):
        return
    yield from bindable(target, _generated(target, module, FAMILIES))
    source = target.root.joinpath(*target.locate(module).split(".")).with_suffix(".py").read_text(encoding="utf-8")
    if next(iter(MASKED)) in source:
        masked = replace(
            _generated(target, module, {"old tokens masked": MASKED}),
            domain=newest_weights_train,
            reach="--partial-rollout --mask-offpolicy-in-partial-rollout",
        )
        yield from bindable(target, replace(masked, requires=(*masked.requires, _newest_train)))


def samples_of(sample: Callable[..., Any], prompts: list[list[dict[str, Any]]]) -> tuple[list[list[Any]], Server]:
    """The samples of each prompt as the data source makes them, and the server that knows their responses."""
    groups, responses = list[list[Any]](), list[Response]()
    known = {one.name for one in fields(sample)} if is_dataclass(sample) else None
    for number, prompt in enumerate(prompts):
        group = []
        for row in prompt:
            ids = [FIRST + len(responses), *row["prompt"]]
            about = {
                "group_index": number,
                "index": len(responses),
                "prompt": Words().decode(ids),
                "label": repr(row["reward"]),
            }
            group.append(sample(**{name: value for name, value in about.items() if known is None or name in known}))
            versions = row.get("versions", [0] * len(row["tokens"]))
            responses.append(Response(ids, row["tokens"], row["logprobs"], versions))
        groups.append(group)
    return groups, Server(responses, max(1, *(len(one.tokens) for one in responses)))


def generated(
    generate: Callable[..., Any],
    sample: Callable[..., Any],
    prompts: list[list[dict[str, Any]]],
    room: int,
    options: Settings,
) -> list[Any]:
    """The samples of all prompts, in order, once none of them was stopped."""
    groups, server = samples_of(sample, prompts)
    server.room = room
    run = arguments(room, len(groups[0]), **options)
    with serving(generate, server) as module:

        async def rollout() -> list[list[Any]]:
            forget(module["GenerateState"])  # each rollout has an event loop of its own here
            state = module["GenerateState"](run)
            return [
                await generate(run, group, state.sampling_params.copy()) if _unfinished(group) else group
                for group in groups
            ]

        for _ in range(1 + max(len(set(one.versions)) for one in server.responses)):
            groups = asyncio.run(rollout())
    return [one for group in groups for one in group]


def _unfinished(group: list[Any]) -> bool:
    """Whether a sample of a prompt was not sampled, or stopped: a rollout takes all samples of the prompt up again."""
    return any(one.status.name in {"PENDING", "ABORTED"} for one in group)


def of_lengths(rows: dict[str, list[Any]], lengths: list[int]) -> dict[str, list[Any]]:
    """The data of each response, as long as what the server sampled: what is missing, or too much, counts as wrong."""
    made: dict[str, list[Any]] = {"rewards": [float("inf") if one is None else one for one in rows["rewards"]]}
    wrong = {"tokens": WRONG, "loss_masks": 0, "rollout_log_probs": float("inf")}
    for name, value in wrong.items():
        made[name] = []
        for row, length, whole in zip(
            rows[name] or [[]] * len(lengths), rows["response_lengths"], lengths, strict=True
        ):
            own = list(row)[-int(length) :] if length else []
            cut = own if len(own) <= whole else [*own[: whole - 1], value]
            made[name].append(torch.tensor([*cut, *[value] * whole][:whole]))
    return made


def newest_weights_train(batch: Batch) -> Batch:
    """The tokens are trained that the last rollout of their prompt sampled: each new version is one more rollout."""
    starts = (batch.version.diff(dim=1) != 0).long()
    rollout = torch.nn.functional.pad(starts.cumsum(1), (1, 0)).masked_fill(~batch.valid, -1)
    prompts = torch.unique_consecutive(batch.group, return_inverse=True)[1]
    last = torch.stack([rollout[prompts == prompts[row]].max() for row in range(batch.rows)])
    return with_columns(batch, mask=(rollout == last.unsqueeze(1)) & batch.valid)


def _newest_train(inputs: Inputs) -> str:
    batch = inputs.batch
    same = torch.equal(newest_weights_train(batch).mask, batch.mask)
    return "" if same else "the trained tokens are not those of the last rollout of their prompt"


def _all_train(inputs: Inputs) -> str:
    batch = inputs.batch
    return "" if torch.equal(batch.mask, batch.valid) else "a response of one turn has a token that is not trained"


def all_train(batch: Batch) -> Batch:
    """All tokens of a response of one turn are trained."""
    return with_columns(batch, mask=batch.valid)


def versions_grow(inputs: Inputs) -> str:
    """Weights are never replaced by older ones."""
    falls = (inputs.batch.version.diff(dim=1) < 0) & inputs.batch.valid[:, 1:]
    return "a response has a token of older weights after one of newer weights" if bool(falls.any()) else ""


def room_of(inputs: Inputs) -> int:
    """The most tokens that a response can have."""
    return inputs.mini_batch.width


#: A response to sample, its prompt and its reward.
ROW: Mapping[str, Codec] = {
    "prompt": RowPrompt(),
    "tokens": RowTokens("token", "int"),
    "logprobs": RowTokens("rollout_logprob"),
    "versions": RowTokens("version", "int"),
    "reward": Cell("reward"),
}


#: The same where no weights are updated while requests run.
ONE_VERSION: Mapping[str, Codec] = {name: part for name, part in ROW.items() if name != "versions"}


def _generated(target: Target, module: str, settings: Mapping[str, Settings]) -> Boundary:
    path = f"{module}.generate_and_rm_group"
    generate = Step(
        call=generated,
        name="generated",
        arguments={
            "generate": Constant(Function(path)),
            "sample": Constant(Function(SAMPLE)),
            "prompts": EachPrompt(EachRow(Table(ROW))),
            "room": Derived(room_of),
            "options": AllSettings(),
        },
        produced_by={"prompts": _PRODUCER},
    )
    assembled, (convert, receive) = received(target)
    convert = replace(convert, arguments={**convert.arguments, "samples": Earlier(Use("generated"))}, produced_by={})
    rows = Step(call=received_rows, name="received", arguments={"ranks": Earlier(Use("ranks"))})
    fitted = Step(
        call=of_lengths,
        name="data",
        arguments={
            "rows": Earlier(Use("received")),
            "lengths": Derived(lambda inputs: inputs.batch.length.tolist()),
        },
    )
    data, form = Use("data"), Ragged()
    return Boundary(
        path=f"{path} -> {assembled}",
        stage="batch",
        steps=(generate, convert, receive, rows, fitted),
        reads=frozenset({"token", "rollout_logprob", "reward", "mask", "version", "group"}),
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=data["rollout_log_probs"], form=form),
            "token": Output("B T", "", "token", at=data["tokens"], form=form),
            "mask": Output("B T", "", "mask", at=data["loss_masks"], form=Cast(form, torch.bool)),
            "reward": Output("B", "reward", "reward", at=data["rewards"], form=PerRow("list")),
        },
        settings=settings,
        domain=all_train,
        claims=claims(_DOCS, conserves=True),
        reach="every run with --partial-rollout",
        requires=(no_empty_response, prompts_are_contiguous, versions_grow, even_ranks)
        + ((_all_train,) if settings is FAMILIES else ()),
    )

"""PPO in TRL before 0.12: generation, in padded batches and by the reference, and reward metrics over ranks."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import EachCut
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_parts, no_empty_response
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING, make_tokenizer
from rl_sentinel.adapters.trl.token_model import PROMPT, token_ids
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: Marks a token that is missing or wrong.
OTHER_TOKEN = -1

_GENERATED = "ppo_trainer.py, generate, docstring: response tokens; with return_prompt=False only newly generated ones"
_REFERENCE = "ppo_trainer.py, generate, docstring of generate_ref_response: the reference response is also generated"
_QUERIES = "ppo_trainer.py, generate: queries of several lengths, padded in batches of batch_size"
_REWARDS = "ppo_trainer.py, log_stats: env/reward_mean, env/reward_std, of the rewards of all processes"

#: Logged name -> output.
LOGGED = {
    "env/reward_mean": Output("", "reward", "outcome.mean", over="all"),
    "env/reward_std": Output("", "reward", "outcome.std", over="all"),
}


def boundaries(target: Target, trainer: str) -> Iterator[Boundary | Unbound]:
    """Boundaries of generation by a decoder, an encoder-decoder and the reference, and the rewards that a step logs."""
    path = f"{trainer}._generate_batched"
    if target.has(path):
        for name, is_encoder_decoder in {"decoder": False, "encoder and decoder": True}.items():
            for ends in (False, True):
                yield from bindable(
                    target, _generated(path, trainer, name, is_encoder_decoder=is_encoder_decoder, ends=ends)
                )
    path = f"{trainer}.generate"
    if target.has(path) and "generate_ref_response" in inspect.signature(target.find(path)).parameters:
        for name, listed in {"reference, queries": True, "reference, one query": False}.items():
            yield from bindable(target, _referred(path, trainer, name, listed=listed))
    path = f"{trainer}.log_stats"
    if target.has(path):
        yield from bindable(target, _logged(path, trainer))


def _generated(path: str, trainer: str, name: str, *, is_encoder_decoder: bool, ends: bool) -> Boundary:
    """The boundary of batched generation; with ``ends``, of whole responses that end before others of their batch."""
    return one_call(
        path=path,
        stage="batch",
        call=generate_in_batches,
        name="generated",
        arguments={
            **functions(entry=path, kind=trainer),
            "tokens": Column("token", NoPadding()),
            "lengths": ResponseMask(NoPadding()),
            "is_encoder_decoder": Knob("encoder_decoder"),
            "ends": Knob("ends", default=False),
        },
        produced_by={"tokens": _QUERIES},
        outputs={"token": Output("B T", "", "token", at=Use("generated"), form=AsReturned())},
        settings={
            f"{name}, with end tokens" if ends else name: {
                "encoder_decoder": is_encoder_decoder,
                **({"ends": True} if ends else {}),
            }
        },
        claims=claims(_GENERATED, conserves=True),
        reach="generate(queries)",
        requires=(no_empty_response,),
    )


def _referred(path: str, trainer: str, name: str, *, listed: bool) -> Boundary:
    """The boundary of the responses of policy and reference; ``listed`` queries are generated in batches."""
    return one_call(
        path=path,
        stage="batch",
        call=generate_with_reference,
        name="generated",
        arguments={
            **functions(entry=path, kind=trainer),
            "tokens": Column("token", NoPadding()),
            "lengths": ResponseMask(NoPadding()),
            "listed": Knob("listed"),
        },
        produced_by={"tokens": _QUERIES},
        outputs={
            side: Output("B T", "", "token", at=Use("generated")[side], form=AsReturned())
            for side in ("policy", "reference")
        },
        settings={name: {"listed": listed}},
        claims=claims(_REFERENCE, conserves=True),
        reach="generate(queries, generate_ref_response=True)",
        requires=(no_empty_response,),
    )


class Sampler:
    """A fake model that returns known responses in order. An encoder-decoder starts a response with a padding token."""

    def __init__(self, responses: list[Tensor], *, is_encoder_decoder: bool) -> None:
        """Store the responses, which repeat if more are generated."""
        self.responses, self.is_encoder_decoder = cycle(responses), is_encoder_decoder

    def generate(self, input_ids: Tensor, **_options: object) -> Tensor:
        """The right-padded responses of these rows, each after its prompt (or after the first token of the decoder)."""
        rows = [next(self.responses) for _ in range(len(input_ids))]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)
        before = torch.full((len(rows), 1), PADDING) if self.is_encoder_decoder else input_ids
        return torch.cat([before, padded], 1)


def generate_in_batches(  # noqa: PLR0913 - a method and a class of the target, and the settings
    entry: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    tokens: Tensor,
    lengths: Tensor,
    *,
    is_encoder_decoder: bool,
    ends: bool,
) -> Tensor:
    """Generate responses in padded batches; with ``ends``, each response ends with the end token.

    Returns the token ids ``[B, T]`` of the responses; a missing or wrong token is :data:`OTHER_TOKEN`, and so is the
    end token of a response that goes on after it.
    """
    rows, width = tokens.shape
    counts = lengths.sum(1).tolist()
    ids = [row[:n] for row, n in zip(token_ids(rows, width), counts, strict=True)]
    ids = [torch.cat([own[:-1], torch.tensor([END])]) for own in ids] if ends else ids
    queries = [torch.full((1 + b % 3,), PROMPT) for b in range(rows)]
    self = _sampling(kind, Sampler(ids, is_encoder_decoder=is_encoder_decoder))
    names = inspect.signature(entry).parameters
    options = {"return_prompt": False} if "return_prompt" in names else {}
    model = {} if "model" not in names else {"model": self.model}
    generated = entry(self, query_tensors=queries, **model, **options)
    starts = [1 if is_encoder_decoder else 0 if options else len(query) for query in queries]
    responses = [response[start:] for response, start in zip(generated, starts, strict=True)]
    read = _read(responses, ids, tokens)
    for row, (response, own) in enumerate(zip(responses, ids, strict=True)):
        if ends and len(response) > len(own):
            read[row, len(own) - 1] = OTHER_TOKEN
    return read


def _sampling(kind: Any, model: Sampler, **more: object) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer that samples with this model."""
    return bare_instance(
        kind,
        tokenizer=make_tokenizer(),
        is_encoder_decoder=model.is_encoder_decoder,
        current_device="cpu",
        accelerator=SimpleNamespace(unwrap_model=itself, state=SimpleNamespace(deepspeed_plugin=None)),
        model=model,
        **more,
    )


def _read(responses: Sequence[Tensor], ids: Sequence[Tensor], tokens: Tensor) -> Tensor:
    """The tokens ``[B, T]`` of the case at each response token with the expected id, else :data:`OTHER_TOKEN`."""
    read = torch.full(tokens.shape, OTHER_TOKEN, dtype=tokens.dtype)
    for b, (response, own) in enumerate(zip(responses, ids, strict=True)):
        row = response[: len(own)]
        read[b, : len(row)] = torch.where(row == own[: len(row)], tokens[b, : len(row)], OTHER_TOKEN)
    return read


def generate_with_reference(
    entry: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    tokens: Tensor,
    lengths: Tensor,
    *,
    listed: bool,
) -> dict[str, Tensor]:
    """Generate with policy and reference, which answer with different ids, for a list of queries or for each one.

    Returns the token ids ``[B, T]`` of both; a missing or wrong token is :data:`OTHER_TOKEN`.
    """
    rows, width = tokens.shape
    counts = lengths.sum(1).tolist()
    own = [row[:n] for row, n in zip(token_ids(rows, width), counts, strict=True)]
    ids = {"policy": own, "reference": [row + rows * width for row in own]}
    models = {side: Sampler(sampled, is_encoder_decoder=False) for side, sampled in ids.items()}
    self = _sampling(
        kind, models["policy"], ref_model=models["reference"], is_peft_model=False, optional_peft_ctx=nullcontext
    )
    queries = [torch.full((1 + b % 3,), PROMPT) for b in range(rows)]
    options = {"return_prompt": False, "generate_ref_response": True}
    if listed:
        found = entry(self, queries, **options)
    else:
        pairs = [entry(self, query, **options) for query in queries]
        found = tuple([response[0] for response in one] for one in zip(*pairs, strict=True))
    return {side: _read(responses, ids[side], tokens) for side, responses in zip(ids, found, strict=True)}


def _logged(path: str, trainer: str) -> Boundary:
    module = trainer.rpartition(".")[0]
    return one_call(
        path=path,
        stage="metric",
        call=logged_rewards,
        name="logs",
        arguments={
            **functions(entry=path, kind=trainer),
            "rewards": EachCut(Column("reward", PerRow()), "ranks"),
            "lengths": EachCut(ResponseMask(NoPadding()), "ranks"),
        },
        fakes={f"{module}.torch.distributed.{name}": fake for name, fake in COLLECTIVES.items()},
        produced_by={"rewards": "examples: trainer.log_stats(stats, batch, rewards) after each step, on each process"},
        outputs={name: _at(name, output) for name, output in LOGGED.items()},
        claims=claims(_REWARDS),
        reach="log_stats(stats, batch, rewards)",
        requires=(equal_parts, no_empty_response, several_rows),
    )


def _at(name: str, output: Output) -> Output:
    return Output(output.axes, output.unit, output.quantity, over=output.over, at=Use("logs")[name], form=Number())


def several_rows(inputs: Any) -> str:  # noqa: ANN401 - the inputs of a call
    """The reason to skip a mini-batch with fewer than two rows (one reward has no standard deviation); else empty."""
    return "" if inputs.mini_batch.rows > 1 else "the deviation of one reward is undefined"


def logged_rewards(
    entry: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    rewards: list[Tensor],
    lengths: list[Tensor],
) -> dict[str, Any]:
    """Log the rewards on each rank; return the metrics that rank 0 logs for the responses of all ranks."""
    logged: list[dict[str, Any]] = []

    def log(rank: int) -> None:
        accelerator = RankAccelerator(
            SimpleNamespace(log=lambda logs, **_more: logged.append(logs)), rank, len(rewards)
        )
        self = bare_instance(
            kind,
            accelerator=accelerator,
            is_distributed=len(rewards) > 1,
            current_device="cpu",
            config=SimpleNamespace(log_with=None),
        )
        texts = [" ".join(["w1"] * count) for count in lengths[rank].sum(1).tolist()]
        entry(self, {}, {"query": texts, "response": texts}, list(rewards[rank]))

    run_on_ranks(len(rewards), log)
    return logged[0]


def barrier() -> None:
    """Wait for the other ranks."""
    gather_from_ranks(None)


def all_reduce(tensor: Tensor, op: object = None) -> None:  # noqa: ARG001 - torch's reduction, which is a sum here
    """Replace the tensor of each rank with the sum over all ranks."""
    tensor.copy_(torch.stack(gather_from_ranks(tensor.clone())).sum(0))


#: Collective of torch -> its fake.
COLLECTIVES: dict[str, Callable[..., Any]] = {"barrier": barrier, "all_reduce": all_reduce}

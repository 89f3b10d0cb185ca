"""AReaL's forward passes: log-probs or values of padded data, which the engine splits, packs and unpacks."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ACTOR, CONFIG, CRITIC, ROLLOUT, SPLIT, padded_to_longest
from rl_sentinel.adapters.areal.fakes import as_passed, fsdp_engine, own_part, sharing_sequences
from rl_sentinel.adapters.areal.updates import CRITIC_CONFIG, ENGINE, choose_platform
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, RaggedSequence, TokenVersions
from rl_sentinel.adapters.kit.training_mode import outputs_in_mode
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Key of the data with the row of the model's outputs at each position; AReaL splits and packs it like any other key.
OUTPUT_ROWS = "output_rows"

#: Paths of the method, newest first.
PASSES = (f"{ACTOR}._compute_logp", f"{ACTOR}.compute_logp")

#: Paths of the critic's method, newest first.
VALUE_PASSES = (f"{CRITIC}._compute_values", f"{CRITIC}.compute_values")

#: Name of the setting in which two ranks share each sequence.
SHARED = "shared sequences"

_SHARING = "; a context-parallel size above 1"

#: Paths of the engine's method, newest first.
ENGINE_PASSES = (f"{ENGINE}.forward_batch", f"{ENGINE}.forward")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the log-probs of the current or the proximal policy, and the values of a critic."""
    path = next((path for path in PASSES if target.has(path)), "")
    values = next((path for path in VALUE_PASSES if target.has(path)), "")
    forward = next((path for path in ENGINE_PASSES if target.has(path)), "")
    if not path or not forward:
        return
    for needed in (path, forward):
        if failing := target.fails(needed):
            yield Unbound(f"{path} -> {forward}", "batch", failing)
            return
    choose_platform(target)
    shared = shares_sequences(target)
    yield from bindable(target, _log_probs(path, forward, shared=shared))
    if values and not target.fails(values):
        yield from bindable(target, _values(values, forward, shared=shared))


def shares_sequences(target: Target) -> bool:
    """Whether ranks of the release's engine can share a sequence: until August 2025, each rank has whole sequences."""
    return "ulysses" in inspect.getsource(target.find(ENGINE))


def engine_with_outputs(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration
    """An engine whose model looks up its outputs in a table, a class attribute that is set before a pass.

    A rank with a part of a sequence gets the outputs of this part; tokens of another part get zeros, and so do tokens
    whose attention begins in another sequence.
    """
    engine = fsdp_engine(owner, config)
    kind: Any = type(engine)

    def model(**inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        ids = inputs["input_ids"].reshape(-1)
        rows = own_part(inputs[OUTPUT_ROWS].reshape(-1), len(ids))
        matches = (kind.tokens[rows] == ids).unsqueeze(-1)
        padding = (ids == 0).unsqueeze(-1)  # padding has token 0 and row 0, but row 0 belongs to another position
        alone = (begins_at(inputs, rows, kind.begins) == kind.begins[rows]).unsqueeze(-1)
        outputs = torch.where((matches & alone) | padding, kind.outputs[rows], 0.0).unsqueeze(0)
        return SimpleNamespace(logits=outputs_in_mode(outputs, training=kind.training))

    def train(_engine: object, mode: bool = True) -> None:  # noqa: FBT001, FBT002 - as the method
        kind.training = mode

    def evaluate(_engine: object) -> None:
        kind.training = False

    del kind._compute_logprobs_entropy  # noqa: SLF001 - the fake for a model without logits
    kind.model = staticmethod(model)
    kind.training, kind.train, kind.eval = True, train, evaluate  # torch creates modules in training mode
    kind.data_parallel_group = None
    return engine


def begins_at(inputs: dict[str, Any], rows: Tensor, begins: Tensor) -> Tensor:
    """The row at which the attention of each packed token begins, as transformers' flash attention decides it.

    With an attention mask that has a 0, a row of the input is one sequence; without one, a sequence begins at each
    position 0 (transformers, modeling_flash_attention_utils.py and masking_utils.py). ``begins`` has the correct row,
    which is returned for parts of sequences, and for inputs without positions.
    """
    mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
    if not isinstance(positions, Tensor) or positions.numel() != len(rows) or positions.flatten()[0] != 0:
        return begins[rows]
    first = positions.flatten() == 0
    if isinstance(mask, Tensor) and not mask.all():
        first = torch.arange(len(rows)) == 0
    return rows[first][first.cumsum(0) - 1]


def forward_pass(
    method: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    data: dict[str, Any],
    outputs: list[Tensor],
    ranks: int,
) -> Tensor:
    """Run a forward pass; return ``[B, S]``: the log-prob of each next token, in nats, or the value of each position.

    ``ranks`` share each sequence; the result is infinite where the ranks differ.
    """
    kind, mask = type(trainer.engine), data["attention_mask"].long()
    kind.outputs = torch.cat(outputs)
    kind.outputs = kind.outputs.reshape(len(kind.outputs), -1)
    kind.tokens = data["input_ids"][mask.bool()]
    lengths = mask.sum(1)
    kind.begins = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    rows = (mask.flatten().cumsum(0) - 1).reshape(mask.shape).clamp(min=0)
    passed = [as_passed(method, {**data, OUTPUT_ROWS: rows}) for _ in range(ranks)]
    with sharing_sequences(kind, ranks):
        answers = run_on_ranks(ranks, lambda rank: method(trainer, passed[rank]))
    same = torch.stack([answer == answers[0] for answer in answers]).all(0)
    return torch.where(same, answers[0], float("inf"))


def _log_probs(path: str, forward: str, *, shared: bool) -> Boundary:
    switches: dict[str, Codec] = {name: Constant(value=True) for name in ("use_decoupled_loss", "recompute_logprob")}
    numbers = {"temperature": Knob("temperature"), **switches}
    step = _pass(path, (ACTOR, CONFIG), numbers, Column("logits", RaggedSequence(shift=1)))
    return Boundary(
        path=f"{path} -> {forward}",
        stage="batch",
        steps=(step,),
        reads=frozenset({"logits", "token", "length"}),
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("answers"), form=FullSequence(shift=1))},
        settings={
            "default": {"temperature": 1.0, "ranks": 1},
            "other temperature": {"temperature": 0.5, "ranks": 1},
            **({SHARED: {"temperature": 1.0, "ranks": 2}} if shared else {}),
        },
        claims=claims(
            "cli_args.py, PPOActorConfig.temperature: temperature during generation; fsdp_engine.py, forward_batch: "
            "outputs in the order of the input",
            output_algorithms={"logprob": "log-prob of the token"},
            knobs={"temperature": (0.7, 1.6)},
            packs=True,
        ),
        reach=f"actor.recompute_logprob, actor.use_decoupled_loss or a reference model{_SHARING if shared else ''}",
        requires=(padded_to_longest, no_empty_response),
    )


def _values(path: str, forward: str, *, shared: bool) -> Boundary:
    step = _pass(
        path, (CRITIC, CRITIC_CONFIG), {"is_critic": Constant(value=True)}, Column("value", RaggedSequence(shift=1))
    )
    return Boundary(
        path=f"{path} -> {forward}",
        stage="batch",
        steps=(step,),
        reads=frozenset({"value", "token", "length"}),
        outputs={"value": Output("B T", "reward", "value", at=Use("answers"), form=FullSequence(shift=1))},
        settings={"default": {"ranks": 1}, **({SHARED: {"ranks": 2}} if shared else {})},
        claims=claims("fsdp_engine.py, forward_batch: outputs in the order of the input", conserves=True, packs=True),
        reach=f"a critic{_SHARING if shared else ''}",
        requires=(padded_to_longest, no_empty_response),
    )


def _pass(path: str, classes: tuple[str, str], numbers: dict[str, Codec], outputs: Column) -> Step:
    """The step that runs a forward pass of a trainer; the model returns these outputs."""
    trainer, kind = classes
    config = Object(kind, {"mb_spec": SPLIT, **numbers}, shared=True)
    engine = Object(engine_with_outputs, {"owner": Constant(Function(ENGINE)), "config": config})
    return Step(
        call=forward_pass,
        name="answers",
        arguments={
            "method": Constant(Function(path)),
            "trainer": Object(trainer, {"config": config, "engine": engine}, shared=True),
            "data": Table(
                {
                    "input_ids": Column("token", FullSequence(), torch.int64),
                    "attention_mask": AttentionMask(),
                    "versions": TokenVersions(),
                }
            ),
            "outputs": outputs,
            "ranks": Knob("ranks"),
        },
        produced_by={"data": ROLLOUT},
    )

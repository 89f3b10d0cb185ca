"""AReaL's forward pass: log-probs of padded data that the engine splits, packs, passes to the model and unpacks."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ACTOR, CONFIG, ROLLOUT, SPLIT, padded_to_longest
from rl_sentinel.adapters.areal.doubles import fsdp_engine
from rl_sentinel.adapters.areal.updates import ENGINE, choose_platform
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, RaggedSequence, TokenVersions
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Key of the data with the row of the logits table at each position; AReaL splits and packs it like any other key.
LOGIT_ROWS = "logit_rows"

#: Paths of the method, newest first.
PASSES = (f"{ACTOR}._compute_logp", f"{ACTOR}.compute_logp")

#: Paths of the engine's method, newest first.
ENGINE_PASSES = (f"{ENGINE}.forward_batch", f"{ENGINE}.forward")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The log-probs of the current or the proximal policy."""
    path = next((path for path in PASSES if target.has(path)), "")
    forward = next((path for path in ENGINE_PASSES if target.has(path)), "")
    if not path or not forward:
        return
    for needed in (path, forward):
        if failing := target.fails(needed):
            yield Unbound(f"{path} -> {forward}", "batch", failing)
            return
    parameters = inspect.signature(target.find(forward)).parameters.values()
    if any("TensorDict" in str(parameter.annotation) for parameter in parameters):
        yield Unbound(f"{path} -> {forward}", "batch", f"{forward} takes a TensorDict, expected a dict")
        return
    choose_platform(target)
    yield from bindable(target, _log_probs(path, forward))


def engine_with_logits(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration
    """An engine of one process whose model looks up the class attribute ``logits``, which is set before a pass."""
    engine = fsdp_engine(owner, config)
    kind: Any = type(engine)

    def model(**inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        return SimpleNamespace(logits=kind.logits[inputs[LOGIT_ROWS].reshape(1, -1)])

    del kind._compute_logprobs_entropy  # noqa: SLF001 - the double for a model without logits
    kind.model = staticmethod(model)
    kind.eval = kind.train
    kind.data_parallel_group = None
    return engine


def log_probs(method: Callable[..., Any], trainer: Any, data: dict[str, Any], logits: list[Tensor]) -> Tensor:  # noqa: ANN401 - a trainer
    """``[B, S]``: the log-prob of each next token, in nats."""
    type(trainer.engine).logits = torch.cat(logits)
    mask = data["attention_mask"].long()
    rows = (mask.flatten().cumsum(0) - 1).reshape(mask.shape)
    computed: Tensor = method(trainer, {**data, LOGIT_ROWS: rows.clamp(min=0)})
    return computed


def _log_probs(path: str, forward: str) -> Boundary:
    shifted = FullSequence(shift=1)
    switches: dict[str, Codec] = {name: Constant(value=True) for name in ("use_decoupled_loss", "recompute_logprob")}
    config = Object(CONFIG, {"mb_spec": SPLIT, "temperature": Knob("temperature"), **switches}, shared=True)
    engine = Object(engine_with_logits, {"owner": Constant(Function(ENGINE)), "config": config})
    step = Step(
        call=log_probs,
        name="log_probs",
        arguments={
            "method": Constant(Function(path)),
            "trainer": Object(ACTOR, {"config": config, "engine": engine}, shared=True),
            "data": Table(
                {
                    "input_ids": Column("token", FullSequence(), torch.int64),
                    "attention_mask": AttentionMask(),
                    "versions": TokenVersions(),
                }
            ),
            "logits": Column("logits", RaggedSequence(shift=1)),
        },
        produced_by={"data": ROLLOUT},
    )
    return Boundary(
        path=f"{path} -> {forward}",
        stage="batch",
        steps=(step,),
        reads=frozenset({"logits", "token", "length"}),
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("log_probs"), form=shifted)},
        settings={"default": {"temperature": 1.0}, "other temperature": {"temperature": 0.5}},
        claims=claims(
            "cli_args.py, PPOActorConfig.temperature: temperature during generation; fsdp_engine.py, forward_batch: "
            "outputs in the order of the input",
            output_algorithms={"logprob": "log-prob of the token"},
            knobs={"temperature": (0.7, 1.6)},
            packs=True,
        ),
        reach="actor.recompute_logprob, actor.use_decoupled_loss or a reference model",
        requires=(padded_to_longest, no_empty_response),
    )

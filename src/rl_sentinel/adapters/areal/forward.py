"""AReaL's pass of a policy: log-probs of padded data, which is cut, packed, put through the model and taken apart."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ACTOR, CONFIG, ROLLOUT, padded_to_longest
from rl_sentinel.adapters.areal.doubles import fsdp_engine
from rl_sentinel.adapters.areal.updates import ENGINE, MICRO_BATCHES, PLATFORM
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, RaggedSequence, TokenVersions
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Key of the data that says at each position which logits the model answers; cut and packed with the rest of the data.
ANSWERS = "answers"

#: Where releases have the pass, newest first.
PASSES = (f"{ACTOR}._compute_logp", f"{ACTOR}.compute_logp")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The log-probs of the current or proximal policy."""
    path = next((one for one in PASSES if target.has(one)), "")
    forward = f"{ENGINE}.forward_batch"
    if not path or not target.has(forward):
        return
    for needed in (path, forward):
        if failing := target.fails(needed):
            yield Unbound(f"{path} -> {forward}", "batch", failing)
            return
    if target.has(PLATFORM) and not target.fails(PLATFORM):
        getattr(target.find(PLATFORM), "device_type", "")  # chosen when first asked: not while a case runs
    yield from bindable(target, _log_probs(path, forward))


def engine_with_logits(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration
    """An engine of one process whose model answers the logits that it is asked for; they are set before a pass."""
    made = fsdp_engine(owner, config)
    kind: Any = type(made)

    def model(**inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        return SimpleNamespace(logits=kind.logits[inputs[ANSWERS].reshape(1, -1)])

    del kind._compute_logprobs_entropy  # noqa: SLF001 - the double of a model without logits
    kind.model = staticmethod(model)
    kind.eval = kind.train
    kind.data_parallel_group = None
    return made


def log_probs(method: Callable[..., Any], trainer: Any, data: dict[str, Any], logits: list[Tensor]) -> Tensor:  # noqa: ANN401 - a trainer
    """``[B, S]``: the log-prob of each next token."""
    type(trainer.engine).logits = torch.cat(logits)
    counts = data["attention_mask"].long()
    answers = (counts.flatten().cumsum(0) - 1).reshape(counts.shape)
    found: Tensor = method(trainer, {**data, ANSWERS: answers.clamp(min=0)})
    return found


def _log_probs(path: str, forward: str) -> Boundary:
    shifted = FullSequence(shift=1)
    cut = Object(
        MICRO_BATCHES, {"n_mbs": Derived(lambda inputs: inputs.layout.micro_batches, frozenset({"micro_batches"}))}
    )
    words: dict[str, Codec] = {name: Constant(value=True) for name in ("use_decoupled_loss", "recompute_logprob")}
    config = Object(CONFIG, {"mb_spec": cut, "temperature": Knob("temperature"), **words}, shared=True)
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

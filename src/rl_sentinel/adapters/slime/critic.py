"""slime's critic: the values of response tokens, read from the outputs of its value head on packed sequences."""

import inspect
from collections.abc import Iterator

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Namespace
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.sequences import ModelOutput, RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.slime.arguments import LOSS, OPTIONAL, PARALLEL_STATE, RESPONSE_LENGTHS, TOTAL_LENGTHS
from rl_sentinel.adapters.slime.fakes import returns_pair
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = f"{LOSS}.get_values"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the function that computes values for the value loss and for the critic's forward pass."""
    if not target.has(PATH) or target.fails(PATH):
        return
    if "squeeze" not in inspect.getsource(target.find(PATH)):
        reason = "get_values does not squeeze its result: the values of a response are [T, 1], expected [T]"
        yield Unbound(PATH, "batch", reason)
        return
    args = Namespace(
        rollout_temperature=Knob("temperature"),
        log_probs_chunk_size=Constant(-1),
        allgather_cp=Constant(value=False),
        qkv_format=Constant("thd"),
    )
    result = Use("result")
    if returns_pair(target.find(PATH)):
        result = result[1]
    boundary = one_call(
        path=PATH,
        stage="batch",
        call=PATH,
        name="result",
        arguments={
            "logits": Column("value", ModelOutput(shift=1)),
            "args": args,
            "unconcat_tokens": Column("token", RaggedSequence()),
            "total_lengths": TOTAL_LENGTHS,
            "response_lengths": RESPONSE_LENGTHS,
            **PARALLEL_STATE,
        },
        optional=OPTIONAL,
        produced_by={
            "logits": "slime/backends/megatron_utils/model.py, forward_step: float32 outputs of the value head"
        },
        unused=frozenset({"prompt_length", "token"}),
        outputs={"value": Output("B T", "reward", "value", at=result["values"], form=Ragged())},
        settings={"default": {"temperature": 1.0}, "other temperature": {"temperature": 0.5}},
        claims=claims("loss.py, get_values, docstring: value predictions over response tokens", conserves=True),
        reach="--advantage-estimator ppo; --rollout-temperature",
    )
    yield from bindable(target, boundary)

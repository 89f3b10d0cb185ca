"""slime's log-probs and entropy of response tokens, from the logits of packed sequences."""

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

PATH = f"{LOSS}.get_log_probs_and_entropy"

_CLAIMS = claims(
    "loss.py, get_log_probs_and_entropy, docstring: log-probabilities and entropy on responses; its comment: "
    "temperature scaling of logits to match rollout-time log-probs",
    gradient="own",
    output_algorithms={"logprob": "log-prob of the token", "entropy": "entropy of the logits"},
    knobs={"temperature": (0.7, 1.6)},
    packs=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the function that computes log-probs for the losses, the old policy and the reference policy."""
    args = Namespace(
        rollout_temperature=Knob("temperature"),
        log_probs_chunk_size=Constant(-1),
        entropy_coef=Constant(0.5),
        allgather_cp=Constant(value=False),
        qkv_format=Constant("thd"),
    )
    result = Use("result")
    if target.has(PATH) and not target.fails(PATH) and returns_pair(target.find(PATH)):
        result = result[1]
    boundary = one_call(
        path=PATH,
        stage="batch",
        call=PATH,
        name="result",
        arguments={
            "logits": Column("logits", ModelOutput(shift=1)),
            "args": args,
            "unconcat_tokens": Column("token", RaggedSequence()),
            "total_lengths": TOTAL_LENGTHS,
            "response_lengths": RESPONSE_LENGTHS,
            "with_entropy": Constant(value=True),
            **PARALLEL_STATE,
        },
        optional=OPTIONAL,
        produced_by={
            "logits": "slime/backends/megatron_utils/model.py, forward_step: float32 logits of concatenated sequences"
        },
        unused=frozenset({"prompt_length"}),
        outputs={
            "logprob": Output("B T", "nats", "logprob", at=result["log_probs"], form=Ragged()),
            "entropy": Output("B T", "nats", "entropy", at=result["entropy"], form=Ragged()),
        },
        settings={"default": {"temperature": 1.0}, "other temperature": {"temperature": 0.5}},
        claims=_CLAIMS,
        reach="every training step; --rollout-temperature",
    )
    yield from bindable(target, boundary)

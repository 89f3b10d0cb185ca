"""slime's advantages and losses where context-parallel ranks share each sequence."""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.slime import advantages, updates
from rl_sentinel.adapters.slime.context_ranks import advantages_in_context, train_step_in_context
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.codec import Inputs

#: Ranks that share each sequence: of n ranks, rank r has chunks r and 2 n - 1 - r of 2 n.
_SIZE = Derived(lambda inputs: inputs.layout.context, frozenset({"context"}))

_PRODUCER = (
    "loss.py, get_log_probs_and_entropy: log-probs of the chunks of this rank; actor.py, _get_rollout_data: "
    "slice_log_prob_with_cp of what the engine sampled"
)

_OFFSETS = "slime.backends.megatron_utils.cp_utils.get_logits_and_tokens_offset_with_cp"

#: Advantages that differ where ranks share a sequence: with and without a value, a KL, and statistics over tokens.
_ADVANTAGES = ("ppo", "grpo", "reinforce_plus_plus", "reinforce_plus_plus, whitened", "ppo, whitened")

#: Losses, one of each way in which the ranks meet: the mean per sample, per token, and a ratio of whole sequences.
_LOSSES = ("grpo, regularised", "grpo, per token", "gspo", "grpo, opsm")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The advantages and the losses, each with the shares of the ranks."""
    if not target.has(_OFFSETS):
        return
    for boundary in (*advantages.boundaries(target), *updates.boundaries(target)):
        if isinstance(boundary, Boundary) and len(boundary.settings) == 1:
            (name,) = boundary.settings
            if name in _ADVANTAGES and boundary.path == advantages.PATH:
                yield from bindable(target, _for_the_split(_shared_advantages(boundary)))
            elif name in _LOSSES and boundary.path.startswith(updates.PATH):
                yield from bindable(target, _for_the_split(_shared_loss(boundary)))


def _shared_advantages(boundary: Boundary) -> Boundary:
    """The boundary of the trainer's function, whose data the ranks share."""
    arguments = boundary.steps[-1].arguments
    step = Step(
        call=advantages_in_context,
        name="shared",
        arguments={
            "compute": Constant(Function(advantages.PATH)),
            "args": arguments["args"],
            "data": arguments["rollout_data"],
            "size": _SIZE,
        },
        produced_by={"data": _PRODUCER},
    )
    places = {"advantage": "advantages", "returns": "returns", "kl": "kl"}
    outputs = {name: replace(output, at=Use("shared")[places[name]]) for name, output in boundary.outputs.items()}
    return replace(boundary, steps=(step,), outputs=outputs)


def _shared_loss(boundary: Boundary) -> Boundary:
    """The boundary of the training step, whose micro-batches the ranks share."""
    trained, *reduced = boundary.steps
    size = {"size": _SIZE}
    step = replace(trained, call=train_step_in_context, arguments={**trained.arguments, **size})
    reducers = [replace(one, arguments={**one.arguments, "cp_size": _SIZE}) for one in reduced]
    return replace(boundary, steps=(step, *reducers))


def _for_the_split(boundary: Boundary) -> Boundary:
    """The boundary where nothing is asked but whether the split shows."""
    return replace(
        boundary,
        stage="parallel",
        requires=(*boundary.requires, chunks_are_full),
        claims=Claims(),
        reach=f"{boundary.reach}, --context-parallel-size 2",
        settings={f"{name}, context parallel": values for name, values in boundary.settings.items()},
    )


def chunks_are_full(inputs: Inputs) -> str:
    """Each chunk of a sequence has a token that the model predicts, as in a run, where sequences are long."""
    chunks = 2 * inputs.layout.context
    shortest = int((inputs.batch.prompt_length + inputs.batch.length).min())
    full = inputs.layout.context == 1 or shortest >= chunks * (chunks - 1) + 2
    return "" if full else f"a sequence of {shortest} tokens does not fill {chunks} chunks"

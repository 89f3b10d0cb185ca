"""slime's advantages and losses with context parallelism, where ranks share each sequence."""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.slime import advantages, updates
from rl_sentinel.adapters.slime.context_rank_fakes import advantages_in_context, train_step_in_context
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.codec import Inputs

#: Number n of ranks that share each sequence: rank r has chunks r and 2n - 1 - r of 2n.
_SIZE = Derived(lambda inputs: inputs.layout.context, frozenset({"context"}))

_PRODUCER = (
    "loss.py, get_log_probs_and_entropy: log-probs of the chunks of this rank; actor.py, _get_rollout_data: "
    "slice_log_prob_with_cp of the engine's log-probs"
)

_OFFSETS = "slime.backends.megatron_utils.cp_utils.get_logits_and_tokens_offset_with_cp"

#: Settings of advantages that cover values, a KL, and statistics over tokens, each present and absent.
_ADVANTAGES = ("ppo", "grpo", "reinforce_plus_plus", "reinforce_plus_plus, whitened", "ppo, whitened")

#: Settings of losses that cover the reductions over ranks: mean per sample, mean per token, ratio of a sequence.
_LOSSES = ("grpo, regularized", "grpo, per token", "gspo", "grpo, opsm")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages and the losses, computed by ranks that share each sequence."""
    if not target.has(_OFFSETS):
        return
    for boundary in (*advantages.boundaries(target), *updates.boundaries(target)):
        if isinstance(boundary, Boundary) and len(boundary.settings) == 1:
            (name,) = boundary.settings
            if name in _ADVANTAGES and boundary.path == advantages.PATH:
                yield from bindable(target, _as_parallel(_shared_advantages(boundary)))
            elif name in _LOSSES and boundary.path.startswith(updates.PATH):
                yield from bindable(target, _as_parallel(_shared_loss(boundary)))


def _shared_advantages(boundary: Boundary) -> Boundary:
    """The boundary of the advantages, with the data split over ranks."""
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
    """The boundary of the training step, with each micro-batch split over ranks."""
    trained, *reduced = boundary.steps
    size = {"size": _SIZE}
    step = replace(trained, call=train_step_in_context, arguments={**trained.arguments, **size})
    reducers = [replace(step, arguments={**step.arguments, "cp_size": _SIZE}) for step in reduced]
    return replace(boundary, steps=(step, *reducers))


def _as_parallel(boundary: Boundary) -> Boundary:
    """The boundary in the stage ``parallel``, whose laws require that the split does not change the result."""
    return replace(
        boundary,
        stage="parallel",
        requires=(*boundary.requires, chunks_are_full),
        claims=Claims(),
        reach=f"{boundary.reach}, --context-parallel-size 2",
        settings={f"{name}, context parallel": values for name, values in boundary.settings.items()},
    )


def chunks_are_full(inputs: Inputs) -> str:
    """The reason to skip a batch if a chunk may have no predicted token; empty otherwise.

    In real runs, all chunks have predicted tokens, because the sequences are long.
    """
    chunks = 2 * inputs.layout.context
    shortest = int((inputs.batch.prompt_length + inputs.batch.length).min())
    full = inputs.layout.context == 1 or shortest >= chunks * (chunks - 1) + 2
    return "" if full else f"a sequence of {shortest} tokens does not fill {chunks} chunks"

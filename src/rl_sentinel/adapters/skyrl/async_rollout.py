"""SkyRL's fully asynchronous trainer: from the groups of its queue to the training batch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, Table
from rl_sentinel.adapters.kit.forms import RightAligned
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import groups_are_equal, no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.skyrl.arguments import Arguments, arguments
from rl_sentinel.adapters.skyrl.rollout import (
    GENERATED,
    batch_outputs,
    generated,
    read_step,
    trainer_object,
)
from rl_sentinel.adapters.skyrl.staleness import MODULE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

TRAINER = f"{MODULE}.FullyAsyncRayPPOTrainer"
PATH = f"{TRAINER}.convert_generation_group_mini_batch_to_training_input"
GROUP = f"{MODULE}.GeneratedOutputGroup"

FAMILIES: Mapping[str, Settings] = {
    "default": {},
    "two workers": {"workers": 2},
    "some thrown away": {"thrown_away": 1},
}

_DOCS = claims(
    "fully_async_trainer.py, convert_generation_group_mini_batch_to_training_input: groups are concatenated and "
    "converted; dropped groups are used for metrics only and never trained",
    conserves=True,
)
_QUEUE = (
    "fully_async_trainer.py, _run_generate_for_a_group_loop: one output per prompt, with the prompt's uid and the "
    f"step at which it was scheduled; {GENERATED}"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training batch.

    Discarded groups are covered only in releases that drop zero-variance groups.
    """
    if not target.has(PATH) or not target.has(GROUP):
        return
    try:
        forms = arguments(target)
    except Unbindable as why:
        yield Unbound.because(PATH, "batch", why)
        return
    filters = target.has(f"{TRAINER}._should_keep_group")
    settings = {name: family for name, family in FAMILIES.items() if filters or "thrown_away" not in family}
    yield from bindable(target, _training_batch(target, forms, settings))


def convert_groups(
    owner: type,
    group: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a fake with the attributes of the trainer
    prompts: list[dict[str, Any]],
    thrown_away: int,
) -> Any:  # noqa: ANN401 - the training batch
    """Convert the groups of a mini-batch at step 1; every second group was scheduled one step earlier."""
    whole = bare_instance(owner, **vars(trainer), global_step=1, max_staleness_steps=1, trajectory_logger=None)
    whole.tokenizer.decode = str
    kept = [group(p["output"], p["uid"], 1 - number % 2) for number, p in enumerate(prompts)]
    dropped = [group(_failed(prompts[0]["output"]), f"dropped-{n}", 0) for n in range(thrown_away)]
    return whole.convert_generation_group_mini_batch_to_training_input(kept, *([dropped] if dropped else []))


def _failed(output: Mapping[str, Any]) -> dict[str, Any]:
    """Responses of another prompt, of one token each and with reward 0."""
    rows = len(output["response_ids"])
    return {
        **output,
        "prompt_token_ids": [[0]] * rows,
        "response_ids": [[0]] * rows,
        "loss_masks": [[1]] * rows,
        "rollout_logprobs": [[-9.0]] * rows,
        "rewards": [0.0] * rows,
    }


def _training_batch(target: Target, forms: Arguments, settings: Mapping[str, Settings]) -> Boundary:
    prompt = Table(
        {"output": generated(), "uid": Derived(lambda inputs: f"prompt-{int(inputs.batch.group[0])}")},
    )
    convert = Step(
        call=convert_groups,
        name="batch",
        arguments={
            **functions(owner=TRAINER, group=GROUP),
            "trainer": trainer_object(target),
            "prompts": EachPrompt(prompt),
            "thrown_away": Knob("thrown_away", 0),
        },
        produced_by={"prompts": _QUEUE},
    )
    return Boundary(
        path=PATH,
        stage="batch",
        steps=(convert, read_step(right=isinstance(forms.form, RightAligned))),
        outputs=batch_outputs(forms),
        settings=settings,
        claims=_DOCS,
        reach="fully asynchronous training",
        requires=(prompts_are_contiguous, groups_are_equal, no_empty_response),
    )

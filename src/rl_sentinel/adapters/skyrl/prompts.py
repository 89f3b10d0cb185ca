"""SkyRL's generator input: prompts of the dataset, repeated for each of their samples."""

from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.independence import changed_by_others
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

PATH = "skyrl.train.generators.utils.prepare_generator_input"

_DOCS = "generators/utils.py, prepare_generator_input: a uid per row, repeated for the samples of a prompt"
_DATASET = (
    "skyrl/train/dataset/dataset.py, collate_fn: a dict per prompt with its messages, environment, uid (its number), "
    "and all other columns of the dataset as env_extras; trainer.py passes n_samples_per_prompt of the generator"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The input of a generator, whose environments write to the extras of their sample."""
    if target.has(PATH):
        yield from bindable(target, _prepared())


def prepare(method: Callable[..., Any], groups: list[int], samples: int) -> dict[str, list[float]]:
    """The prompt of each sample by its uid, and how many other samples can change its extras."""
    prompts = [
        {
            "prompt": [{"role": "user", "content": str(uid)}],
            "env_class": None,
            "env_extras": {"reward_spec": {"ground_truth": str(uid)}, "choices": [str(uid)]},
            "uid": str(uid),
        }
        for uid in dict.fromkeys(groups)
    ]
    made, uids = method(prompts, samples, {}, "environment", "train", 0)
    extras = made["env_extras"]
    return {
        "uids": [float(uid) for uid in uids],
        "prompts": [float(messages[0]["content"]) for messages in made["prompts"]],
        "answers": [float(one["reward_spec"]["ground_truth"]) for one in extras],
        "changed": changed_by_others(extras),
    }


def _prepared() -> Boundary:
    step = Step(
        call=prepare,
        name="prepared",
        arguments={
            "method": Constant(Function(PATH)),
            "groups": Labels("group"),
            "samples": Derived(lambda inputs: group_sizes(inputs)[0]),
        },
        produced_by={"groups": _DATASET},
    )
    result, form = Use("prepared"), PerRow("list")
    columns = {
        name: Output("B", "", "group", at=result[key], form=form)
        for name, key in {"uid": "uids", "prompt": "prompts", "answer": "answers"}.items()
    }
    changed = Output("B", "samples", "changed_by_others", at=result["changed"], form=form)
    return Boundary(
        path=PATH,
        stage="batch",
        steps=(step,),
        outputs=columns | {"changed": changed},
        claims=claims(_DOCS, conserves=True),
        reach="every run; generator.n_samples_per_prompt above 1",
        requires=(prompts_are_contiguous, groups_are_equal),
    )

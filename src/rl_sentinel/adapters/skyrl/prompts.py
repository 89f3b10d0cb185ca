"""SkyRL's preparation of prompts: repeated for each sample, and cut to a multiple of the workers."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.independence import changed_by_others
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.skyrl.arguments import TRAINER, config
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

PATH = "skyrl.train.generators.utils.prepare_generator_input"
#: The method in older releases, with another order of arguments.
METHOD = f"{TRAINER}._prepare_generator_input"
TAIL = f"{TRAINER}._remove_tail_data"

#: Data-parallel workers that share the samples of a step.
WORKERS = 4

_DOCS = "generators/utils.py, prepare_generator_input: a uid per row, repeated for the samples of a prompt"
_DATASET = (
    "skyrl/train/dataset/dataset.py, collate_fn: a dict per prompt with its messages, environment, uid (its number), "
    "and all other columns of the dataset as env_extras; trainer.py passes n_samples_per_prompt of the generator"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the generator's input, and the removal of prompts that cannot be divided evenly among workers."""
    if target.has(PATH):
        yield from bindable(target, _prepared(PATH))
    elif target.has(METHOD):
        yield from bindable(target, _prepared(METHOD))
    if target.has(TAIL):
        yield from bindable(target, _tail_removal())


def prepare(method: Callable[..., Any], cfg: Any, groups: list[int], samples: int) -> dict[str, list[float]]:  # noqa: ANN401 - the target's class
    """Prepare the samples of prompts.

    Returns, per sample, its label in four columns, and ``changed``: how many other samples can change its extras.
    Environments write to the extras, so samples must not share them. In older releases, the configuration also has the
    number of samples for training; here it differs from the number for evaluation, so that a mix-up shows.
    """
    prompts = [
        {
            "prompt": [{"role": "user", "content": str(uid)}],
            "env_class": str(uid),
            "env_extras": {"reward_spec": {"ground_truth": str(uid)}, "choices": [str(uid)]},
            "uid": str(uid),
        }
        for uid in dict.fromkeys(groups)
    ]
    if cfg is None:
        prepared, uids = method(prompts, samples, {}, "environment", "eval", 0)
    else:
        cfg.generator.n_samples_per_prompt, cfg.generator.eval_n_samples_per_prompt = samples + 1, samples
        params = cfg.generator.eval_sampling_params
        phase = ["eval"] if "training_phase" in inspect.signature(method).parameters else []
        prepared, uids = method(SimpleNamespace(cfg=cfg, global_step=0), samples, prompts, params, *phase)
    extras, rows = prepared["env_extras"], len(groups)
    contents = [messages[0]["content"] for messages in prepared["prompts"]]
    first = dict(reversed(list(zip(uids, contents, strict=False))))  # until October 2025, a uid is a random text
    return {
        "uids": _label_per_row([first.get(uid, "-1") for uid in uids], rows),
        "prompts": _label_per_row(contents, rows),
        "environments": _label_per_row(prepared["env_classes"], rows),
        "answers": _label_per_row([sample["reward_spec"]["ground_truth"] for sample in extras], rows),
        "changed": changed_by_others(extras)[:rows],
    }


def _label_per_row(labels: list[str], rows: int) -> list[float]:
    """The label of each row as a number; -1 if the column is too short."""
    return [float(label) for label in labels[:rows]] + [-1.0] * (rows - len(labels))


def _prepared(path: str) -> Boundary:
    result, form = Use("prepared"), PerRow("list")
    columns = {
        name: Output("B", "", "group", at=result[key], form=form)
        for name, key in {
            "uid": "uids",
            "prompt": "prompts",
            "environment": "environments",
            "answer": "answers",
        }.items()
    }
    changed = Output("B", "samples", "changed_by_others", at=result["changed"], form=form)
    return one_call(
        path=path,
        stage="batch",
        call=prepare,
        name="prepared",
        arguments={
            "method": Constant(Function(path)),
            "cfg": Constant(None) if path == PATH else config({}),
            "groups": Labels("group"),
            "samples": Derived(lambda inputs: group_sizes(inputs)[0]),
        },
        produced_by={"groups": _DATASET},
        outputs=columns | {"changed": changed},
        claims=claims(_DOCS, conserves=True),
        reach="every run; generator.n_samples_per_prompt above 1",
        requires=(prompts_are_contiguous, groups_are_equal),
    )


def uses_after_tail(method: Callable[..., Any], groups: list[int], samples: int, workers: int) -> list[float]:
    """Remove prompts that cannot be divided evenly among workers, and return how often each sample's prompt is kept.

    1 is correct, because the samples divide evenly.
    """
    actor_info = SimpleNamespace(rank=SimpleNamespace(dp_size=workers))
    model = SimpleNamespace(actor_infos=[actor_info])
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(generator=SimpleNamespace(n_samples_per_prompt=samples)),
        dispatch=SimpleNamespace(get_lcm_dp_size=lambda: workers),
        policy_model=model,
        **dict.fromkeys(("critic_model", "ref_model", "reward_model")),
    )
    kept = method(trainer, list(dict.fromkeys(groups)))
    return [float(kept.count(group)) for group in groups]


def samples_divide(inputs: Inputs) -> str:
    """The reason to skip a batch whose samples do not divide evenly among the workers; empty otherwise."""
    rows = inputs.batch.rows
    return f"{rows} samples do not divide evenly among {WORKERS} workers" if rows % WORKERS else ""


def _tail_removal() -> Boundary:
    return one_call(
        path=TAIL,
        stage="batch",
        call=uses_after_tail,
        name="uses",
        arguments={
            "method": Constant(Function(TAIL)),
            "groups": Labels("group"),
            "samples": Derived(lambda inputs: group_sizes(inputs)[0]),
            "workers": Constant(WORKERS),
        },
        produced_by={"groups": "trainer.py, train: the prompts of a batch of the training set"},
        outputs={"uses": Output("B", "", "uses", at=Use("uses"), form=PerRow("list"))},
        claims=claims("trainer.py, _remove_tail_data, docstring: remove tail data to have even shards"),
        reach="every run; trainer.train_batch_size prompts are not a multiple of the workers, their samples are",
        requires=(prompts_are_contiguous, groups_are_equal, samples_divide),
    )

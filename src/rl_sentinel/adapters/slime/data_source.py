"""slime's data source: the prompts of each rollout over epochs, and after a restart from a checkpoint."""

import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use

#: Paths of the class, newest first; the first one is the default of --data-source-path.
SOURCES = (
    "slime.rollout.data_source.RolloutDataSourceWithBuffer",
    "slime.ray.rollout_data_source.RolloutDataSourceWithBuffer",
    "slime.rollout.data_source.RolloutDataSource",
    "slime.ray.rollout_data_source.RolloutDataSource",
)
DATASET = "slime.utils.data.Dataset"

#: Responses per prompt, seed of the shuffle, and the number of rollouts before each restart.
SAMPLES, SEED, RESTARTS = 2, 42, (1, 2)

_CALLER = (
    "slime/rollout/sglang_rollout.py, generate_rollout_async: get_samples(over_sampling_batch_size), which is the "
    "rollout batch size by default; slime/ray/rollout.py: save after a rollout, load before the first one of a run"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the prompts that a run draws, in file order and shuffled."""
    path = next((path for path in SOURCES if target.has(path)), "")
    if path and target.has(DATASET):
        yield from bindable(target, _source(path))


def arguments_of(folder: str, *, shuffle: bool) -> Namespace:
    """The arguments of a run with a data set and a checkpoint folder."""
    return Namespace(
        rollout_global_dataset=True,
        prompt_data="prompts.jsonl",
        hf_checkpoint="model",
        dump_details=None,
        rollout_max_prompt_len=None,
        input_key="text",
        label_key=None,
        tool_key=None,
        metadata_key="metadata",
        multimodal_keys=None,
        apply_chat_template=False,
        apply_chat_template_kwargs=None,
        rollout_seed=SEED,
        rollout_shuffle=shuffle,
        n_samples_per_prompt=SAMPLES,
        buffer_filter_path=None,
        save=folder,
        load=folder,
    )


def prompts_of_rollouts(
    source: Callable[..., Any],
    dataset: type[object],
    sample: Callable[..., Any],
    rows: int,
    shuffle: bool,  # noqa: FBT001 - as slime's arguments have it
) -> dict[str, list[float]]:
    """Draw the prompts of a run, without restarts and with each restart.

    Returns how often each prompt is drawn per epoch; and for the first ``rows`` draws after each restart, the prompts
    and sample numbers without and with this restart.
    A rollout draws one prompt fewer than an epoch (at least one), so that epochs end within rollouts.
    """
    size = max(1, rows - 1)
    whole_epochs = 2 * rows  # this many rollouts are 2 * size epochs
    count = whole_epochs + max(RESTARTS)

    def open_source(folder: str) -> Any:  # noqa: ANN401 - the target's class
        return _open_source(source, dataset, [sample(prompt=str(row)) for row in range(rows)], folder, shuffle=shuffle)

    columns: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        whole = open_source(folder)
        rollouts = []
        for number in range(count):
            rollouts.append(whole.get_samples(size))
            if number + 1 in RESTARTS:
                whole.save(number)
        for restart in RESTARTS:
            restarted = open_source(folder)
            restarted.load(restart - 1)
            resumed = [restarted.get_samples(size) for _ in range(restart, count)]
            for name, rest in (("whole", rollouts[restart:]), ("resumed", resumed)):
                groups = [group for rollout in rest for group in rollout][:rows]
                columns[f"{name} prompts {restart}"] = [float(group[0].prompt) for group in groups]
                columns[f"{name} numbers {restart}"] = [float(group[0].index) for group in groups]
    draws = Counter(row.prompt for rollout in rollouts[:whole_epochs] for group in rollout for row in group)
    columns["uses"] = [draws[str(row)] / (2 * size * SAMPLES) for row in range(rows)]
    return columns


def _open_source(
    source: Callable[..., Any], dataset: type[object], samples: list[Any], folder: str, *, shuffle: bool
) -> Any:  # noqa: ANN401
    """The source with a data set in memory, because reading a file would require a tokenizer."""

    def in_memory(*_args: object, **_options: object) -> Any:  # noqa: ANN401 - the target's class
        bare_dataset: Any = dataset.__new__(dataset)
        vars(bare_dataset).update(origin_samples=samples, samples=samples, epoch_id=-1, seed=SEED)
        return bare_dataset

    no_tokenizer = SimpleNamespace(from_pretrained=lambda *_args, **_options: None)
    fakes = {
        "Dataset": in_memory,
        "load_tokenizer": lambda *_args, **_options: None,
        "load_processor": lambda *_args, **_options: None,
        "AutoTokenizer": no_tokenizer,
        "AutoProcessor": no_tokenizer,
    }
    modules = {id(one): one for kind in source.__mro__[:-1] if (one := _globals(kind))}  # type: ignore[attr-defined]  # a class
    with replaced_globals(*modules.values(), **fakes):
        return source(arguments_of(folder, shuffle=shuffle))


def _globals(kind: type) -> dict[str, Any]:
    module: dict[str, Any] = getattr(vars(kind).get("__init__"), "__globals__", {})
    return module


def _source(path: str) -> Boundary:
    drawn, form = Use("drawn"), PerRow("list")
    outputs = {"uses of a prompt": Output("B", "samples", "uses", at=drawn["uses"], form=form)}
    for restart in RESTARTS:
        for column in ("prompts", "numbers"):
            key, after = f"{column} {restart}", f"{column} after rollout {restart}"
            outputs[after] = Output("B", "", f"uninterrupted.{key}", at=drawn[f"whole {key}"], form=form)
            outputs[f"{after} and a restart"] = Output("B", "", f"resumed.{key}", at=drawn[f"resumed {key}"], form=form)
    return one_call(
        path=path,
        stage="batch",
        call=prompts_of_rollouts,
        name="drawn",
        arguments={
            **functions(source=path, dataset=DATASET, sample=SAMPLE),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "shuffle": Knob("rollout_shuffle", default=False),
        },
        produced_by={"rows": _CALLER},
        reads=frozenset({"group"}),
        outputs=outputs,
        settings={"default": {}, "shuffled": {"rollout_shuffle": True}},
        reach="every run with --rollout-global-dataset",
    )

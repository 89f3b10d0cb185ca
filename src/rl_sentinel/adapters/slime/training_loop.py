"""slime's training loops: the weights that sample each rollout, and what a checkpoint contains."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: The synchronous loop, and the one that samples the next rollout while it trains.
SYNCHRONOUS, ASYNCHRONOUS = "train.train", "train_async.train"

#: Setting -> command line: engines that share the GPUs of training are offloaded; a critic, whose first rollouts may
#: train it alone.
SETTINGS: Mapping[str, Settings] = {
    "engines stay": {"offloads": False, "critic": False, "critic_only": 0},
    "engines offloaded": {"offloads": True, "critic": False, "critic_only": 0},
    "critic": {"offloads": False, "critic": True, "critic_only": 0},
    "critic first": {"offloads": False, "critic": True, "critic_only": 1},
}

#: What a checkpoint must contain -> the unit of its number.
_SAVED = {"actor": "updates", "critic": "updates", "data": "samples"}

#: How the names of functions begin that log.
_LOGGING = ("init_", "configure_", "finish_", "update_tracking_")

_CLAIMS = claims(
    "train.py: always push actor weights to rollout once weights are loaded; docs/en/get_started/usage.md: after "
    "training the parameters are synchronized to SGLang; slime/utils/arguments.py, --offload-rollout, --offload-train: "
    "offload to CPU",
    output_algorithms={"updates behind": "newest weights"},
    inert={"offloads": (True, False)},
)
_PRODUCED = (
    "slime/utils/arguments.py: --save-interval 1, --rollout-global-dataset, no evaluation; --offload-rollout and "
    "--offload-train, on with --colocate; --num-critic-only-steps"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loops, in revisions that make the models and the rollout manager in one call each."""
    for path in (SYNCHRONOUS, ASYNCHRONOUS):
        if target.has(path) and not target.fails(path):
            source = inspect.getsource(target.find(path))
            if "create_training_models(" in source and "num_rollout_per_epoch = create_rollout_manager(" in source:
                yield from bindable(target, _loop(path))


class Options(SimpleNamespace):
    """Options of a run; those that are not set are None."""

    def __getattr__(self, name: str) -> None:
        """None, for a switch that is off."""


class Model:
    """A fake of a group of training workers: its number of updates, now and at each save."""

    def __init__(self, begins: Callable[[int], None]) -> None:
        """A model without updates, of which nothing is saved; ``begins`` is called with each rollout to train on."""
        self.begins, self.updates, self.published = begins, 0, 0
        self.saved: dict[int, int] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method that moves memory, or makes workers, and so does nothing."""
        if name.startswith("_"):
            raise AttributeError(name)
        return nothing

    def async_train(self, number: int, *_data: object, **_options: object) -> None:
        """Train on a rollout."""
        self.begins(number)
        self.updates += 1

    def update_weights(self) -> None:
        """Send the weights to the engines."""
        self.published = self.updates

    def save_model(self, number: int, *_about: object, **_options: object) -> None:
        """Save the weights in the checkpoint of a rollout."""
        self.saved[number] = self.updates


class Manager:
    """A fake of the rollout manager, whose data advance by one prompt per rollout.

    Its methods run in the order of their calls, as those of slime's Ray actor do.
    """

    def __init__(self) -> None:
        """A manager at the start of the data, with the models of a run."""
        self.actor, self.critic = Model(self.begin), Model(self.begin)
        self.position, self.numbers = 0, set[int]()
        self.saved: dict[int, int] = {}
        self.columns: dict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> SimpleNamespace:
        """A remote method; one that moves memory, evaluates or checks does nothing."""
        return SimpleNamespace(remote={"generate": self.rollout, "save": self.store}.get(name, nothing))

    def rollout(self, *_about: object) -> int:
        """Sample the next prompt, with the weights that the engines have; return its position."""
        self.columns["behind"].append(float(self.actor.updates - self.actor.published))
        self.position += 1
        return self.position

    def store(self, number: int) -> None:
        """Save the position in the data, in the checkpoint of a rollout."""
        self.saved[number] = self.position

    def begin(self, number: int) -> None:
        """Record the state after the last rollout, once all of its training is done."""
        if number not in self.numbers and self.numbers:
            self.note()
        self.numbers.add(number)

    def note(self) -> None:
        """Record the numbers of the run."""
        for name, own in (("actor", self.actor.updates), ("critic", self.critic.updates), ("data", len(self.numbers))):
            self.columns[f"{name} own"].append(float(own))

    def state(self) -> dict[str, list[float]]:
        """The numbers of the run, and those of the newest checkpoint up to each rollout."""
        self.note()
        for name, saved in (("actor", self.actor.saved), ("critic", self.critic.saved), ("data", self.saved)):
            newest = [max((number for number in saved if number <= own), default=-1) for own in sorted(self.numbers)]
            self.columns[f"{name} saved"] = [float(saved.get(number, 0)) for number in newest]
        return dict(self.columns)


def rollouts_of_run(train: Callable[..., Any], rollouts: int, options: Settings) -> dict[str, list[float]]:
    """Train with a checkpoint after each rollout.

    Returns, per rollout, ``behind``: the updates that the weights which sample it lack; and, with "own" and "saved" in
    the name, the updates of actor and critic and the prompts that were trained on after it, and those of the newest
    checkpoint, whose data go on after them.
    """
    manager, names = Manager(), train.__globals__
    fakes: dict[str, Any] = {
        **{name: nothing for name in names if name.startswith(_LOGGING)},
        "ray": SimpleNamespace(get=lambda result: result),
        "create_placement_groups": lambda _args: {"actor": None, "rollout": None},
        "create_rollout_manager": lambda *_about, **_options: (manager, None),
        "create_training_models": lambda *_about, **_options: (manager.actor, manager.critic),
    }
    with replaced_globals(names, **fakes):
        train(_arguments(rollouts, options))
    return manager.state()


def _arguments(rollouts: int, options: Settings) -> Options:
    offloads = bool(options["offloads"])
    return Options(
        start_rollout_id=0,
        num_rollout=rollouts,
        save_interval=1,
        update_weights_interval=1,
        rollout_global_dataset=True,
        **dict.fromkeys(("offload", "offload_rollout", "offload_train", "colocate"), offloads),
        use_critic=bool(options["critic"]),
        num_critic_only_steps=int(options["critic_only"] or 0),
    )


def _loop(path: str) -> Boundary:
    run, form, synchronous = Use("run"), PerRow("list"), path == SYNCHRONOUS
    outputs = {}
    if synchronous:  # rollouts of the other loop are one update behind
        outputs = {"updates behind": Output("B", "updates", "updates_behind", at=run["behind"], form=form)}
    for name, unit in _SAVED.items():
        for kind, quantity in (("own", "uninterrupted"), ("saved", "resumed")):
            words = f"{name} in the {'run' if kind == 'own' else 'checkpoint'}"
            outputs[words] = Output("B", unit, f"{quantity}.{name}", at=run[f"{name} {kind}"], form=form)
    return one_call(
        path=path,
        stage="batch",
        call=rollouts_of_run,
        name="run",
        arguments={
            **functions(train=path),
            "rollouts": Derived(lambda inputs: inputs.batch.rows),
            "options": AllSettings(),
        },
        produced_by={"options": _PRODUCED},
        reads=frozenset({"group"}),
        outputs=outputs,
        settings={name: options for name, options in SETTINGS.items() if synchronous or not options["offloads"]},
        claims=_CLAIMS if synchronous else Claims(),
        reach=f"python {path.partition('.')[0]}.py, with --save-interval and --rollout-global-dataset",
    )

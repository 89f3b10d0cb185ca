"""slime's training loop, ``train.py``: the weights that sample each rollout, and what a checkpoint contains."""

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
from rl_sentinel.core.claims import claims

PATH = "train.train"

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
    """The boundary of the loop, in revisions that make the models and the rollout manager in one call each."""
    if target.has(PATH) and not target.fails(PATH):
        source = inspect.getsource(target.find(PATH))
        if "create_training_models(" in source and "num_rollout_per_epoch = create_rollout_manager(" in source:
            yield from bindable(target, _loop())


class Options(SimpleNamespace):
    """Options of a run; those that are not set are None."""

    def __getattr__(self, name: str) -> None:
        """None, for a switch that is off."""


class Model:
    """A fake of a group of training workers: its number of updates, now and at each save."""

    def __init__(self) -> None:
        """A model without updates, of which nothing is saved."""
        self.updates, self.published, self.saved = 0, 0, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method that moves memory, or makes workers, and so does nothing."""
        if name.startswith("_"):
            raise AttributeError(name)
        return nothing

    def async_train(self, *_data: object, **_options: object) -> None:
        """Train on a rollout."""
        self.updates += 1

    def update_weights(self) -> None:
        """Send the weights to the engines."""
        self.published = self.updates

    def save_model(self, *_about: object, **_options: object) -> None:
        """Save the weights."""
        self.saved = self.updates


class Manager:
    """A fake of the rollout manager, whose data advance by one prompt per rollout."""

    def __init__(self, actor: Model, critic: Model) -> None:
        """A manager at the start of the data."""
        self.actor, self.critic, self.position, self.saved = actor, critic, 0, 0
        self.columns: dict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> SimpleNamespace:
        """A remote method; one that moves memory, evaluates or checks does nothing."""
        return SimpleNamespace(remote={"generate": self.rollout, "save": self.store}.get(name, nothing))

    def rollout(self, *_about: object) -> None:
        """Sample the next prompt, with the weights that the engines have."""
        if self.position:
            self.note()
        self.columns["behind"].append(float(self.actor.updates - self.actor.published))
        self.position += 1

    def store(self, *_about: object) -> None:
        """Save the position in the data."""
        self.saved = self.position

    def note(self) -> None:
        """Record the numbers of the run, and those of the newest checkpoint."""
        numbers = {
            "actor": (self.actor.updates, self.actor.saved),
            "critic": (self.critic.updates, self.critic.saved),
            "data": (self.position, self.saved),
        }
        for name, (own, saved) in numbers.items():
            self.columns[f"{name} own"].append(float(own))
            self.columns[f"{name} saved"].append(float(saved))


def rollouts_of_run(train: Callable[..., Any], rollouts: int, options: Settings) -> dict[str, list[float]]:
    """Train with a checkpoint after each rollout.

    Returns, per rollout, ``behind``: the updates that the weights which sample it lack; and, with "own" and "saved" in
    the name, the updates of actor and critic and the position in the data after it, in the run and in the newest
    checkpoint.
    """
    actor, critic = Model(), Model()
    manager, names = Manager(actor, critic), train.__globals__
    fakes: dict[str, Any] = {
        **{name: nothing for name in names if name.startswith(_LOGGING)},
        "ray": SimpleNamespace(get=lambda result: result),
        "create_placement_groups": lambda _args: {"actor": None, "rollout": None},
        "create_rollout_manager": lambda *_about, **_options: (manager, None),
        "create_training_models": lambda *_about, **_options: (actor, critic),
    }
    with replaced_globals(names, **fakes):
        train(_arguments(rollouts, options))
    manager.note()
    return dict(manager.columns)


def _arguments(rollouts: int, options: Settings) -> Options:
    offloads = bool(options["offloads"])
    return Options(
        start_rollout_id=0,
        num_rollout=rollouts,
        save_interval=1,
        rollout_global_dataset=True,
        **dict.fromkeys(("offload", "offload_rollout", "offload_train", "colocate"), offloads),
        use_critic=bool(options["critic"]),
        num_critic_only_steps=int(options["critic_only"] or 0),
    )


def _loop() -> Boundary:
    run, form = Use("run"), PerRow("list")
    outputs = {"updates behind": Output("B", "updates", "updates_behind", at=run["behind"], form=form)}
    for name, unit in _SAVED.items():
        for kind, quantity in (("own", "uninterrupted"), ("saved", "resumed")):
            words = f"{name} in the {'run' if kind == 'own' else 'checkpoint'}"
            outputs[words] = Output("B", unit, f"{quantity}.{name}", at=run[f"{name} {kind}"], form=form)
    return one_call(
        path=PATH,
        stage="batch",
        call=rollouts_of_run,
        name="run",
        arguments={
            **functions(train=PATH),
            "rollouts": Derived(lambda inputs: inputs.batch.rows),
            "options": AllSettings(),
        },
        produced_by={"options": _PRODUCED},
        reads=frozenset({"group"}),
        outputs=outputs,
        settings=SETTINGS,
        claims=_CLAIMS,
        reach="python train.py, with --save-interval and --rollout-global-dataset",
    )

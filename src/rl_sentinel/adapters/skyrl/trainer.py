"""SkyRL's trainer: advantages of responses and of step-wise trajectories, and their batch normalization."""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.skyrl.advantages import CLAIMS, REGISTRY, TEMPORAL, advantage_outputs, registered
from rl_sentinel.adapters.skyrl.arguments import (
    MODULE,
    PRODUCED_BY,
    STEP_WISE,
    TRAINER,
    Arguments,
    arguments,
    config,
    steps_in_order,
    trainer,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims, value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

PATH = f"{TRAINER}.compute_advantages_and_returns"
SCALE = f"{TRAINER}._normalize_advantages"
NORMALIZE = f"{MODULE}.normalize_advantages_dict"

ESTIMATOR = "trainer.algorithm.advantage_estimator"

_STEPS = claims(
    "trainer.py, compute_advantages_and_returns: the last step's advantage is broadcast to all steps of a trajectory",
    trajectories="step-wise",
)
_NORMALIZED = claims("config.py, AlgorithmConfig.advantage_batch_normalize", scope="batch")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's method for each estimator, and of the normalization.

    Outcome estimators are also bound step-wise.
    """
    try:
        target.find(PATH)
        names, forms = list(registered(target, REGISTRY)), arguments(target)
    except Unbindable as why:
        yield Unbound.because(PATH, "advantage", why)
        return
    for name in names:
        outcome = value_of(CLAIMS.get(name, Claims()).credit) == "outcome"
        for step_wise in (False, True) if outcome else (False,):
            yield from _advantages(target, name, forms, step_wise=step_wise)
    if target.has(NORMALIZE):
        yield from bindable(target, _normalized(forms))
    elif target.has(SCALE):
        yield from bindable(target, _scaled(forms))


def _advantages(target: Target, name: str, forms: Arguments, *, step_wise: bool) -> Iterator[Boundary | Unbound]:
    settings: Settings = {ESTIMATOR: name, **({STEP_WISE: True} if step_wise else {})}
    critic = ("values",) if name == "gae" else ()
    boundary = one_call(
        path=PATH,
        stage="advantage",
        call=PATH,
        name="data_after",
        arguments={"self": trainer(settings), "data": forms.training_input(*critic, step_wise=step_wise)},
        produced_by={"data": PRODUCED_BY},
        unused=frozenset() if name in TEMPORAL else frozenset({"token_reward"}),
        outputs=advantage_outputs(forms, Use("data_after")["advantages"], Use("data_after")["returns"]),
        settings={f"step-wise {name}" if step_wise else name: settings},
        claims=CLAIMS.get(name, Claims()) | (_STEPS if step_wise else Claims()),
        reach=", ".join(f"{k}={v}" for k, v in settings.items()),
        requires=(steps_in_order,) if step_wise else (),
    )
    # The last step marks the end of a trajectory, so the order of rows defines the trajectories.
    boundary = replace(boundary, reads=boundary.reads | {"trajectory"}) if step_wise else boundary
    try:
        config(settings).check(target)
    except Unbindable as why:
        yield Unbound.because(PATH, "advantage", why)
        return
    yield from bindable(target, boundary)


def _normalized(forms: Arguments) -> Boundary:
    """The boundary of the function of older releases, which only normalizes the batch."""
    return _normalization(forms, NORMALIZE, {"data": _data(forms)}, {}, optional=frozenset())


def _scaled(forms: Arguments) -> Boundary:
    """The boundary of the method of newer releases.

    The method also scales by the loss reduction, here a mean over tokens.
    """
    settings: Settings = {"trainer.algorithm.loss_reduction": "token_mean"}
    arguments_: dict[str, Codec] = {
        "self": trainer({"trainer.algorithm.advantage_batch_normalize": True, **settings}),
        "data": _data(forms),
        "mini_batch_boundaries": Derived(lambda inputs: [(0, inputs.batch.rows)]),
        "mini_batch_size": Derived(lambda inputs: inputs.batch.rows),  # of releases without boundaries
        "prompt_boundaries": Constant(None),
    }
    by_release = frozenset({"mini_batch_boundaries", "mini_batch_size", "prompt_boundaries"})
    return _normalization(forms, SCALE, arguments_, settings, optional=by_release)


def _data(forms: Arguments) -> Codec:
    tensors = {
        "advantages": forms.column("advantage"),
        "response_mask": forms.response_mask,
        "loss_mask": forms.loss_mask,
    }
    return forms.batch(tensors, {})


def _normalization(
    forms: Arguments, path: str, arguments_: dict[str, Codec], more: Settings, optional: frozenset[str]
) -> Boundary:
    return one_call(
        path=path,
        stage="normalize",
        call=path,
        name="data_after",
        arguments=arguments_,
        optional=optional,
        produced_by={"data": PRODUCED_BY},
        outputs={
            "advantage": Output("B T", "reward", "advantage", at=Use("data_after")["advantages"], form=forms.form)
        },
        settings={"default": {"trainer.algorithm.advantage_batch_normalize": True, **more}},
        claims=_NORMALIZED,
        reach="trainer.algorithm.advantage_batch_normalize=true",
    )

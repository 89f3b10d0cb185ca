"""The allowed values of verl's settings that its documentation, checks and enumerations list."""

import inspect
import re
from collections.abc import Iterator

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.listed_options import assigned_words, comment_words, field_words, quoted_words
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.registries import ESTIMATORS, LOSSES, MODULE, registered
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import Claims, claims

ALGORITHM = "verl.trainer.config.algorithm.AlgoConfig"
ACTOR = "verl.workers.config.ActorConfig"
POLICY_LOSS = "verl.workers.config.PolicyLossConfig"
PENALTY = f"{MODULE}.kl_penalty"

#: Option -> the configuration file whose comment lists the values of the option.
_COMMENTED = {"kl_penalty": "ppo_trainer.yaml", "kl_loss_type": "actor/actor.yaml"}

#: Page in the repository -> the option whose values the page lists.
_PAGES = {"docs/algo/ppo.md": "actor.kl_loss_type"}

#: A name with the sign that selects the gradient of k2.
_STRAIGHT = re.compile(r"\b(\w+\+)(?![\w+=])")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the look-ups of losses and estimators by the listed names."""
    if target.fails(MODULE):
        return  # the boundaries of the losses report this
    listed = field_words(target.find(POLICY_LOSS), "loss_mode") if _can_read(target, POLICY_LOSS) else ()
    path = f"{MODULE}.get_policy_loss_fn"
    if listed and target.has(path) and registered(target, LOSSES):
        cite = "actor.py, PolicyLossConfig, docstring of loss_mode: options"
        yield from bindable(target, _look_up(path, listed, cite, "actor.policy_loss.loss_mode"))
    names, path = f"{MODULE}.AdvantageEstimator", f"{MODULE}.get_adv_estimator_fn"
    if target.has(names) and target.has(path) and registered(target, ESTIMATORS):
        listed = tuple(str(one.value) for one in target.find(names))
        cite = "core_algos.py, AdvantageEstimator: the names of the estimators"
        yield from bindable(target, _look_up(path, listed, cite, "algorithm.adv_estimator"))


def _can_read(target: Target, path: str) -> bool:
    return target.has(path) and not target.fails(path)


def _look_up(path: str, listed: tuple[str, ...], cite: str, option: str) -> Boundary:
    return one_call(
        path=path,
        stage="config",
        call=path,
        name="chosen",
        arguments={"0": Knob("name")},
        outputs={"accepted": Output("", "", "accepted", at=Use("chosen"), form=Accepted())},
        settings={"default": {"name": listed[0]}},
        claims=claims(cite, options={"name": listed}),
        reach=option,
    )


def kl_kinds(target: Target) -> Claims:
    """The claim about the names of KL estimators that a release lists; empty if none is listed."""
    found = field_words(target.find(ALGORITHM), "kl_penalty") if _can_read(target, ALGORITHM) else ()
    folder = target.root / "verl" / "trainer" / "config"
    for option, file in _COMMENTED.items():
        if (folder / file).is_file():
            found += comment_words((folder / file).read_text(encoding="utf-8"), option)
    for page, option in _PAGES.items():
        if (target.root / page).is_file():
            lines = (target.root / page).read_text(encoding="utf-8").splitlines()
            found += quoted_words(" ".join(line.partition(f"{option}`:")[2] for line in lines))
    found += tuple(_STRAIGHT.findall(inspect.getsource(target.find(PENALTY))))
    cite = (
        "algorithm.py, AlgoConfig, docstring of kl_penalty; actor.yaml, comment of kl_loss_type: options; "
        "core_algos.py, kl_penalty: a name that ends with '+'"
    )
    return claims(cite, options={"kind": tuple(dict.fromkeys(found))}) if found else Claims()


def aggregations(target: Target) -> Claims:
    """The claim about the modes that the actor's configuration accepts; empty if it lists none."""
    listed = assigned_words(target.find(ACTOR), "valid_loss_agg_modes") if _can_read(target, ACTOR) else ()
    cite = "actor.py, ActorConfig.__post_init__: valid_loss_agg_modes"
    return claims(cite, options={"loss_agg_mode": listed}) if listed else Claims()

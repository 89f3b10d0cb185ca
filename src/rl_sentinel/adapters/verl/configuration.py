"""Boundaries of verl's configuration classes: which settings they accept before training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.kit.value_codecs import Earlier, Spread
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Absent, Unbindable

CONTROLLER = "verl.trainer.ppo.core_algos.get_kl_controller"


@dataclass(frozen=True, slots=True)
class Section:
    """A configuration class, a valid setting, and invalid settings.

    Attributes:
        path: the path of the class.
        word: cites the place where verl promises validation.
        sound: the fields of a valid setting.
        nonsense: name of an invalid setting -> its fields, and why they are invalid.
        then: the function that the trainer calls with the configuration before step 1; empty for none.
    """

    path: str
    word: str
    sound: Settings
    nonsense: Mapping[str, tuple[Settings, str]]
    then: str = ""


SECTIONS = (
    Section(
        path="verl.workers.config.FSDPActorConfig",
        word="actor.py, ActorConfig.__post_init__: validate actor configuration parameters",
        sound={"rollout_n": 4, "ppo_micro_batch_size_per_gpu": 4},
        nonsense={
            "negative clip_ratio_high": (
                {"clip_ratio_high": -1.0},
                "the upper bound of the ratio is below its lower bound",
            ),
            "kl_loss_type unknown": ({"kl_loss_type": "no such kind"}, "no estimator has this name"),
            "loss_agg_mode unknown": ({"loss_agg_mode": "no such mode"}, "no aggregation has this name"),
            "loss_scale_factor 0": ({"loss_scale_factor": 0}, "the loss is divided by it"),
            "clip_ratio_c 0.5": ({"clip_ratio_c": 0.5}, "the losses require a value above 1"),
        },
    ),
    Section(
        path="verl.trainer.config.algorithm.RolloutCorrectionConfig",
        word="algorithm.py, docstring: this typed configuration provides type safety and validation",
        sound={},
        nonsense={
            "rollout_is unknown": ({"rollout_is": "no such level"}, "valid: token, sequence or none"),
            "rollout_rs unknown": (
                {"rollout_rs": "no such option", "rollout_rs_threshold": "0.5_2.0"},
                "no such option",
            ),
            "rollout_rs without threshold": ({"rollout_rs": "seq_mean_k1"}, "an option without bounds rejects nothing"),
            "loss_type unknown": ({"loss_type": "no such loss"}, "valid: ppo_clip or reinforce"),
        },
    ),
    Section(
        path="verl.workers.config.FSDPCriticConfig",
        word="critic.py, CriticConfig.__post_init__: validate critic configuration parameters",
        sound={"ppo_micro_batch_size_per_gpu": 4},
        nonsense={
            "negative cliprange_value": (
                {"cliprange_value": -1.0},
                "the upper bound of the value is below its lower bound",
            ),
            "loss_agg_mode unknown": ({"loss_agg_mode": "no such mode"}, "no aggregation has this name"),
        },
    ),
    Section(
        path="verl.trainer.config.algorithm.KLControlConfig",
        word="core_algos.py, get_kl_controller: asserts the settings that an adaptive controller needs",
        sound={"type": "adaptive"},
        nonsense={
            "horizon 0": ({"type": "adaptive", "horizon": 0}, "the step of the controller is divided by it"),
            "target_kl 0": ({"type": "adaptive", "target_kl": 0.0}, "the error of the controller is divided by it"),
        },
        then=CONTROLLER,
    ),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per configuration class of this release."""
    for section in SECTIONS:
        try:
            known = {f.name for f in fields(target.find(section.path))}
        except Unbindable as why:
            if not isinstance(why, Absent):
                yield Unbound.because(section.path, "config", why)
            continue
        yield from bindable(
            target,
            _boundary(
                replace(section, sound={n: v for n, v in section.sound.items() if n in known}),
                {n: w for n, w in section.nonsense.items() if set(w[0]) <= known},
            ),
        )


def _boundary(section: Section, nonsense: Mapping[str, tuple[Settings, str]]) -> Boundary:
    """The boundary of a class. Settings outside of the tested family keep their defaults."""
    families = {"default": section.sound} | {n: {**section.sound, **own} for n, (own, _) in nonsense.items()}
    steps = [Step(call=section.path, name="made", arguments={"settings": Spread()})]
    if section.then:
        steps.append(Step(call=section.then, name="then", arguments={"0": Earlier(Use("made"))}))
    return Boundary(
        path=f"{section.path} -> {section.then}" if section.then else section.path,
        stage="config",
        steps=tuple(steps),
        outputs={"accepted": Output("", "", "accepted", at=Use("made"), form=Accepted())},
        settings=families,
        claims=claims(section.word, refused={name: why for name, (_, why) in nonsense.items()}),
        reach="every run",
    )

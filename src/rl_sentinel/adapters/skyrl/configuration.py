"""SkyRL's validation of a configuration before training."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.skyrl.arguments import STEP_WISE, config
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

PATH = "skyrl.train.utils.utils.validate_cfg"

ESTIMATOR = "trainer.algorithm.advantage_estimator"

#: A model for the critic and a logger that needs no account: without them, another check fails first.
_PLAIN: Settings = {"trainer.logger": "console", "trainer.critic.model.path": "critic"}

FAMILIES: Mapping[str, Settings] = {
    "default": {"trainer.logger": "console"},
    "step-wise grpo": {"trainer.logger": "console", STEP_WISE: True},
    "stepwise_gae": {**_PLAIN, STEP_WISE: True, ESTIMATOR: "gae"},
    "stepwise_reinforce++": {**_PLAIN, STEP_WISE: True, ESTIMATOR: "reinforce++"},
}

_WHY = (
    "trainer.py: the advantage of the last step is broadcast to all steps, but a temporal estimator has one per token"
)

_BROADCAST = "a temporal estimator's advantages, one per token, cannot be taken from the last step alone"

CLAIMS = claims(_WHY, refused={name: _BROADCAST for name in FAMILIES if name.startswith("stepwise_")})


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary: the validation under valid configurations and under contradictory ones."""
    paths = {path: path for settings in FAMILIES.values() for path in settings}
    whole = config(paths)
    try:
        whole.check(target)
    except Unbindable as why:
        yield Unbound(PATH, "config", str(why))
        return
    boundary = Boundary(
        path=PATH,
        stage="config",
        steps=(Step(call=PATH, name="answer", arguments={"cfg": whole}),),
        outputs={"accepted": Output("", "", "accepted", form=Accepted())},
        settings=FAMILIES,
        claims=CLAIMS,
        reach="every run",
    )
    yield from bindable(target, boundary)

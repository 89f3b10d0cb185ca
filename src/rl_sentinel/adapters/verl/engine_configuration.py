"""Boundary of the constructor of verl's engine on FSDP: which models and settings it accepts together."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_passes import CONFIG, FAKES, LM_HEAD, MODULE, fsdp
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

PATH = f"{MODULE}.FSDPEngine.__init__"

PADDED_ON_RANKS = "ranks share padded sequences"

#: The number of ranks that share a sequence, with packed and with padded sequences.
SETTINGS: Mapping[str, Settings] = {
    "one rank, padded sequences": {"ranks": 1, "use_remove_padding": False},
    "one rank, packed sequences": {"ranks": 1, "use_remove_padding": True},
    "ranks share packed sequences": {"ranks": 2, "use_remove_padding": True},
    PADDED_ON_RANKS: {"ranks": 2, "use_remove_padding": False},
}

_WHY = (
    "only the packed path of the engine cuts sequences: each rank computes the whole of padded ones as if it were alone"
)

_SHARED = (
    "workers/config/actor.py and critic.py, or the engine's constructor: with sequence parallelism, you must enable "
    "`use_remove_padding`"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the constructor, which every worker on FSDP calls from verl 0.8 on, and engine workers before."""
    if target.has(PATH) and target.has(LM_HEAD) and target.has(CONFIG):
        yield from try_bind(target, PATH, "config", lambda: [_constructor(target)])


def _constructor(target: Target) -> Boundary:
    engine = fsdp(LM_HEAD)
    accepted = [name for name in SETTINGS if name != PADDED_ON_RANKS]
    return one_call(
        path=PATH,
        stage="config",
        call=engine.make,
        name="made",
        fakes=present(target, FAKES),
        arguments=engine.parts,
        produced_by={
            "config": "trainer/sft_trainer.py, _build_engine; workers/engine_workers.py: the class of the engine"
        },
        outputs={"accepted": Output("", "", "accepted", at=Use("made"), form=Accepted())},
        settings=SETTINGS,
        claims=claims(
            _SHARED,
            refused={PADDED_ON_RANKS: _WHY},
            accepted=dict.fromkeys(accepted, "the engine has a path for it"),
        ),
        reach="supervised runs, and actor and critic on FSDP",
    )

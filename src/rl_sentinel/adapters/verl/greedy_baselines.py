"""Boundaries of verl's requests for a greedy baseline: from the trainer's mark to the options of the engine."""

import inspect
from collections.abc import Iterator, Mapping
from functools import partial

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.value_codecs import constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_loop import WORKER
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.rollout_servers import CONFIG, SERVERS, Server, options_sent
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
GENERATE = f"{WORKER}.generate_sequences"

#: Text of the trainer -> where it marks the rows of a greedy baseline, newest first.
PLACES: Mapping[str, str] = {
    '"__do_sample__"': "__do_sample__",  # a column of the rows
    'meta_info["do_sample"] = False': "meta_info",
}

#: A greedy engine has the temperature 0.
GREEDY: Settings = {"temperature": 0.0}

#: The temperature of all other responses.
_TEMPERATURE = 0.7

_DOCS = claims(
    "ray_trainer.py, fit, REMAX: a sampled rollout plus a greedy baseline per prompt; core_algos.py, "
    "compute_remax_outcome_advantage, arXiv 2310.10505: the baseline is the reward of the greedy response"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the worker with each server, in releases whose trainer asks for a greedy baseline."""
    if not target.has(CONFIG) or target.fails(CONFIG) or not target.has(GENERATE) or target.fails(WORKER):
        return
    place = baseline_place(target)
    for name, server in SERVERS.items() if place else ():
        path = f"{server.owner}.generate"
        with engine_installed(name):
            found = target.has(path)  # imports its module
        if found:
            yield from try_bind(target, path, "config", partial(_greedy, name, server, place))


def baseline_place(target: Target) -> str:
    """Where the trainer of a release marks the rows of a greedy baseline; empty if it does not mark them."""
    if not target.has(TRAINER) or target.fails(TRAINER):
        return ""
    source = inspect.getsource(target.find(TRAINER))
    return next((place for text, place in PLACES.items() if text in source), "")


def _greedy(name: str, server: Server, place: str) -> Iterator[Boundary]:
    rollout = constants(name=name, max_model_len=64, temperature=_TEMPERATURE)
    yield one_call(
        path=f"{GENERATE} -> {server.owner}.generate",
        stage="config",
        call=options_sent,
        name="sent",
        fakes=server.fakes,
        arguments={
            **functions(worker=WORKER, server=server.owner),
            "rollout": Object(CONFIG, rollout, shared=True),
            **constants(validate=False, greedy=place),
        },
        produced_by={"greedy": "ray_trainer.py, fit: the mark of gen_baseline_batch"},
        remembered=True,
        outputs=arriving_outputs(Use("sent"), {"temperature": "temperature"}),
        settings={"options, greedy baseline": GREEDY},
        claims=_DOCS,
        reach=f"algorithm.adv_estimator=remax, rollout.name={name}",
    )

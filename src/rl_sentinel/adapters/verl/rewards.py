"""Boundaries of verl's reward managers: the token that gets the score, and the overlong penalty."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import AfterPrompt, Padded
from rl_sentinel.adapters.kit.requirements import no_empty_response, within_limit
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import data_proto, section
from rl_sentinel.adapters.verl.reward_fakes import (
    SOURCE,
    SPECIAL,
    WORD,
    Text,
    Tokens,
    extra_info,
    ground_truth,
    score,
    score_each,
    score_each_in_loop,
    score_in_order,
    score_in_this_process,
)
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs, Sizes

#: Managers that score a whole batch, by name.
MANAGERS: Mapping[str, str] = {
    "naive": "verl.workers.reward_manager.naive.NaiveRewardManager",
    "batch": "verl.workers.reward_manager.batch.BatchRewardManager",
    "prime": "verl.workers.reward_manager.prime.PrimeRewardManager",
    "dapo": "verl.workers.reward_manager.dapo.DAPORewardManager",
}

#: The default scoring function, newest first; scoring functions of users have its parameters.
SCORERS = tuple(f"verl.utils.reward_score.{name}" for name in ("default_compute_score", "_default_compute_score"))

#: Managers of the reward loop, which score one response at a time, by name.
_LOOP = "verl.experimental.reward_loop.reward_manager"
LOOP: Mapping[str, str] = {
    "naive": f"{_LOOP}.naive.NaiveRewardManager",
    "gdpo": f"{_LOOP}.gdpo.GDPORewardManager",
    "rate_limited": f"{_LOOP}.limited.RateLimitedRewardManager",
    "remote": f"{_LOOP}.remote.RemoteRewardManager",
    "dapo": f"{_LOOP}.dapo.DAPORewardManager",
}

#: Managers of the reward loop by name, at their paths in earlier releases.
_EARLIER_LOOP = "verl.experimental.reward.reward_loop"
EARLIER_LOOP: Mapping[str, str] = {
    "naive": f"{_EARLIER_LOOP}.naive.NaiveRewardLoopManager",
    "dapo": f"{_EARLIER_LOOP}.dapo.DAPORewardLoopManager",
}

#: Responses have at most ``limit`` tokens; the last ``buffer`` of these are penalized.
OVERLONG: Settings = {"limit": 6, "buffer": 4, "factor": 1.0}

_KNOB = claims(
    "verl.readthedocs.io/en/latest/algo/dapo.html: a penalty grows with the length beyond the buffer's start",
    knobs={"factor": (0.5, 1.0)},
)

_LANDS = claims(
    "core_algos.py, docstrings of outcome estimators: one scalar reward for each response; every manager writes its "
    "score at valid_response_length - 1, counted by the attention mask",
    algorithm="outcome at the last response token",
)

_PAYS = claims(
    "verl.readthedocs.io/en/latest/algo/dapo.html, Overlong Reward Shaping, after arXiv 2503.14476: the outcome minus "
    "a penalty that rises from 0 to penalty_factor over the last overlong_buffer.len tokens up to the maximum length",
    algorithm="outcome less the overlong penalty at the last response token",
)

#: Settings of the penalty -> why they must be refused; and the widest buffer, which must be accepted.
_NONSENSE: Mapping[str, tuple[Settings, str]] = {
    "no overlong buffer": ({**OVERLONG, "buffer": 0}, "the penalty is divided by the length of the buffer"),
    "overlong buffer above the limit": ({**OVERLONG, "buffer": 7}, "the buffer is a part of the response"),
}
_WIDEST: Mapping[str, Settings] = {"overlong buffer of the whole response": {**OVERLONG, "buffer": 6}}

_VALIDATES = claims(
    "dapo.py, __init__: asserts the settings of the penalty",
    refused={name: why for name, (_, why) in _NONSENSE.items()},
    accepted=dict.fromkeys(_WIDEST, "the buffer is not longer than the response"),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per reward manager; DAPO's manager is bound only with the overlong penalty."""
    for managers in (MANAGERS, LOOP, EARLIER_LOOP):
        for name, path in managers.items():
            if managers is not MANAGERS and target.locate(path) != path:  # another manager of this name
                continue
            yield from try_bind(target, path, "reward", partial(_managers, target, name, path))


def _managers(target: Target, name: str, path: str) -> Iterator[Boundary]:
    score_in_this_process(target.module(path.rpartition(".")[0]))
    if name != "dapo":
        yield _boundary(target, path, name, "default", {})
    if name == "naive":
        yield _boundary(target, path, name, "prompts with text", {}, WORD)
    elif "overlong_buffer_cfg" in inspect.getsource(target.find(path)):
        yield (made := _boundary(target, path, name, "overlong", OVERLONG))
        if len(made.steps) > 1:  # the first one creates the manager
            yield replace(
                made,
                stage="config",
                steps=made.steps[:1],
                reads=frozenset(),
                unused=frozenset(),
                outputs={"accepted": Output("", "", "accepted", at=Use("manager"), form=Accepted())},
                settings={**_WIDEST, **{name: knobs for name, (knobs, _) in _NONSENSE.items()}},
                claims=_VALIDATES,
                requires=(),
            )


def _boundary(  # noqa: PLR0913 - the parts in which they differ
    target: Target, path: str, name: str, family: str, knobs: Settings, prompt: int = SPECIAL
) -> Boundary:
    looped = path not in MANAGERS.values()
    score_with = _score_each_response if looped else _score_whole_batch
    steps = score_with(target, path, knobs, prompt)
    return Boundary(
        path=path,
        stage="reward",
        steps=steps,
        unused=frozenset({"token"}),
        outputs={"token_reward": Output("B T", "reward", "token_reward", at=Use("scores"), form=Padded())},
        settings={family: knobs},
        claims=_KNOB | _PAYS if knobs else _LANDS,
        reach=f"reward_manager={name}" if not looped else f"reward.reward_manager.name={name}",
        requires=(no_empty_response, *((within_limit,) if knobs else ())),
    )


@dataclass(frozen=True, slots=True)
class GroundTruths(Codec):
    """The ground truth of each row in a dataset: the correct text, and its reward.

    If ``informed``, the scoring function of the release also gets the row's extra information.
    """

    informed: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The only column that is read back, ``reward``."""
        return frozenset({"reward"})

    @override
    def put(self, inputs: Inputs) -> Any:
        rows = zip(inputs.batch.reward.tolist(), Text().lay_out(inputs.batch.token, inputs), strict=True)
        truths = (ground_truth(*row, informed=self.informed) for row in rows)
        return np.array([*({"ground_truth": truth} for truth in truths), None], dtype=object)[:-1]

    @override
    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:
        return {"reward": torch.tensor([row["ground_truth"]["reward"] for row in value], dtype=torch.float32)}

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"reward": batch.reward}


def _extra_infos(inputs: Inputs) -> Any:  # noqa: ANN401 - an array of dicts
    rows = Text().lay_out(inputs.batch.token, inputs)
    return np.array([*(extra_info(row) for row in rows), None], dtype=object)[:-1]


def _takes_extra_info(target: Target) -> bool:
    """Whether the scoring functions of the release get the extra information of a row."""
    return any(target.has(path) and "extra_info" in inspect.signature(target.find(path)).parameters for path in SCORERS)


def source_column(target: Target) -> str:
    """The name of the data-source column; not the default name in releases that have a setting for this name."""
    files = (target.root / "verl" / "trainer" / "config").rglob("*.yaml")
    return "source" if any("reward_fn_key:" in file.read_text(encoding="utf-8") for file in files) else "data_source"


def _data(target: Target, prompt: int, column: str = "data_source") -> Codec:
    """The batch after the rollout: prompts of one token, responses, and the ground truth of each row.

    ``column`` has the data source.
    """
    tensors = {
        "prompts": Derived(lambda inputs: torch.full((inputs.batch.rows, 1), prompt)),
        "responses": Column("token", Text()),
        "attention_mask": ResponseMask(AfterPrompt(1)),
    }
    labels = {
        "reward_model": GroundTruths(_takes_extra_info(target)),
        "data_source": Derived(lambda inputs: np.array(["another"] * inputs.batch.rows, dtype=object)),
        column: Derived(lambda inputs: np.array([SOURCE] * inputs.batch.rows, dtype=object)),
        "extra_info": Derived(_extra_infos),
    }
    return data_proto(tensors, labels)


def _penalty(knobs: Settings) -> dict[str, Codec]:
    if not knobs:
        return {}
    buffer = {**constants(enable=True, log=False), "len": Knob("buffer"), "penalty_factor": Knob("factor")}
    return {"max_resp_len": Knob("limit"), "overlong_buffer_cfg": section(buffer)}


def _score_whole_batch(target: Target, path: str, knobs: Settings, prompt: int) -> tuple[Step, Step]:
    function, column = score_in_order if path == MANAGERS["prime"] else score, source_column(target)
    arguments = {"tokenizer": Object(Tokens), **constants(num_examine=0, compute_score=function), **_penalty(knobs)}
    arguments["reward_fn_key"] = Constant(column)
    producer = "verl/trainer/ppo/reward.py, load_reward_manager: data.reward_fn_key; the batch as the rollout leaves it"
    return (
        Step(call=path, name="manager", arguments=arguments, optional=frozenset({"reward_fn_key"})),
        Step(
            call=Use("manager"),
            name="scores",
            arguments={"0": _data(target, prompt, column)},
            produced_by={"0": producer},
        ),
    )


def _score_each_response(target: Target, path: str, knobs: Settings, prompt: int) -> tuple[Step, ...]:
    kwargs = Table(_penalty(knobs))
    reward = Table({"reward_kwargs": kwargs, **constants(num_workers=1)})
    earlier = {"reward_model": reward} if not target.has(f"{path}.assemble_rm_scores") else {}
    config = section({"reward": reward, **earlier, **constants(trainer={"experiment_name": "house"})})
    producer = "verl/experimental/reward_loop/reward_loop.py: run_single per response, then assemble_rm_scores"
    names = ("config", "tokenizer", "compute_score")
    made: dict[str, Codec] = dict(zip(names, (config, Object(Tokens), Constant(score)), strict=True))
    if "get_running_loop" in inspect.getsource(target.find(path).__base__):
        arguments = {"data": _data(target, prompt), "kind": Constant(Function(path)), **made}
        return (Step(call=score_each_in_loop, name="scores", arguments=arguments, produced_by={"data": producer}),)
    return (
        Step(call=path, name="manager", arguments={str(n): codec for n, codec in enumerate(made.values())}),
        Step(
            call=score_each,
            name="scores",
            arguments={"manager": Earlier(Use("manager")), "data": _data(target, prompt)},
            produced_by={"data": producer},
        ),
    )

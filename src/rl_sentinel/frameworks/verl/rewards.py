"""verl's reward managers: where a score lands, and what a response pays for its length."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.columns import absent, proto
from rl_sentinel.frameworks.verl.scoring import SPECIAL, Tokens, ground_truth, here, score, score_in_order

#: Managers that are asked for a whole batch, by their class.
MANAGERS: Mapping[str, str] = {
    "naive": "verl.workers.reward_manager.naive.NaiveRewardManager",
    "batch": "verl.workers.reward_manager.batch.BatchRewardManager",
    "prime": "verl.workers.reward_manager.prime.PrimeRewardManager",
    "dapo": "verl.workers.reward_manager.dapo.DAPORewardManager",
}

#: Managers of the reward loop, which score one response at a time.
_LOOP = "verl.experimental.reward_loop.reward_manager"
LOOP: Mapping[str, str] = {
    "naive": f"{_LOOP}.naive.NaiveRewardManager",
    "gdpo": f"{_LOOP}.gdpo.GDPORewardManager",
    "rate_limited": f"{_LOOP}.limited.RateLimitedRewardManager",
    "remote": f"{_LOOP}.remote.RemoteRewardManager",
    "dapo": f"{_LOOP}.dapo.DAPORewardManager",
}

#: No response is longer than ``limit``; of those, the last ``buffer`` tokens cost.
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
    "verl.readthedocs.io/en/latest/algo/dapo.html, Overlong Reward Shaping, after arXiv 2503.14476: the outcome less "
    "a penalty that rises from 0 to penalty_factor over the last overlong_buffer.len tokens up to the maximum length",
    algorithm="outcome less the overlong penalty at the last response token",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per manager, and one more where a long response pays."""
    for managers in (MANAGERS, LOOP):
        for name, path in managers.items():
            try:
                target.find(path)
            except Unbindable as why:
                if not absent(why):
                    yield Unbound(path, "reward", str(why))
                continue
            if managers is LOOP and not target.has(f"{path}.assemble_rm_scores"):
                continue
            here(target.module(path.rpartition(".")[0]))
            if name != "dapo":
                yield _boundary(target, path, name, "default", {})
            elif "overlong_buffer_cfg" in inspect.getsource(target.find(path)):
                yield _boundary(target, path, name, "overlong", OVERLONG)


def _boundary(target: Target, path: str, name: str, family: str, knobs: Settings) -> Boundary:
    looped = path in LOOP.values()
    manage = _one_by_one if looped else _at_once

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        if bool((batch.length == 0).any()):
            message = "a response without a token has no place for its score"
            raise NotApplicable(message)
        if knobs and int(batch.length.max()) > int(knobs["limit"] or 0):
            message = f"no response is longer than {knobs['limit']} tokens"
            raise NotApplicable(message)
        return {"token_reward": manage(target, path, batch, settings)}

    return Boundary(
        path=path,
        stage="reward",
        call=call,
        reads=frozenset({"reward", "length"}),
        outputs={"token_reward": Output("B T", "reward", "token_reward")},
        settings={family: knobs},
        claims=_KNOB | _PAYS if knobs else _LANDS,
        reach=f"reward_manager={name}" if not looped else f"reward.reward_manager.name={name}",
    )


def _data(target: Target, batch: Batch) -> Any:  # noqa: ANN401 - the target's DataProto
    prompt = torch.ones(batch.rows, 1, dtype=torch.int64)
    responses = torch.where(batch.valid, batch.token.abs() + 1, SPECIAL)
    tensors = {
        "prompts": prompt * SPECIAL,
        "responses": responses,
        "attention_mask": torch.cat([prompt, batch.valid.to(torch.int64)], dim=1),
    }
    truths = [{"ground_truth": ground_truth(*row)} for row in zip(batch.reward.tolist(), responses, strict=True)]
    labels = {
        "reward_model": np.array([*truths, None], dtype=object)[:-1],
        "data_source": np.array(["house"] * batch.rows, dtype=object),
        "extra_info": np.array([*({} for _ in truths), None], dtype=object)[:-1],
    }
    return proto(target, tensors, labels, {})


def _buffer(settings: Settings) -> Any:  # noqa: ANN401 - an OmegaConf section
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    about = {"enable": True, "len": settings["buffer"], "log": False}
    return OmegaConf.create({**about, "penalty_factor": settings["factor"]})


def _kwargs(settings: Settings) -> dict[str, Any]:
    return {"max_resp_len": settings["limit"], "overlong_buffer_cfg": _buffer(settings)} if settings else {}


def _at_once(target: Target, path: str, batch: Batch, settings: Settings) -> Tensor:
    scores = score_in_order if path == MANAGERS["prime"] else score
    manager: Callable[..., Any] = target.call(
        path, tokenizer=Tokens(), num_examine=0, compute_score=scores, **_kwargs(settings)
    )
    found: Tensor = manager(_data(target, batch))
    return found


def _one_by_one(target: Target, path: str, batch: Batch, settings: Settings) -> Tensor:
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    reward = {"reward_kwargs": _kwargs(settings), "num_workers": 1}
    config = OmegaConf.create({"reward": reward, "trainer": {"experiment_name": "house"}})
    manager = target.call(path, config, Tokens(), score)
    data = _data(target, batch)
    scores = [manager.loop.run_until_complete(manager.run_single(data[i : i + 1])) for i in range(batch.rows)]
    found: Tensor = manager.assemble_rm_scores(data, [float(s["reward_score"]) for s in scores])
    return found

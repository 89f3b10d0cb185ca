"""verl's reward managers: where a score lands, and what a response pays for its length."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Claim, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.columns import absent, proto

#: Managers that score in this process, by their class; another one scores in processes of its own.
MANAGERS: Mapping[str, str] = {
    "naive": "verl.workers.reward_manager.naive.NaiveRewardManager",
    "batch": "verl.workers.reward_manager.batch.BatchRewardManager",
    "dapo": "verl.workers.reward_manager.dapo.DAPORewardManager",
}

#: Managers of the reward loop, which score one response at a time.
LOOP: Mapping[str, str] = {
    "naive": "verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager",
    "dapo": "verl.experimental.reward_loop.reward_manager.dapo.DAPORewardManager",
}

#: A response of at most four tokens, of which the last two cost.
OVERLONG: Settings = {"max_resp_len": 4, "overlong_len": 2, "penalty_factor": 1.0}

_KNOB = {
    "knob:penalty_factor": Claim(
        "0.5|1.0",
        "verl.readthedocs.io/en/latest/algo/dapo.html: a penalty grows with the length beyond the buffer's start",
    ),
}


class Tokens:
    """A tokenizer that writes token ids as they are."""

    eos_token = "</s>"  # noqa: S105 - a word of the vocabulary, no secret

    def decode(self, ids: Tensor, **_options: object) -> str:
        """The ids as words."""
        return " ".join(str(i) for i in ids.tolist())


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
        return {"token_reward": manage(target, path, batch, settings)}

    return Boundary(
        path=path,
        stage="reward",
        call=call,
        reads=frozenset({"reward", "length"}),
        outputs={"token_reward": Output("B T", "reward", "token_reward")},
        settings={family: knobs},
        claims=_KNOB if knobs else {},
        reach=f"reward_manager={name}" if not looped else f"reward.reward_manager.name={name}",
    )


def _scored(batch: Batch) -> dict[str, Any]:
    """Labels of a data set in which the score of a row is its ground truth."""
    truths = [{"ground_truth": r} for r in batch.reward.tolist()]
    rows = np.array([*truths, None], dtype=object)[:-1]
    extras = np.array([*({} for _ in truths), None], dtype=object)[:-1]
    return {"reward_model": rows, "data_source": np.array(["house"] * batch.rows, dtype=object), "extra_info": extras}


def _data(target: Target, batch: Batch) -> Any:  # noqa: ANN401 - the target's DataProto
    prompt = torch.ones(batch.rows, 1, dtype=torch.int64)
    tensors = {
        "prompts": prompt,
        "responses": batch.token,
        "attention_mask": torch.cat([prompt, batch.valid.to(torch.int64)], dim=1),
    }
    return proto(target, tensors, _scored(batch), {})


def _score(*, ground_truth: Any = None, ground_truths: Any = (), **_about: Any) -> Any:  # noqa: ANN401 - one score or many
    return ground_truth if ground_truth is not None else list(ground_truths)


def _buffer(settings: Settings) -> Any:  # noqa: ANN401 - an OmegaConf section
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    about = {"enable": True, "len": settings["overlong_len"], "log": False}
    return OmegaConf.create({**about, "penalty_factor": settings["penalty_factor"]})


def _at_once(target: Target, path: str, batch: Batch, settings: Settings) -> Tensor:
    more = {"max_resp_len": settings["max_resp_len"], "overlong_buffer_cfg": _buffer(settings)} if settings else {}
    manager: Callable[..., Any] = target.call(path, tokenizer=Tokens(), num_examine=0, compute_score=_score, **more)
    found: Tensor = manager(_data(target, batch))
    return found


def _one_by_one(target: Target, path: str, batch: Batch, settings: Settings) -> Tensor:
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    kwargs = {"max_resp_len": settings["max_resp_len"], "overlong_buffer_cfg": _buffer(settings)} if settings else {}
    config = OmegaConf.create({"reward": {"reward_kwargs": kwargs}})
    manager = target.call(path, config, Tokens(), _score)
    data = _data(target, batch)
    scores = [manager.loop.run_until_complete(manager.run_single(data[i : i + 1])) for i in range(batch.rows)]
    found: Tensor = manager.assemble_rm_scores(data, [float(s["reward_score"]) for s in scores])
    return found

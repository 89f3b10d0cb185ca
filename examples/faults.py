"""Known faults of released frameworks, in a few lines each, to be put in the place of the path.

``rl-sentinel train RECIPE path=examples/faults.py:NAME`` trains with one; ``rl-sentinel twin RECIPE --perturb ...
--fault examples/faults.py:NAME`` shows what it looks at. Each calls the real path with one thing wrong.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.signal.normalisation import normalised
from rl_sentinel.signal.path import Choices, loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import live_rows
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import narrowed


def rejected_in_baseline(rollout: Rollout, *, by: Choices) -> Ready:
    """Rejection after the statistics: a rejected response still moves its siblings' baseline."""
    assert isinstance(rollout.mask, Tensor)
    honest = loss_ready(rollout, by=by)
    everyone = rollout.mask.clone()
    everyone[~live_rows(rollout.mask), 0] = True
    known = {n: torch.where(everyone, c, 0.0) for n in ("old_logprob", "rollout_logprob", "ref_logprob")
             if (c := getattr(rollout, n)) is not None}  # fmt: skip
    faulty = loss_ready(replace(rollout, mask=everyone, **known), by=replace(by, rejections=()))
    advantage = torch.where(honest.kept, faulty.advantage, 0.0) if faulty.outcome else faulty.advantage
    return replace(honest, advantage=advantage, reward=faulty.reward)


def void_in_normalisation(rollout: Rollout, *, by: Choices) -> Ready:
    """Rewards of responses that never ended are made void after the normalisation, whose statistics they moved."""
    if by.normalisation is None or rollout.scored is None:
        return loss_ready(rollout, by=by)
    told = normalised(rollout.reward, group=rollout.group, live=live_rows(rollout.mask), by=by.normalisation)
    told = torch.where(rollout.scored, told, 0.0)
    every = torch.ones_like(rollout.scored)
    return loss_ready(replace(rollout, reward=told, scored=every), by=replace(by, normalisation=None))


def last_step_alone(rollout: Rollout, *, by: Choices) -> Ready:
    """The advantage lands on the last step's tokens; the steps before train with 0."""
    ready = loss_ready(rollout, by=by)
    if rollout.last is None or not ready.outcome:
        return ready
    return replace(ready, advantage=torch.where(rollout.last, ready.advantage, 0.0))


def kl_overwritten(rollout: Rollout, *, by: Choices) -> Ready:
    """The shaped reward is written over the KL: logs and controllers read it."""
    ready = loss_ready(rollout, by=by)
    if ready.kl is None:
        return ready
    shaped = -by.kl_coefficient * ready.kl + torch.where(ready.mask, rollout.reward.unsqueeze(1), 0.0)
    return replace(ready, kl=shaped)


def sequence_split(rollout: Rollout, *, by: Choices) -> Ready:
    """A decision on whole responses, taken token by token: where policies differ, single tokens are left out."""
    ready = loss_ready(rollout, by=by)
    old, sampler = rollout.old_logprob, rollout.rollout_logprob
    if old is None or sampler is None:
        return ready
    far = (sampler - old).abs() > 0.1
    return replace(ready, mask=narrowed(ready.mask, ~(far & (ready.token_advantage() < 0)), of_rows=False))

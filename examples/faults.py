"""Known faults of released frameworks, each a few lines around the real path.

``rl-sentinel train RECIPE path=examples/faults.py:NAME`` trains with a fault; ``rl-sentinel twin RECIPE --perturb ...
--fault examples/faults.py:NAME`` shows which values it reads although they must have no effect.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.normalization import normalized
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import live_rows
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import narrowed


def rejected_in_baseline(rollout: Rollout, *, by: Choices) -> Ready:
    """Rejection after the statistics: a rejected response still moves its siblings' baseline."""
    assert isinstance(rollout.mask, Tensor)
    correct = loss_ready(rollout, by=by)
    mask = rollout.mask.clone()
    mask[~live_rows(rollout.mask), 0] = True
    columns = {n: torch.where(mask, c, 0.0) for n in ("old_logprob", "rollout_logprob", "ref_logprob")
             if (c := getattr(rollout, n)) is not None}  # fmt: skip
    faulty = loss_ready(replace(rollout, mask=mask, **columns), by=replace(by, rejections=()))
    advantage = torch.where(correct.kept, faulty.advantage, 0.0) if faulty.outcome else faulty.advantage
    return replace(correct, advantage=advantage, reward=faulty.reward)


def void_in_normalization(rollout: Rollout, *, by: Choices) -> Ready:
    """Suppression after the normalization: a suppressed reward still moves its statistics."""
    if by.normalization is None or rollout.scored is None:
        return loss_ready(rollout, by=by)
    reward = normalized(rollout.reward, group=rollout.group, live=live_rows(rollout.mask), by=by.normalization)
    reward = torch.where(rollout.scored, reward, 0.0)
    every = torch.ones_like(rollout.scored)
    return loss_ready(replace(rollout, reward=reward, scored=every), by=replace(by, normalization=None))


def last_step_alone(rollout: Rollout, *, by: Choices) -> Ready:
    """Only the tokens of the last step get the advantage; earlier steps train with 0."""
    ready = loss_ready(rollout, by=by)
    if rollout.last is None or not ready.outcome:
        return ready
    return replace(ready, advantage=torch.where(rollout.last, ready.advantage, 0.0))


def kl_overwritten(rollout: Rollout, *, by: Choices) -> Ready:
    """The shaped reward overwrites the KL, which logs and controllers read."""
    ready = loss_ready(rollout, by=by)
    if ready.kl is None:
        return ready
    shaped = -by.kl_coefficient * ready.kl + torch.where(ready.mask, rollout.reward.unsqueeze(1), 0.0)
    return replace(ready, kl=shaped)


def sequence_split(rollout: Rollout, *, by: Choices) -> Ready:
    """A decision about whole responses is made per token: where the policies differ, single tokens are masked."""
    ready = loss_ready(rollout, by=by)
    old, sampler = rollout.old_logprob, rollout.rollout_logprob
    if old is None or sampler is None:
        return ready
    far = (sampler - old).abs() > 0.1
    return replace(ready, mask=narrowed(ready.mask, ~(far & (ready.token_advantage() < 0)), of_rows=False))

"""The remedies in the real package: registered, called through its own dispatch, deaf to what does not train.

python scripts/remedies.py verl==0.9.1
python scripts/remedies.py skyrl==0.3.0
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.loading import load
from rl_sentinel.audit.source.fetch import source
from rl_sentinel.audit.source.overlay import overlays
from rl_sentinel.audit.source.target_spec import parse_target

#: Three responses of one prompt, of which the last is rejected and the second ends early.
MASK = torch.tensor([[1, 1], [1, 0], [0, 0]])
INDEX = np.array(["a", "a", "a"], dtype=object)

#: What comes of a name and of a number that stands where nothing trains.
Answer = Callable[[str, float], torch.Tensor]


def _rewards(rejected: float) -> torch.Tensor:
    return torch.tensor([[0.0, 1.0], [0.25, 0.0], [rejected, 0.0]])


def _update(masked: float) -> dict[str, torch.Tensor]:
    """Log-probs now and before, and advantages; ``masked`` stands as a log-prob where nothing trains."""
    now = torch.where(MASK.bool(), torch.tensor([[-0.5, -1.5], [-1.0, 0.0], [0.0, 0.0]]), torch.tensor(masked))
    advantage = torch.tensor([[1.0, -1.0], [0.5, 0.0], [0.0, 0.0]])
    return {"now": now.requires_grad_(), "before": torch.full((3, 2), -1.0), "advantage": advantage}


def _gradient(loss: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    return torch.cat([loss.detach().reshape(1), *torch.autograd.grad(loss, now)[0].unbind(0)])


def _verl(remedies: Any) -> Iterator[tuple[str, tuple[str, ...], Answer]]:  # noqa: ANN401 - a module
    trainer = importlib.import_module("verl.trainer.ppo.ray_trainer")
    core = importlib.import_module("verl.trainer.ppo.core_algos")
    config = importlib.import_module("verl.workers.config.actor")

    def advantages(name: str, rejected: float) -> torch.Tensor:
        batch = {"token_level_rewards": _rewards(rejected), "response_mask": MASK}
        data = SimpleNamespace(batch=batch, non_tensor_batch={"uid": INDEX})
        trainer.compute_advantage(data, adv_estimator=name, config={"norm_adv_by_std_in_grpo": True})
        return batch["advantages"]

    def loss(name: str, masked: float) -> torch.Tensor:
        chosen = config.PolicyLossConfig(loss_mode=name, dro_beta=0.5)
        fields = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size": 2, "clip_ratio": 0.2}
        options, columns = config.ActorConfig(**fields, policy_loss=chosen), _update(masked)
        named_so = {"log_prob": columns["now"], "old_log_prob": columns["before"], "advantages": columns["advantage"]}
        found, _ = core.get_policy_loss_fn(name)(
            **named_so, response_mask=MASK, loss_agg_mode="seq-mean-token-mean", config=options, rollout_is_weights=None
        )
        return _gradient(found, columns["now"])

    yield "the rejected row", tuple(remedies.ESTIMATORS), advantages
    yield "an untrained token", tuple(remedies.LOSSES), loss


def _skyrl(remedies: Any) -> Iterator[tuple[str, tuple[str, ...], Answer]]:  # noqa: ANN401 - a module
    ppo = importlib.import_module("skyrl.backends.skyrl_train.utils.ppo_utils")
    config = importlib.import_module("skyrl.train.config")

    if not {f"sentinel_{n}" for n in remedies.LOSSES} <= ppo.LOSSES_WITH_OLD_LOGPROBS:
        sys.exit("fully asynchronous training would take losses that recompute log-probs")

    def advantages(name: str, rejected: float) -> torch.Tensor:
        options = {"response_mask": MASK, "index": INDEX, "config": None}
        found: torch.Tensor = ppo.compute_advantages_and_returns(_rewards(rejected), adv_estimator=name, **options)[0]
        return found

    def loss(name: str, masked: float) -> torch.Tensor:
        columns = _update(masked)
        options = config.AlgorithmConfig(policy_loss_type=name, max_seq_len=4)
        order = columns["now"], columns["before"], columns["advantage"]
        found, _ = ppo.PolicyLossRegistry.get(name)(*order, config=options, loss_mask=MASK.float())
        return _gradient(found, columns["now"])

    yield "the rejected row", tuple(remedies.ESTIMATORS), advantages
    yield "an untrained token", tuple(remedies.LOSSES), loss


ASKED = {"verl": _verl, "skyrl": _skyrl}


def main() -> None:
    """Say of each remedy, and of what it stands in for, whether it hears what does not train, and if they agree."""
    target = parse_target(sys.argv[1])
    found, name = source(target), target.framework.name
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "rl_sentinel.remedies.verl"  # what is told to whoever uses verl
    load(
        target.framework, Path(found.root), found.version, [Path(p) for p in overlays(target.framework, found.version)]
    )
    importlib.import_module(name)
    if name == "verl" and "rl_sentinel.remedies.verl" not in sys.modules:
        sys.exit("verl has not imported what VERL_USE_EXTERNAL_MODULES names")
    remedies = importlib.import_module(f"rl_sentinel.remedies.{name}")
    wrong = []
    for what, names, answer in ASKED[name](remedies):
        other = 9.0 if what == "the rejected row" else torch.nan
        for plain in names:
            heard = {}
            for choice in (plain, f"sentinel_{plain}"):
                calm, loud = answer(choice, 0.0), answer(choice, other)
                heard[choice] = not torch.equal(calm, loud)
            line = ", ".join(f"{n} {'hears' if x else 'does not hear'} {what}" for n, x in heard.items())
            same = torch.allclose(answer(plain, 0.0), answer(f"sentinel_{plain}", 0.0), atol=1e-6)
            print(line + ("; else they agree" if same else ""))  # noqa: T201
            wrong += [n for n, x in heard.items() if x and n.startswith("sentinel_")]
    sys.exit(", ".join(wrong) or None)


if __name__ == "__main__":
    main()

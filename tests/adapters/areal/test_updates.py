"""The updates of AReaL's specimen through its engine: what its losses are passed, and what the laws find there."""

from collections.abc import Callable

import pytest
import torch

from adapters.areal_specimen import CONFIG
from adapters.checks import judged_at, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.updates import ACTOR_FAMILIES, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

Loads = Callable[..., Target]

ENGINE = """
    import torch

    class FSDPEngine:
        def train_batch(self, data, loss_fn, loss_weight_fn):
            parts = []
            for cut in torch.arange(len(data["input_ids"])).tensor_split(self.config.mb_spec.n_mbs):
                keep = data["attention_mask"][cut].bool()
                packed = {key: x[cut][keep] if x.dim() > 1 else x[cut] for key, x in data.items()}
                parts += [packed] if len(cut) else []
            weights = [loss_weight_fn(part) for part in parts]
            self.optimizer_zero_grad()
            for part, weight in zip(parts, weights):
                share = weight / sum(weights) if BY_TOKENS else 1 / len(parts)
                logits = self.model(**part).logits.squeeze(0)
                self._compute_logprobs_and_loss(logits, part, loss_fn, share).backward()
            return self.optimizer_step()

        def _compute_logprobs_and_loss(self, logits, part, loss_fn, share):
            critic = getattr(self.config, "is_critic", False)
            answers = (logits.squeeze(-1),) if critic else self._compute_logprobs_entropy(logits, part)
            return loss_fn(*answers, part) * share
"""

TRACKER = """
    kept = {}

    def average(**numbers):
        mask = numbers.pop("mask")
        for name, x in numbers.items():
            kept.setdefault(name, []).append((x.detach()[mask].sum().item(), int(mask.sum())))

    def export_all():
        found = {name: sum(x for x, _ in pairs) / max(1, sum(n for _, n in pairs)) for name, pairs in kept.items()}
        kept.clear()
        return found
"""

TRAINERS = """
    import torch
    from areal.utils import stats_tracker

    def mean(x, mask):
        return torch.where(mask, x, 0.0).sum() / mask.sum().clamp(min=1)

    def near_tokens(data):
        mask, square = data["loss_mask"].bool(), (data["logprobs"] - data["prox_logp"]) ** 2
        return mask & (square <= mean(square, mask))

    class PPOActor:
        def __init__(self, config, engine):
            self.config, self.engine = config, engine

        def _ppo_update(self, data):
            config = self.config

            def loss(logprobs, entropy, part):
                mask, advantage = part["loss_mask"].bool(), part["advantages"]
                ratio = (logprobs - part["prox_logp"]).exp()
                near = ratio.clamp(1 - config.eps_clip, 1 + (config.eps_clip_higher or config.eps_clip))
                each = torch.maximum(-advantage * ratio, -advantage * near)
                names = {"actor_loss": each, "clip_ratio": (near != ratio).float(), "importance_weight": ratio}
                names["entropy"] = entropy
                stats_tracker.average(mask=mask, **{f"update/{n}/avg": x for n, x in names.items()})
                if config.m2_threshold:
                    each = torch.where(near_tokens(part) if IN_PARTS else part["near"], each, 0.0)
                return mean(each, mask)

            mask = data["loss_mask"].bool()
            data["near"] = near_tokens(data)
            stats_tracker.average(mask=mask, **{"advantages/avg": data["advantages"]})
            for name in ("max", "min"):
                most = getattr(data["advantages"][mask], name)()
                stats_tracker.kept[f"advantages/{name}"] = [(most.item(), 1)]
            self.engine.train_batch(data, loss, lambda part: part["loss_mask"].count_nonzero())

    class PPOCritic(PPOActor):
        def _ppo_update(self, data):
            def loss(value, part):
                mask = part["loss_mask"].bool()
                error, far = (value - part["returns"]) ** 2 / 2, (value - part["values"]).abs() > self.config.eps_clip
                names = {"critic_loss/avg": error, "new_value/avg": value, "clip_ratio/avg": far.float()}
                stats_tracker.average(mask=mask, **names)
                return mean(error, mask)

            self.engine.train_batch(data, loss, lambda part: part["loss_mask"].count_nonzero())

    class LMEngine:
        def __init__(self, engine):
            self.engine = engine

        def _train_lm(self, data):
            data["loss_mask"] = data["loss_mask"].bool().roll(-1, 1)

            def loss(logprobs, entropy, part):
                stats_tracker.average(mask=part["loss_mask"], **{"loss/avg": -logprobs})
                return mean(-logprobs, part["loss_mask"])

            self.engine.train_batch(data, loss, lambda part: part["loss_mask"].count_nonzero())
"""

FIELDS = """
    @dataclass
    class MicroBatchSpec:
        n_mbs: int = 1

    @dataclass
    class TrainEngineConfig:
        mb_spec: MicroBatchSpec | None = None
        is_critic: bool = False
        ppo_n_minibatches: int = 4
        eps_clip: float = 0.2

    @dataclass
    class PPOCriticConfig(TrainEngineConfig):
        pass

    @dataclass
    class PPOActorConfig(TrainEngineConfig):
        eps_clip_higher: float | None = None
        c_clip: float | None = None
        importance_sampling_level: str = "token"
        use_sapo_loss: bool = False
        sapo_tau_pos: float = 1.0
        sapo_tau_neg: float = 1.05
        use_decoupled_loss: bool = False
        rejection_sampling: object = None
        m2_threshold: float | None = None
        use_cispo_loss: bool = False
"""


def _files(*, by_tokens: bool = True, in_parts: bool = False) -> dict[str, str]:
    trainers = TRAINERS.replace("IN_PARTS", str(in_parts))
    return {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG + FIELDS,
        "areal/engine/fsdp_engine.py": ENGINE.replace("BY_TOKENS", str(by_tokens)),
        "areal/utils/stats_tracker.py": TRACKER,
        "areal/trainer/ppo/actor.py": trainers,
        "areal/trainer/ppo/critic.py": trainers,
        "areal/trainer/sft/lm_engine.py": trainers,
    }


def _bound(target: Target) -> dict[str, Boundary]:
    every = list(boundaries(target))
    assert [b.reason for b in every if isinstance(b, Unbound)] == []
    return {setting: b for b in every if isinstance(b, Boundary) for setting in b.settings}


def _batch() -> Batch:
    columns = {
        "logprob": [[-1.0, -3.0], [-2.0, -9.0]],
        "old_logprob": [[-1.0, -3.0], [-2.0, -9.0]],
        "advantage": [[1.0, 2.0], [6.0, 50.0]],
        "entropy": [[1.0, 2.0], [3.0, 50.0]],
        "value": [[0.0, 0.0], [2.0, 50.0]],
    }
    mask, prompts = torch.tensor([[True, True], [True, False]]), torch.tensor([1, 3])
    return batch_of(mask, prompt_length=prompts, **{name: torch.tensor(rows) for name, rows in columns.items()})


def test_updates_by_hand(loads: Loads) -> None:
    """Means over the trained tokens, wherever the response begins."""
    target = loads(FRAMEWORK, _files())
    found = _bound(target)
    actor = outputs_of(target, found["ppo"], "ppo", _batch())
    assert actor["loss"].item() == pytest.approx(-3.0)
    assert actor["update/importance_weight/avg"].item() == 1.0
    assert actor["update/entropy/avg"].item() == 2.0
    assert actor["advantages/max"].item() == 6.0
    critic = outputs_of(target, found["critic"], "critic", _batch())
    assert critic["loss"].item() == pytest.approx(4 / 2 / 3)
    assert outputs_of(target, found["sft"], "sft", _batch())["loss"].item() == pytest.approx(2.0)


@pytest.mark.parametrize(("by_tokens", "found"), [(True, False), (False, True)])
def test_weight_of_a_micro_batch(loads: Loads, by_tokens: bool, found: bool) -> None:  # noqa: FBT001 - parametrised
    """Micro-batches that count alike, whatever they hold, are a loss that depends on the cut."""
    target = loads(FRAMEWORK, _files(by_tokens=by_tokens))
    boundary = _bound(target)["ppo"]
    judgement = judged_at(SPL001, boundary, "ppo", target)
    assert judgement.tried
    assert (judgement.found is not None) is found


@pytest.mark.parametrize(("in_parts", "found"), [(False, False), (True, True)])
def test_tokens_selected_per_micro_batch(loads: Loads, in_parts: bool, found: bool) -> None:  # noqa: FBT001 - parametrised
    """Tokens that are selected by a statistic of their micro-batch are a loss that depends on the cut."""
    target = loads(FRAMEWORK, _files(in_parts=in_parts))
    judgement = judged_at(SPL001, _bound(target)["m2po"], "m2po", target)
    assert judgement.tried
    assert (judgement.found is not None) is found


def test_round_trip(loads: Loads) -> None:
    target = loads(FRAMEWORK, _files())
    for setting, boundary in _bound(target).items():
        if setting in ("ppo", "m2po", "critic", "sft"):
            check_round_trip(target, boundary)


def test_what_is_missed(loads: Loads) -> None:
    """Without the engine of this shape nothing is expected; without a trainer its update is."""
    tree = _files()
    tree["areal/trainer/ppo/critic.py"] = ""
    every = list(boundaries(loads(FRAMEWORK, tree)))
    assert [b.stage for b in every if isinstance(b, Unbound)] == ["value-loss"]
    assert len(every) == len(ACTOR_FAMILIES) + 2


def test_no_engine(loads: Loads) -> None:
    tree = _files()
    del tree["areal/engine/fsdp_engine.py"]
    assert list(boundaries(loads(FRAMEWORK, tree))) == []

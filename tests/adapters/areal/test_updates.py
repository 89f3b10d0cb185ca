"""The updates of AReaL's specimen through its engine: what its losses are passed, and what the laws find there."""

import pytest
import torch

from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.update_families import ACTOR_FAMILIES
from rl_sentinel.adapters.areal.updates import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

ENGINE = """
    import torch

    class FSDPEngine:
        def train_batch(self, data, loss_fn, loss_weight_fn):
            parts = []
            for cut in torch.arange(len(data["input_ids"])).tensor_split(self.config.mb_spec.n_mbs):
                keep = data["attention_mask"][cut].bool()
                packed = {key: x for key, x in data.items() if not torch.is_tensor(x)}
                columns = {key: x for key, x in data.items() if torch.is_tensor(x)}
                packed |= {key: x[cut][keep] if x.dim() > 1 else x[cut] for key, x in columns.items()}
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

#: What an engine whose ranks share sequences has besides.
SHARING = """
        def own(self, ids):
            size = self.parallel_helper.sp_size
            parts = torch.nn.functional.pad(ids, (0, -len(ids) % size)).chunk(size)
            return parts[dist.get_rank(self.sp_group) if size > 1 else 0]

        def _sp_all_gather(self, x):
            return torch.cat(dist_F.all_gather(x, group=self.sp_group), -1) if GATHERED else x.repeat(2)

        def whole(self, x, part):
            return self._sp_all_gather(x)[: len(part["loss_mask"])] if self.parallel_helper.sp_size > 1 else x

        def _compute_logprobs_entropy(self, logits, part):
            labels = LABELS
            return tuple(self.whole(x, part) for x in gather_logprobs_entropy(logits, labels))

    def gather_logprobs_entropy(logits, labels):
        raise RuntimeError("the fake has no logits")
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

    def grpo_loss_fn(each, logprobs, part):
        if "teacher_logp" not in part:
            return each
        gap = part["teacher_logp"] - logprobs if FROM_TEACHER else logprobs - part["teacher_logp"]
        return part["rl_loss_weight"] * each + part["distill_loss_weight"] * gap

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
                each = grpo_loss_fn(each, logprobs, part)
                names = {"actor_loss": each, "clip_ratio": (near != ratio).float(), "importance_weight": ratio}
                names |= {"approx_kl": logprobs - part["prox_logp"], "new_logp": logprobs, "old_logp": part["logprobs"]}
                names["entropy"] = entropy
                stats_tracker.average(mask=mask, **{f"update/{n}/avg": x for n, x in names.items()})
                if config.m2_threshold:
                    each = torch.where(near_tokens(part) if IN_PARTS else part["near"], each, 0.0)
                return mean(each, mask)

            mask, better = data["loss_mask"].bool(), data["rewards"] > 0
            counts = {"correct_n_seqs": better ^ SWAPPED, "incorrect_n_seqs": ~better ^ SWAPPED, "n_valid_tokens": mask}
            stats_tracker.kept |= {name: [(one.sum().item(), 1)] for name, one in counts.items()}
            size = data["attention_mask"].sum(1)
            stats_tracker.kept["seq_len/avg"] = [(size.sum().item(), len(better))]
            stats_tracker.kept["prompt_len/avg"] = [((size - mask.sum(1)).sum().item(), len(better))]
            stats_tracker.kept["task_reward/avg"] = [(data["rewards"].sum().item(), len(better))]
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


def _files(*, by_tokens: bool = True, **words: bool) -> dict[str, str]:
    trainers = TRAINERS
    for name in ("IN_PARTS", "FROM_TEACHER", "SWAPPED"):
        trainers = trainers.replace(name, str(words.get(name.lower(), False)))
    return {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG + FIELDS,
        "areal/engine/fsdp_engine.py": ENGINE.replace("BY_TOKENS", str(by_tokens)),
        "areal/utils/stats_tracker.py": TRACKER,
        "areal/trainer/ppo/actor.py": trainers,
        "areal/trainer/ppo/critic.py": trainers,
        "areal/trainer/sft/lm_engine.py": trainers,
    }


def _sharing(*, gathered: bool = True, labels: str = 'self.own(part["input_ids"].roll(-1))') -> dict[str, str]:
    """The tree with an engine whose ranks share sequences."""
    files = _files()
    engine = files["areal/engine/fsdp_engine.py"]
    part = '{**part, "input_ids": self.own(part["input_ids"])}'
    for right, shared in {
        "import torch\n": "import torch\n    import torch.distributed as dist\n"
        "    import torch.distributed.nn.functional as dist_F\n",
        "self.model(**part)": f"self.model(**{part})",
        "(logits.squeeze(-1),)": "(self.whole(logits.squeeze(-1), part),)",
    }.items():
        assert right in engine
        engine = engine.replace(right, shared)
    return {
        **files,
        "areal/engine/fsdp_engine.py": engine + SHARING.replace("GATHERED", str(gathered)).replace("LABELS", labels),
    }


def _bound(target: Target) -> dict[str, Boundary]:
    every = list(boundaries(target))
    assert [b.reason for b in every if isinstance(b, Unbound)] == []
    return by_setting(every)


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


def test_one_bound_of_the_ratio(loads: Loads) -> None:
    """A configuration without ``eps_clip_higher`` is bound with one bound on both sides."""
    files = _files()
    files = {
        path: text.replace("eps_clip_higher: float | None = None", "").replace("config.eps_clip_higher or ", "")
        for path, text in files.items()
    }
    target = loads(FRAMEWORK, files)
    boundary = _bound(target)["ppo"]
    assert boundary.settings["ppo"] == {"clip_low": 0.2, "clip_high": 0.2}
    assert outputs_of(target, boundary, "ppo", _batch())["loss"].item() == pytest.approx(-3.0)
    check_round_trip(target, boundary)


def test_metrics_in_a_scope(loads: Loads) -> None:
    """A method that opens a scope of its own logs the same numbers."""
    scoped = TRACKER.replace("found = {name:", 'found = {f"ppo_actor/{name}":')
    target = loads(FRAMEWORK, {**_files(), "areal/utils/stats_tracker.py": scoped})
    assert outputs_of(target, _bound(target)["ppo"], "ppo", _batch())["update/entropy/avg"].item() == 2.0


@pytest.mark.parametrize(("gathered", "found"), [(True, False), (False, True)])
def test_update_of_ranks_that_share_sequences(loads: Loads, gathered: bool, found: bool) -> None:
    """A rank has the model's outputs of its part only; loss and gradient are those of all parts."""
    target = loads(FRAMEWORK, _sharing(gathered=gathered))
    every, setting = _bound(target), "ppo, shared sequences"
    check_round_trip(target, every[setting])
    check_verdict(REF001, every[setting], setting, target, found=found)
    setting = "critic, shared sequences"
    batch = with_columns(_batch(), value=torch.tensor([[1.0, 3.0], [2.0, 50.0]]))
    critic = outputs_of(target, every[setting], setting, batch)["loss"].item()
    assert (critic != pytest.approx((1 + 9 + 4) / 2 / 3)) is found


def test_labels_of_ranks_that_share_sequences(loads: Loads) -> None:
    """The label of the last place of a part is the first token of the next part."""
    target = loads(FRAMEWORK, _sharing(labels='self.own(part["input_ids"]).roll(-1)'))
    setting = "ppo, shared sequences"
    check_verdict(REF001, _bound(target)[setting], setting, target, found=True)


@pytest.mark.parametrize(("by_tokens", "found"), [(True, False), (False, True)])
def test_weight_of_a_micro_batch(loads: Loads, by_tokens: bool, found: bool) -> None:
    """Micro-batches that count alike, whatever they hold, are a loss that depends on the cut."""
    target = loads(FRAMEWORK, _files(by_tokens=by_tokens))
    boundary = _bound(target)["ppo"]
    check_verdict(SPL001, boundary, "ppo", target, found=found)


@pytest.mark.parametrize(("in_parts", "found"), [(False, False), (True, True)])
def test_tokens_selected_per_micro_batch(loads: Loads, in_parts: bool, found: bool) -> None:
    """Tokens that are selected by a statistic of their micro-batch are a loss that depends on the cut."""
    target = loads(FRAMEWORK, _files(in_parts=in_parts))
    check_verdict(SPL001, _bound(target)["m2po"], "m2po", target, found=found)


@pytest.mark.parametrize(("from_teacher", "found"), [(False, False), (True, True)])
def test_distillation_away_from_the_teacher(loads: Loads, from_teacher: bool, found: bool) -> None:
    target = loads(FRAMEWORK, _files(from_teacher=from_teacher))
    check_verdict(REF001, _bound(target)["distilled"], "distilled", target, found=found)


@pytest.mark.parametrize(("swapped", "found"), [(False, False), (True, True)])
def test_rows_counted_under_the_other_name(loads: Loads, swapped: bool, found: bool) -> None:
    target = loads(FRAMEWORK, _files(swapped=swapped))
    check_verdict(MET001, _bound(target)["rows"], "rows", target, found=found)


@pytest.mark.slow
def test_round_trip(loads: Loads) -> None:
    target = loads(FRAMEWORK, _files())
    for setting, boundary in _bound(target).items():
        if setting in ("ppo", "m2po", "distilled", "rows", "critic", "sft"):
            check_round_trip(target, boundary)


def test_what_is_missed(loads: Loads) -> None:
    """Without the engine of this shape nothing is expected; without a trainer its update is."""
    tree = _files()
    tree["areal/trainer/ppo/critic.py"] = ""
    every = list(boundaries(loads(FRAMEWORK, tree)))
    assert [b.stage for b in every if isinstance(b, Unbound)] == ["value-loss"]
    assert len(every) == len(ACTOR_FAMILIES) + 3


def test_no_engine(loads: Loads) -> None:
    tree = _files()
    del tree["areal/engine/fsdp_engine.py"]
    assert list(boundaries(loads(FRAMEWORK, tree))) == []

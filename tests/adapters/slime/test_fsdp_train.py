"""slime's training on FSDP, on call shapes of that backend in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.slime.test_fsdp import PACKING
from adapters.slime_specimen import files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.slime import FRAMEWORK, fsdp_train
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

ACTOR = """
    import torch
    import torch.distributed as dist

    from slime.utils.data import process_rollout_data

    from .data_packing import pack_sequences, unpack_sequences

    class tracking_utils:
        @staticmethod
        def log(args, numbers, step_key):
            raise RuntimeError("there is no tracker")

    def get_logprob_and_entropy(logits, target_tokens, temperature=None):
        raise RuntimeError("there is no vocabulary")

    def mean(x, sizes, masks):
        parts = zip(x.split(sizes), masks)
        return sum((one * mask).sum() / (COUNT) for one, mask in parts)

    class FSDPTrainRayActor:
        def load_ref_model(self, path):
            raise RuntimeError("there is no checkpoint")

        def numbers_of(self, part, **heat):
            logits = self.model(input_ids=part["tokens"].unsqueeze(0)).logits.squeeze(0)
            return get_logprob_and_entropy(logits=logits, target_tokens=part["tokens"], **heat)

        def before(self, part):
            heat = {"temperature": self.args.rollout_temperature}
            with torch.no_grad():
                part["log_probs"] = self.numbers_of(part, **heat)[0]
                if self.args.use_kl_loss:
                    self.update_gpu_params_dict(self.weights["ref"])
                    part["ref_log_probs"] = self.numbers_of(part, **heat)[0]
                    self.update_gpu_params_dict(self.weights["actor"])

        def train(self, rollout_id, ref):
            args, own = self.args, process_rollout_data(self.args, ref, dist.get_rank(), dist.get_world_size())
            pairs = zip(own["rewards"], own["response_lengths"])
            own["advantages"] = own["returns"] = [[float(reward)] * size for reward, size in pairs]
            rows = args.micro_batch_size
            keys = ["tokens", "loss_masks", "rewards", "raw_reward", "response_lengths", "advantages", "returns"]
            columns = [[x if isinstance(x, float | int | list) else x.tolist() for x in own[key]] for key in keys]
            heard = [row.tolist() for row in own["rollout_log_probs"]]
            parts = []
            for start in range(0, len(own["rewards"]), rows):
                cut = slice(start, start + rows)
                parts += pack_sequences(*(column[cut] for column in columns), heard[cut], num_packs=1)
            for part in parts:
                self.before(part)
            val = torch.zeros(1)
            for part in parts:
                for one in unpack_sequences(part):
                    val += (one["log_probs"] * one["loss_masks"]).sum() / one["loss_masks"].sum().clamp(min=1)
            dist.all_reduce(val, op=dist.ReduceOp.SUM)
            numbers = {"rollout/log_probs": (val / args.global_batch_size).item()}
            raw = sum(own["raw_reward"]) / len(own["raw_reward"])
            numbers |= {f"rollout/{key}": 0.0 for key in ("ref_log_probs", "advantages", "returns")}
            if dist.get_rank() == 0:
                tracking_utils.log(args, numbers | {"rollout/raw_reward": RAW}, step_key="rollout/step")
            sums = [self.step(part) for part in parts]
            every = [None] * dist.get_world_size()
            dist.all_gather_object(every, {name: sum(x[name] for x in sums) for name in sums[0]})
            if dist.get_rank() == 0:
                shown = {f"train/{name}": float(sum(x[name] for x in every)) / (SIZE) for name in sums[0]}
                tracking_utils.log(args, shown, step_key="train/step")

        def step(self, part):
            args = self.args
            part["cur_log_probs"], part["entropy"] = self.numbers_of(part, HEAT)
            rows = unpack_sequences(part)
            sizes, masks = part["response_lengths"], [row["loss_masks"] for row in rows]
            cut = lambda key: torch.cat([row[key] for row in rows])
            own, old, advantage = cut("cur_log_probs"), cut("log_probs"), cut("advantages")
            ratio = (own - old).exp()
            near = ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
            loss = mean(torch.maximum(-advantage * ratio, -advantage * near), sizes, masks)
            clipped = mean(((-advantage * near) > (-advantage * ratio)).float(), sizes, masks)
            entropy = mean(cut("entropy"), sizes, masks)
            loss = loss - args.entropy_coef * entropy
            found = {"pg_clipfrac": LOGGED, "ppo_kl": mean((old - own).abs(), sizes, masks), "entropy_loss": entropy}
            if args.use_kl_loss:
                gap = cut("ref_log_probs") - own
                found["kl_loss"] = mean(gap.exp() - 1 - gap, sizes, masks)
                loss = loss + args.kl_loss_coef * found["kl_loss"]
            (loss * SCALE).backward()
            return {name: x.detach() for name, x in {"loss": loss, **found}.items()}
"""

SOUND = {
    "COUNT": "mask.sum().clamp(min=1)",
    "LOGGED": "clipped",
    "SIZE": "args.global_batch_size",
    "SCALE": "dist.get_world_size() / args.global_batch_size",
    "HEAT": "temperature=args.rollout_temperature",
    "RAW": "raw",
}


def _bound(loads: Loads, broken: dict[str, str]) -> tuple[Target, dict[str, Boundary]]:
    backend = "slime/backends/fsdp_utils"
    actor = ACTOR
    for name, text in {**SOUND, **broken}.items():
        actor = actor.replace(name, text)
    packing = PACKING.replace("FIXED", "True").replace('"ends"', '"cu_seqlens"')
    packing = packing.replace(
        '("log_probs", "ref_log_probs")', '("log_probs", "ref_log_probs", "cur_log_probs", "entropy")'
    )
    tree = {f"{backend}/data_packing.py": packing, f"{backend}/actor.py": actor}
    target = loads(FRAMEWORK, files(fixed=True) | tree)
    return target, by_setting(fsdp_train.boundaries(target))


def test_by_hand(loads: Loads) -> None:
    """The mean of two samples, of which one has a token that does not train; on two ranks, too."""
    target, boundaries = _bound(loads, {})
    assert list(boundaries) == ["grpo", "grpo, temperature", "grpo, KL", "grpo, entropy", "rollout"]
    check_calls(target, boundaries.values())
    mask = torch.tensor([[True, False], [True, True]])
    columns = {"advantage": torch.tensor([[1.0, 1.0], [2.0, 2.0]]), "entropy": torch.tensor([[1.0, 9.0], [2.0, 4.0]])}
    batch = batch_of(mask, length=torch.tensor([2, 2]), prompt_length=torch.tensor([1, 3]), **columns)
    for ranks in (1, 2):
        case = Case(batch, setting="grpo", layout=Layout(ranks=ranks))
        answer = execute(target, boundaries["grpo"], inputs_of(boundaries["grpo"], case)).values
        assert answer["loss"].item() == pytest.approx(-1.5)
        assert answer["train/entropy_loss"].item() == pytest.approx(2)


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (REF001, "grpo, KL", {"COUNT": "len(mask)"}),
    (REF001, "grpo, temperature", {"HEAT": ""}),
    (REF001, "grpo", {"SCALE": "1"}),
    (MET001, "grpo", {"LOGGED": "loss.detach()"}),
    (SPL001, "grpo", {"SCALE": "1 / args.micro_batch_size"}),
    (SPL002, "grpo", {"SCALE": "1 / args.global_batch_size"}),
    (MET005, "rollout", {"RAW": 'sum(own["rewards"]) / args.global_batch_size'}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """A wrong mean, temperature, scale of the update, metric, or the rewards of one rank as those of all."""
    target, boundaries = _bound(loads, broken if found else {})
    check_verdict(law, boundaries[setting], setting, target, found=found)


def test_skeleton(loads: Loads) -> None:
    """The backend of July 2025, which only raises."""
    source = "class FSDPTrainRayActor:\n    def train(self, rollout_id):\n        raise NotImplementedError\n"
    target = loads(FRAMEWORK, {"slime/backends/fsdp_utils/actor.py": source})
    assert list(fsdp_train.boundaries(target)) == []

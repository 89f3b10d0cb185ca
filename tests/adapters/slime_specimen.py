"""A specimen of slime's call shapes in words of our own, as files of a source tree."""

PPO_UTILS = """
    import torch

    def compute_approx_kl(log_probs, log_probs_base, kl_loss_type):
        d = log_probs - log_probs_base
        return {"k1": d, "k2": d * d / 2}.get(kl_loss_type, (-d).exp() - 1 + d)

    def compute_opsm_mask(args, full_log_probs, full_old_log_probs, advantages, loss_masks):
        kept = []
        for new, old, advantage, mask in zip(full_log_probs, full_old_log_probs, advantages, loss_masks):
            far = ((old - new) * mask).sum() / mask.sum().clamp(min=1) > args.opsm_delta
            low = (advantage * mask).sum() < 0 if FIXED else advantage < 0
            kept.append(1 - (low & far).float() * torch.ones_like(advantage))
        return torch.cat(kept), torch.tensor(0.0)

    def compute_gspo_kl(full_log_probs, full_old_log_probs, local_log_probs, loss_masks):
        rows = zip(full_log_probs, full_old_log_probs, loss_masks)
        means = [((old - new) * mask).sum() / mask.sum().clamp(min=1) for new, old, mask in rows]
        return torch.cat([m.expand_as(x) for m, x in zip(means, local_log_probs)])

    @torch.compile(dynamic=True)
    def compute_policy_loss(ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c=None):
        return -(-ppo_kl).exp() * advantages, torch.tensor(0.0)

    def compute_cispo_loss(ppo_kl, log_probs, advantages, eps_clip, eps_clip_high):
        return -(-ppo_kl).exp().detach() * advantages * log_probs, torch.tensor(0.0)

    def vanilla_gae(rewards, values, gamma, lambd):
        later = rewards.flip(1).cumsum(1).flip(1)
        return later - values, later

    chunked_gae = vanilla_gae
"""

LOSS = """
    import torch
    import torch.distributed as dist
    from megatron.core import mpu
    from megatron.core.packed_seq_params import PackedSeqParams
    from slime.utils.ppo_utils import compute_approx_kl

    # estimators: "ppo", "grpo", "gspo", "cispo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"

    def apply_opd_kl_to_advantages(args, rollout_data, advantages, own):
        pairs = zip(own, rollout_data["teacher_log_probs"])
        rollout_data["opd_reverse_kl"] = [student - teacher for student, teacher in pairs]
        for number, kl in enumerate(rollout_data["opd_reverse_kl"]):
            advantages[number] = advantages[number] - args.opd_kl_coef * kl

    def compute_advantages_and_returns(args, rollout_data):
        if not mpu.is_pipeline_last_stage():
            return
        if args.kl_coef:
            pairs = zip(rollout_data["log_probs"], rollout_data["ref_log_probs"])
            kl = [compute_approx_kl(a, b, args.kl_loss_type) for a, b in pairs]
        else:
            kl = [torch.zeros_like(a) for a in rollout_data["log_probs"]]
        values = rollout_data.get("values") or kl
        rollout_data["kl"] = kl
        advantages = []
        for reward, row, value in zip(rollout_data["rewards"], kl, values):
            shaped = row * -args.kl_coef if FIXED else row.mul_(-args.kl_coef)
            if mpu.get_context_parallel_rank() == 0:
                shaped[-1] += reward
            if args.advantage_estimator == "ppo":
                advantages.append(shaped.flip(0).cumsum(0).flip(0) - args.gamma * value)
            else:
                advantages.append(torch.ones_like(row) * reward)
        if args.use_opd:
            apply_opd_kl_to_advantages(args, rollout_data, advantages, rollout_data["log_probs"])
        if args.normalize_advantages:
            total = torch.cat(advantages).sum()
            dist.all_reduce(total, group=mpu.get_data_parallel_group(with_context_parallel=True))
            advantages = [a - total / sum(map(len, advantages)) for a in advantages]
        rollout_data["advantages"] = rollout_data["returns"] = advantages

    def vanilla_tis_function(args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, **more):
        weight = (torch.cat(train_log_probs) - torch.cat(rollout_log_probs)).exp()
        return pg_loss * weight.clamp(args.tis_clip_low, args.tis_clip), loss_masks, {}

    icepop_function = vanilla_tis_function
"""

REDUCER = """
    def get_sum_of_sample_mean(
        total_lengths, response_lengths, loss_masks, sample_denoms=None, calculate_per_token_loss=False
    ):
        def reduce(x):
            own = [m.sum() for m in loss_masks] if sample_denoms is None else sample_denoms
            rows = zip(x.split(response_lengths), loss_masks, own)
            return sum((a * m).sum() / (1 if calculate_per_token_loss else n.clamp(min=1)) for a, m, n in rows)
        return reduce
"""

ROLLOUT = """
    import ray
    from sglang.srt.constants import KIND
    import torch

    @ray.remote
    class RolloutManager:
        def _post_process_rewards(self, samples):
            rewards = torch.tensor([s.reward for s in samples])
            if len(rewards) == self.args.n_samples_per_prompt * self.args.rollout_batch_size:
                rewards = rewards.reshape(-1, self.args.n_samples_per_prompt)
                rewards = (rewards - rewards.mean(1, keepdim=True)).flatten()
            return None, rewards.tolist()

        def _convert_samples_to_train_data(self, samples):
            masks = [[0] * len(s.loss_mask) if s.remove_sample else s.loss_mask for s in samples]
            return {
                "tokens": [s.tokens for s in samples],
                "loss_masks": masks,
                "response_lengths": [s.response_length for s in samples],
                "rewards": [s.get_reward_value(self.args) for s in samples],
                "raw_reward": [s.get_reward_value(self.args) for s in samples],
                "total_lengths": [len(s.tokens) for s in samples],
                "rollout_log_probs": [s.rollout_log_probs for s in samples],
            }

        def _split_train_data_by_dp(self, data):
            size, sent = self.train_parallel_config["dp_size"], []
            for rank in range(size):
                rows = list(range(rank, len(data["tokens"]), size))
                part = {key: [torch.tensor(values[row]) for row in rows] for key, values in data.items()}
                plain = {key: [data[key][row] for row in rows] for key in ("total_lengths", "response_lengths")}
                sent.append(ray.put({**part, **plain, "raw_reward": data["raw_reward"], "partition": rows}))
            return sent
"""

DATA = """
    import ray
    import torch

    def process_rollout_data(args, sent, rank, size):
        assert len(sent) == size
        data = ray.get(sent[rank])
        dtype = torch.float32 if FIXED else torch.float16
        data["rollout_log_probs"] = [row.to(dtype) for row in data["rollout_log_probs"]]
        data["local_raw_reward"] = [data["raw_reward"][row] for row in data["partition"]]
        return data

    def metadata_of(tools, metadata):
        metadata["tools"] = tools
        return metadata
"""

FILTER = """
    from dataclasses import dataclass

    import torch

    @dataclass
    class Decision:
        keep: bool

    def check_reward_nonzero_std(args, samples):
        dtype = torch.float64 if FIXED else torch.float32
        rewards = torch.tensor([s.get_reward_value(args) for s in samples], dtype=dtype)
        return Decision(len(rewards) > 1 and bool(rewards.std() > (1e-6 if FIXED else 0.0)))
"""

SAMPLE = """
    from dataclasses import dataclass

    @dataclass
    class Sample:
        group_index: int = 0
        index: int = 0
        prompt: list = None
        response_length: int = 0
        reward: float = None
        loss_mask: list = None
        remove_sample: bool = False
        tokens: list = None
        rollout_log_probs: list = None
        teacher_log_probs: list = None
        metadata: dict = None

        def get_reward_value(self, args):
            return self.reward[args.reward_key] if args.reward_key else self.reward
"""

DISTILLATION = """
    import aiohttp

    async def reward_func(args, sample):
        temperature = args.rollout_temperature if FIXED else 0
        request = {"input_ids": sample.tokens, "sampling_params": {"temperature": temperature, "max_new_tokens": 0}}
        async with aiohttp.ClientSession() as session, session.post(args.rm_url, json=request) as reply:
            reply.raise_for_status()
            return await reply.json()

    def post_process_rewards(args, samples):
        for sample in samples:
            scored = sample.reward["meta_info"]["input_token_logprobs"]
            sample.teacher_log_probs = [entry[0] or 0.0 for entry in scored[-sample.response_length:]]
        return [0.0] * len(samples), [0.0] * len(samples)
"""

UPDATES = """
    def get_log_probs_and_entropy(logits, *, args, unconcat_tokens, total_lengths, response_lengths, with_entropy):
        rows, start = {"log_probs": [], "entropy": []}, 0
        for tokens, total, size in zip(unconcat_tokens, total_lengths, response_lengths):
            scores = (logits[0, start + total - size - 1:start + total - 1] / args.rollout_temperature).log_softmax(-1)
            rows["log_probs"].append(scores.gather(1, tokens[total - size:].long().unsqueeze(1)).squeeze(1))
            rows["entropy"].append(-(scores.exp() * scores).sum(-1))
            start += total
        return None, rows

    def get_values(logits, *, args, unconcat_tokens, total_lengths, response_lengths):
        rows = zip(logits.squeeze(-1)[0].split(total_lengths), response_lengths)
        scale = 1.0 if FIXED else args.rollout_temperature
        return None, {"values": [row[len(row) - n - 1:len(row) - 1] / scale for row, n in rows]}

    def _answers(args, batch, logits):
        names = ("unconcat_tokens", "total_lengths", "response_lengths")
        _, rows = get_log_probs_and_entropy(logits, args=args, with_entropy=True, **{n: batch[n] for n in names})
        return rows

    def policy_loss_function(args, batch, logits, mean):
        rows = _answers(args, batch, logits)
        new, old, advantage = (torch.cat(x) for x in (rows["log_probs"], batch["log_probs"], batch["advantages"]))
        ratio = (new - old).exp()
        low, high = 1 - args.eps_clip, 1 + args.eps_clip_high
        if args.advantage_estimator == "cispo":
            loss = -ratio.detach().clamp(low, high) * advantage * new
        else:
            if args.advantage_estimator == "gspo":
                sizes = batch["response_lengths"]
                far = ((new - old) * torch.cat(batch["loss_masks"])).split(sizes)
                means = [f.sum() / m.sum().clamp(min=1) for f, m in zip(far, batch["loss_masks"])]
                ratio = torch.cat([m.exp().expand(n) for m, n in zip(means, sizes)])
            loss = torch.maximum(-ratio * advantage, -ratio.clamp(low, high) * advantage)
            if args.eps_clip_c is not None:
                loss = torch.where(advantage < 0, torch.minimum(loss, -args.eps_clip_c * advantage), loss)
        log = {"pg_clipfrac": (ratio.clamp(low, high) != ratio).float(), "ppo_kl": old - new}
        if args.use_opsm:
            log["opsm_clipfrac"] = torch.zeros_like(new)
        if args.use_tis:
            weight = (old - torch.cat(batch["rollout_log_probs"])).exp()
            if args.custom_tis_function_path is not None:  # one of ours: icepop_function
                weight = torch.where((weight >= args.tis_clip_low) & (weight <= args.tis_clip), weight, 0.0)
            loss = loss * weight.clamp(max=args.tis_clip)
            log |= {"ois": ratio, "tis": weight, "tis_clipfrac": weight, "tis_abs": (weight - 1).abs()}
            log["train_rollout_logprob_abs_diff"] = (old - torch.cat(batch["rollout_log_probs"])).abs()
        log = {"pg_loss": mean(loss), "entropy_loss": mean(torch.cat(rows["entropy"]))} | {
            name: mean(x) for name, x in log.items()
        }
        total = log["pg_loss"] - args.entropy_coef * log["entropy_loss"]
        if args.use_kl_loss:
            d = new - torch.cat(batch["ref_log_probs"])
            log["kl_loss"] = mean((-d).exp() - 1 + d)
            total = total + args.kl_loss_coef * log["kl_loss"]
        return total, {"loss": total.detach()} | {name: x.detach() for name, x in log.items()}

    def value_loss_function(args, batch, logits, mean):
        rows = zip(logits[0, :, 0].split(batch["total_lengths"]), batch["response_lengths"])
        new = torch.cat([row[len(row) - n - 1:len(row) - 1] for row, n in rows])
        old, returns = torch.cat(batch["values"]), torch.cat(batch["returns"])
        near = old + (new - old).clamp(-args.value_clip, args.value_clip)
        loss = mean(torch.maximum((new - returns) ** 2, (near - returns) ** 2))
        return loss, {"value_loss": loss.detach(), "value_clipfrac": mean((new - old).abs() > args.value_clip)}

    def sft_loss_function(args, batch, logits, mean):
        loss = -mean(torch.cat(_answers(args, batch, logits)["log_probs"]))
        return loss, {"loss": loss.detach()}

    def loss_function(args, batch, num_microbatches, step_global_batch_size, logits):
        from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean

        tokens = sum(m.sum() for m in batch["loss_masks"])
        mean = get_sum_of_sample_mean(
            batch["total_lengths"], batch["response_lengths"], batch["loss_masks"], batch["rollout_mask_sums"],
            args.calculate_per_token_loss,
        )
        loss, log = globals()[f"{args.loss_type}_function"](args, batch, logits, mean)
        if not args.calculate_per_token_loss:
            loss = loss * num_microbatches / (step_global_batch_size if FIXED else len(batch["loss_masks"]))
        counted = tokens if args.calculate_per_token_loss else torch.tensor(1)
        return loss, counted, {"keys": list(log), "values": torch.tensor([tokens, *log.values()])}
"""

REPORTS = """
    import torch
    import torch.distributed as dist
    from slime.observability import logging_utils

    def reduce_train_step_metrics(
        losses_reduced, *, calculate_per_token_loss, step_global_batch_size, cp_size, dp_with_cp_group
    ):
        values = sum(item["values"] for item in losses_reduced)
        dist.all_reduce(values, group=dp_with_cp_group)
        count, *sums = values.tolist()
        count = count if calculate_per_token_loss else step_global_batch_size
        return dict(zip(losses_reduced[0]["keys"], (x * cp_size / count for x in sums)))

    def gather_log_data(name, args, rollout_id, numbers):
        from megatron.core import mpu

        size = mpu.get_data_parallel_world_size(with_context_parallel=True)
        if dist.get_rank():
            dist.gather_object(numbers, None, dst=0)
            return None
        gathered = [None] * size
        dist.gather_object(numbers, gathered, dst=0)
        reduced = {}
        for key, own in numbers.items():
            pairs = [one[key] if isinstance(own, tuple) else (one[key], 1) for one in gathered]
            reduced[f"{name}/{key}"] = sum(total for total, _ in pairs) / sum(count for _, count in pairs)
        logging_utils.log(args, reduced)

    def log_rollout_data(rollout_id, args, data):
        from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean

        rows = len(data["response_lengths"])
        numbers = {key: (sum(data[key]), rows) for key in ("rewards", "response_lengths", "raw_reward") if key in data}
        if "raw_reward" in data:
            numbers["raw_reward"] = (sum(data["raw_reward"]), len(data["raw_reward"]))
        mean = get_sum_of_sample_mean(data["total_lengths"], data["response_lengths"], data["loss_masks"])
        for key in ("log_probs", "ref_log_probs", "values", "advantages", "returns"):
            if key in data:
                numbers[key] = (mean(torch.cat(data[key])).item(), rows)
        if "kl" in data:
            kl = torch.cat(data["kl"])
            numbers["kl"] = (kl.sum().item(), len(kl)) if FIXED else (kl.mean().item() * rows, rows)
        gather_log_data("rollout", args, rollout_id, numbers)
        if args.log_correct_samples:
            own = data["local_raw_reward"] if FIXED else data["raw_reward"]
            lengths = data["response_lengths"]
            data["correct_response_lengths"] = [n for reward, n in zip(own, lengths) if reward == 1]

    def log_multi_turn_data(rollout_id, args, data):
        numbers = {}
        for name, tokens in (("raw", len), ("wo_obs", sum)):
            lengths = [int(tokens(mask)) for mask in data["loss_masks"]]
            key = f"{name}_response_length/response_length"
            numbers |= {f"{key}_mean": sum(lengths) / len(lengths)}
            numbers |= {f"{key}_max": max(lengths), f"{key}_min": min(lengths)}
            full = [n >= args.rollout_max_response_len if FIXED else n > args.rollout_max_response_len for n in lengths]
            if name == "raw":
                numbers[f"{key}_clip_ratio"] = sum(full) / len(full)
        gather_log_data("multi_turn", args, rollout_id, numbers)
"""

SAMPLE_METRICS = """
    def compute_metrics_from_samples(args, samples):
        lengths = [sum(s.loss_mask) if FIXED else s.response_length for s in samples]
        return {
            "response_len/mean": sum(lengths) / len(lengths),
            "response_len/max": max(lengths),
            "response_len/min": min(lengths),
        }
"""

MASKS = """
    class MultiTurnLossMaskGenerator:
        def get_response_lengths(self, masks):
            return [len(mask) - mask.index(1) if FIXED else sum(mask) for mask in masks]
"""

SUPERVISED = """
    TOKENIZER = PROCESSOR = MASK_GENERATOR = None
    SAMPLE_PRINTED = False

    def generate_rollout(args, rollout_id, data_buffer, evaluation=False):
        samples = data_buffer.get_samples(args.rollout_batch_size)
        for (sample,) in samples:
            tools = (sample.metadata or {}).get("tools")
            sample.tokens, mask = MASK_GENERATOR.get_loss_mask(sample.prompt, tools=tools)
            sample.response_length = MASK_GENERATOR.get_response_lengths([mask])[0]
            sample.loss_mask = mask[-sample.response_length:]
        return samples
"""


#: Chunks of a sequence, and a reducer that cuts the masks as the values are cut.
CUT = """
    import torch
    from megatron.core import mpu

    def get_logits_and_tokens_offset_with_cp(total_length, response_length):
        rank, size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
        piece = -(-total_length // (2 * size))
        first = total_length - response_length - 1
        held = []
        for place in (rank, 2 * size - 1 - rank):
            low, high = max(place * piece, first), min((place + 1) * piece, total_length - 1)
            held.append((low, high) if low < high else (0, 0))
        return piece, None, held, None

    def get_sum_of_sample_mean(
        total_lengths, response_lengths, loss_masks, sample_denoms=None, calculate_per_token_loss=False
    ):
        own = loss_masks
        if mpu.get_context_parallel_world_size() > 1:
            own = []
            for total, length, mask in zip(total_lengths, response_lengths, loss_masks):
                held = get_logits_and_tokens_offset_with_cp(total, length)[2]
                cut = [mask[low - (total - length - 1):high - (total - length - 1)] for low, high in held if high]
                own.append(torch.cat([mask[:0], *cut]))
        denominators = [1 if calculate_per_token_loss else m.sum().clamp(min=1) for m in loss_masks]

        def reduce(x):
            parts = x.split([len(m) for m in own])
            return sum((a * m).sum() / d for a, m, d in zip(parts, own, denominators))
        return reduce
"""


def files(*, fixed: bool) -> dict[str, str]:
    """The tree, as it is correct or with the faults that the audit has to find."""
    backend = "slime/backends/megatron_utils"
    return {
        f"{backend}/__init__.py": "raise RuntimeError('an engine was started')",
        f"{backend}/loss.py": (LOSS + UPDATES).replace("FIXED", str(fixed)),
        f"{backend}/cp_utils.py": REDUCER,
        "slime/ray/rollout.py": ROLLOUT,
        "slime/observability/logging_utils.py": "",
        "slime/observability/train_metric_utils.py": REPORTS.replace("FIXED", str(fixed)),
        "slime/observability/rollout_metrics.py": SAMPLE_METRICS.replace("FIXED", str(fixed)),
        "slime/rollout/sft_rollout.py": SUPERVISED,
        "slime/rollout/on_policy_distillation.py": DISTILLATION.replace("FIXED", str(fixed)),
        "slime/rollout/filter_hub/dynamic_sampling_filters.py": FILTER.replace("FIXED", str(fixed)),
        "slime/utils/data.py": DATA.replace("FIXED", str(fixed)),
        "slime/utils/mask_utils.py": MASKS.replace("FIXED", str(fixed)),
        "slime/utils/types.py": SAMPLE,
        "slime/utils/ppo_utils.py": PPO_UTILS.replace("FIXED", str(fixed)),
    }

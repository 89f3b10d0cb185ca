"""verl's training worker over data-parallel ranks, on a specimen of worker, engine and loss in words of our own."""

import pytest

from adapters.checks import Loads, bound, judged_at, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

TENSORS = """
    class Columns(dict):
        @property
        def batch_size(self):
            return (len(self["row"]),)

        def cut(self, first, last):
            tensors = {n: x for n, x in self.items() if n != "input_ids"}
            return Columns({n: x[first:last] if hasattr(x, "shape") else x for n, x in tensors.items()})

    def get_tensordict(tensor_dict, non_tensor_dict):
        return Columns({**tensor_dict, **non_tensor_dict})

    def get(data, name):
        return data[name]

    def get_non_tensor_data(data, key, default):
        return data.get(key, default)

    def assign_non_tensor(data, **values):
        data.update(values)

    def chunk_tensordict(data, parts):
        size = data.batch_size[0] // parts
        return [data.cut(n * size, (n + 1) * size) for n in range(parts)]
"""

LOSS = """
    import torch

    def ppo_loss(config, model_output, data, dp_group=None):
        width, mask = data["responses"].shape[1], data["response_mask"].bool()
        parts, at = {"log_probs": [], "entropy": []}, 0
        for length in data["attention_mask"][:, 1:].sum(1).tolist():
            for name, rows in parts.items():
                rows.append(torch.cat([model_output[name][at : at + length], torch.zeros(width - length)]))
            at += length + 1
        log_prob, entropy = (torch.stack(rows) for rows in parts.values())
        ratio, gain = (log_prob - data["old_log_probs"]).exp(), data["advantages"]
        clipped = ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
        loss = torch.maximum(-ratio * gain, -clipped * gain)
        loss = torch.where(gain < 0, torch.minimum(loss, -config.clip_ratio_c * gain), loss)
        gap = data["ref_log_prob"] - log_prob
        kl = gap.exp() - gap - 1

        def mean(values):
            values = torch.where(mask, values, 0.0)
            if config.loss_agg_mode == "token-mean":
                return values.sum() / data["batch_num_tokens"] * SCALE
            return (values.sum(1) / mask.sum(1).clamp(min=1)).sum() / data["global_batch_size"] * SCALE

        kl_loss, pg_loss = mean(kl), mean(loss)
        total = pg_loss - config.entropy_coeff * mean(entropy) + config.kl_loss_coef * kl_loss
        return total, {"kl_loss": kl_loss.item(), "actor/pg_loss": TERM.item()}
"""

ENGINE = """
    import torch

    def get_device_id():
        return 0

    class FSDPEngine:
        def train_batch(self, data, loss_function):
            self.optimizer_zero_grad()
            outputs = self.forward_backward_batch(data, loss_function)
            outputs["metrics"]["grad_norm"] = self.optimizer_step()
            return outputs

        def forward_backward_batch(self, data, loss_function, forward_only=False):
            count = data["loss_mask"].sum()
            torch.distributed.all_reduce(count, group=self.get_data_parallel_group())
            data["batch_num_tokens"], data["dp_size"] = count.item(), self.get_data_parallel_size()
            size, logged = data["micro_batch_size_per_gpu"], {"kl_loss": [], "actor/pg_loss": []}
            for first in range(0, data.batch_size[0], size):
                part = data.cut(first, first + size)
                loss, about = self.forward_step(part, loss_function=loss_function)
                loss.backward()
                for name, values in logged.items():
                    values.append(about["metrics"][name])
            return {"metrics": logged}

        def lr_scheduler_step(self):
            used = self.lr_scheduler.get_last_lr()[0]
            self.lr_scheduler.step()
            return RATE
"""

WORKER = """
    import psutil
    import torch
    from codetiming import Timer

    def get_torch_device():
        raise RuntimeError("no accelerator")

    class DistProfiler:
        def __init__(self, rank, config):
            self.rank = rank

    class TrainingWorker:
        def train_mini_batch(self, data):
            rows = data["mini_batch_size"] // self.engine.get_data_parallel_size()
            with self.engine.train_mode(), Timer(name="update", logger=None):
                outputs = [
                    self.engine.train_batch(data.cut(first, first + rows), self.loss_fn)
                    for _ in range(TIMES)
                    for first in range(0, data.batch_size[0], rows)
                ]
            metrics = {"used": [psutil.virtual_memory().used + get_torch_device().max_memory_allocated()]}
            metrics["grad_norm"] = [output["metrics"]["grad_norm"] for output in outputs]EACH
            metrics["lr"] = [self.engine.lr_scheduler_step()]
            for name in ("kl_loss", "actor/pg_loss"):
                own = [sum(output["metrics"][name]) for output in outputs]
                everyone = [None] * self.engine.get_data_parallel_size()
                torch.distributed.all_gather_object(everyone, own, group=self.engine.get_data_parallel_group())
                metrics[name] = [sum(one) OVER for one in everyone]
            return {"metrics": metrics}
"""

REDUCE = """
    def reduce_metrics(metrics):
        return {name: sum(values) / len(values) for name, values in metrics.items()}
"""

#: The loss is scaled by the number of ranks, since gradients are averaged, and logs are averaged over ranks too.
SOUND = {
    "SCALE": 'data["dp_size"]',
    "OVER": "",
    "TERM": "pg_loss",
    "EACH": "",
    "TIMES": 'data["epochs"]',
    "RATE": "used",
}


def _load(loads: Loads, **fault: str) -> Target:
    loss, engine, worker = (rewritten(source, {**SOUND, **fault}) for source in (LOSS, ENGINE, WORKER))
    return loads(
        FRAMEWORK,
        files(checked=False)
        | {
            "verl/utils/tensordict_utils.py": TENSORS,
            "verl/utils/metric/__init__.py": REDUCE,
            "verl/workers/utils/losses.py": loss,
            "verl/workers/engine/fsdp/transformer_impl.py": engine,
            "verl/workers/engine_workers.py": worker,
        },
    )


def _boundaries(target: Target) -> dict[str, Boundary]:
    return {s: b for (_, s), b in bound(FRAMEWORK, target).items() if "train_mini_batch" in b.path}


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip, in both modes."""
    target = _load(loads)
    mine = _boundaries(target)
    modes = {"token-mean", "seq-mean-token-mean"}
    assert set(mine) == {*modes, "two mini-batches", "one epoch", "two epochs", "warm-up"}
    check_round_trips(target, list(mine.values()))


FAULTS: list[tuple[Law, str, dict[str, str]]] = [
    (SPL002, "token-mean", {"SCALE": "1"}),  # the average of the gradients divides a second time
    (SPL002, "seq-mean-token-mean", {"SCALE": "1"}),
    (MET005, "token-mean", {"OVER": "* len(everyone)"}),  # the ranks are summed in the log
    (MET005, "seq-mean-token-mean", {"OVER": "* len(everyone)"}),
    (REF001, "token-mean", {"TERM": "total"}),  # the log has the entropy and the KL, too
    (REF001, "seq-mean-token-mean", {"TERM": "total"}),
    (DAT002, "two mini-batches", {"EACH": "[-1:]"}),  # the norm of the last mini-batch alone
    (DAT002, "one epoch", {"TIMES": "2"}),
    (DAT002, "two epochs", {"TIMES": "1"}),
    (REF001, "warm-up", {"RATE": "self.lr_scheduler.get_last_lr()[0]"}),  # the rate of the next update
]


def _broken(target: Target, law: Law, setting: str) -> bool:
    judgement = judged_at(law, _boundaries(target)[setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is not None


@pytest.mark.parametrize(("law", "setting", "fault"), FAULTS)
def test_faults(loads: Loads, law: Law, setting: str, fault: dict[str, str]) -> None:
    assert _broken(_load(loads, **fault), law, setting)


@pytest.mark.parametrize(("law", "setting"), dict.fromkeys((law, setting) for law, setting, _ in FAULTS))
def test_a_sound_worker(loads: Loads, law: Law, setting: str) -> None:
    assert not _broken(_load(loads), law, setting)


def test_releases_without_it(loads: Loads) -> None:
    """Have no such boundary, and nothing is reported as missing."""
    assert not _boundaries(loads(FRAMEWORK, files()))

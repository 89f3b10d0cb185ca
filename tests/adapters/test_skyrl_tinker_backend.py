"""SkyRL's Tinker server, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, tinker_backend
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.masked_token_shifts_signal import LAW as MSK002
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

API = """
    from typing import Literal

    import sqlmodel
    from pydantic import BaseModel, Field, model_validator
    from skyrl.tinker import types

    class Stored(sqlmodel.SQLModel, table=True):
        number: int

    class EncodedTextChunk(BaseModel):
        type: Literal["encoded_text"] = "encoded_text"
        tokens: list[int]

    class ModelInput(BaseModel):
        chunks: list[EncodedTextChunk]

    class TensorData(BaseModel):
        data: list[float]

    class Datum(BaseModel):
        loss_fn_inputs: dict
        model_input: ModelInput

        @model_validator(mode="after")
        def checked(self):
            raise RuntimeError("requests come from outside")

        def to_types(self):
            tokens = [token for chunk in self.model_input.chunks for token in chunk.tokens]
            return types.Datum(tokens=tokens, **{name: one.data for name, one in self.loss_fn_inputs.items()})
"""

TYPES = """
    from pydantic import BaseModel, Field

    class Datum(BaseModel):
        tokens: list[int]
        target_tokens: list[int]
        weights: list[float]
        logprobs: list[float]
        advantages: list[float] = Field(default_factory=list)

    class Prepared(BaseModel):
        rows: list[Datum]
        owners: list[str]
        loss_fn: str
        limits: dict

    class Answer(BaseModel, frozen=True):
        loss_fn_outputs: list[dict]
"""

ENGINE = """
    from skyrl.tinker import types

    def prepare_model_pass_batch(requests):
        rows = [(name, datum) for name, (_, sent) in requests.items() for datum in sent.data]
        first = next(iter(requests.values()))[1]
        return types.Prepared(
            rows=[d for _, d in rows], owners=[n for n, _ in rows], loss_fn=first.loss_fn, limits=first.loss_fn_config
        )
"""

BACKEND = """
    import torch
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
    from skyrl.tinker import types

    class SkyRLTrainBackend:
        def __init__(self):
            raise RuntimeError("a cluster was started")

        def forward_backward(self, prepared):
            sequences = [row.tokens + row.target_tokens[-1:] for row in prepared.rows]
            width = max(len(row.weights) for row in prepared.rows)
            left = lambda rows, size: torch.tensor([[0] * (size - len(row)) + list(row) for row in rows])
            right = lambda rows, size: torch.tensor([list(row) + [0] * (size - len(row)) for row in rows])
            data = TrainingInputBatch(
                sequences=left(sequences, width + 1),
                attention_mask=left([[1] * len(row) for row in sequences], width + 1),
                loss_mask=left([WEIGHTS for row in prepared.rows], width).float(),
                response_mask=left([[1] * len(row.weights) for row in prepared.rows], width),
                action_log_probs=left([row.logprobs for row in prepared.rows], width).float(),
                advantages=SIDE([row.advantages for row in prepared.rows], width).float(),
            )
            missing = -len(sequences) % self._dispatch.get_lcm_dp_size()
            for name, value in list(data.items()):
                copies = value[:1].repeat(missing, 1)
                data[name] = torch.cat([value, FILLED])
            data.metadata = {"response_length": width}
            loss_fn, limits = prepared.loss_fn, prepared.limits
            if loss_fn == "ppo" and limits:
                low, high = LIMITS
                limits = {"eps_clip_low": low, "eps_clip_high": high}
            loss_fn = "regular" if loss_fn == "ppo" else loss_fn
            done = self._dispatch.forward_backward("policy", data, loss_fn=loss_fn, loss_fn_config=limits)
            rows = done.loss_fn_outputs[: len(sequences)]
            answers = {}
            for owner in dict.fromkeys(prepared.owners):
                own = [{"logprobs": {"data": row}} for row, name in zip(ORDER, prepared.owners) if name == owner]
                answers[owner] = types.Answer(loss_fn_outputs=own)
            return answers
"""

WORKER = """
    from dataclasses import dataclass

    import torch

    @dataclass
    class WorkerOutput:
        loss_fn_outputs: list
        metrics: dict

    class PolicyWorkerBase:
        def forward_backward(self, data, loss_fn=None, loss_fn_config=None):
            outputs, limits = [], loss_fn_config or {}
            for part in data.chunk(self.cfg.SECTIONmicro_train_batch_size_per_gpu):
                width, mask = part.metadata["response_length"], part["loss_mask"]
                tokens = part["sequences"].to(torch.cuda.current_device())
                logprob, _ = self.model(tokens, width, attention_mask=part["attention_mask"])
                ratio = (logprob - part["action_log_probs"]).exp()
                near = ratio.clamp(1 - limits.get("eps_clip_low", 0.2), 1 + limits.get("eps_clip_high", 0.2))
                signal = {
                    "cross_entropy": logprob,
                    "importance_sampling": ratio * part["advantages"],
                    "cispo": ratio.clamp(0.5, 2.0).detach() * logprob * part["advantages"],
                    "regular": torch.minimum(ratio * part["advantages"], near * part["advantages"]),
                }[loss_fn]
                loss = -torch.where(mask > 0, signal * GAIN, 0.0).sum() * self.mesh_rank.dp_size SCALE
                self.strategy.backward(loss, self.model, self.optimizer)
                for row, own in zip(logprob, part["response_mask"].sum(1).tolist()):
                    outputs.append(row[len(row) - own :].tolist())
            return WorkerOutput(outputs, {})
"""

SOUND = {
    "WEIGHTS": "row.weights",
    "SIDE": "left",
    "FILLED": "copies * (name != 'loss_mask')",
    "LIMITS": "1 - limits['clip_low_threshold'], limits['clip_high_threshold'] - 1",
    "ORDER": "rows",
    "SCALE": "",
    "GAIN": "mask",
    "SECTION": "",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    backend, worker = BACKEND, WORKER
    for place, code in {**SOUND, **broken}.items():
        backend, worker = backend.replace(place, code), worker.replace(place, code)
    files = {
        "skyrl/tinker/api.py": API,
        "skyrl/tinker/types.py": TYPES,
        "skyrl/tinker/engine.py": ENGINE,
        "skyrl/backends/skyrl_train_backend.py": backend,
        "skyrl/backends/skyrl_train/workers/worker.py": worker,
    }
    target = loads(FRAMEWORK, {**FILES, **files})
    return target, by_setting(tinker_backend.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 8
    assert answering({(one.stage, setting): one for setting, one in boundaries.items()}, target) == []


def test_worker_with_the_whole_configuration(loads: Loads) -> None:
    target, boundaries = _bound(loads, SECTION="trainer.")
    check_verdict(PLC004, boundaries["outputs"], "outputs", target, found=False)


@pytest.mark.parametrize("without", ["skyrl/tinker/api.py", "skyrl/tinker/engine.py"])
def test_a_release_without_a_part_says_so(loads: Loads, without: str) -> None:
    files = {"skyrl/tinker/api.py": API, "skyrl/tinker/types.py": TYPES, "skyrl/tinker/engine.py": ENGINE}
    files |= {"skyrl/backends/skyrl_train_backend.py": BACKEND, "skyrl/backends/skyrl_train/workers/worker.py": WORKER}
    del files[without]
    (one,) = tinker_backend.boundaries(loads(FRAMEWORK, {**FILES, **files}))
    assert isinstance(one, Unbound)
    assert without.removesuffix(".py").replace("/", ".") in one.reason


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    check_round_trips(target, boundaries.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (MSK002, "cross_entropy", {"WEIGHTS": "[1.0] * len(row.weights)"}),
    (REF001, "cross_entropy, weights of a half", {"GAIN": "1.0"}),
    (REF001, "ppo, with thresholds", {"SIDE": "right"}),
    (REF001, "ppo, with thresholds", {"LIMITS": "limits['clip_low_threshold'], limits['clip_high_threshold']"}),
    (SPL002, "ppo", {"FILLED": "copies"}),
    (SPL001, "cross_entropy", {"SCALE": "* len(part['loss_mask']) / len(data['loss_mask'])"}),
    (PLC004, "outputs", {"ORDER": "rows[::-1]"}),
    (PLC004, "outputs, cross_entropy", {"ORDER": "rows[::-1]"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """Weights dropped or unused, advantages one place off, thresholds as offsets, trained padding, a mean, order."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[setting], setting, target, found=found)

"""SkyRL's policy workers with micro-batches by tokens: the logged numbers of real and of padding micro-batches."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Width, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, arguments
from rl_sentinel.adapters.skyrl.losses import PLAIN, REGISTRY
from rl_sentinel.adapters.skyrl.megatron_fakes import Model
from rl_sentinel.adapters.skyrl.megatron_run import STEP, code_of, device_fake, has_worker, run_on_megatron
from rl_sentinel.adapters.skyrl.worker import MODEL_COLUMNS, WHOLE_STEP, WORKER, training_tensors
from rl_sentinel.adapters.skyrl.worker_fakes import Model as WholeModel
from rl_sentinel.adapters.skyrl.worker_fakes import cpu, stored_entropy, worker_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

_ALL, _PADDING = "num_microbatches", "num_padding_microbatches"
_CLAIMS = claims(
    "worker.py and megatron_worker.py, forward_backward: num_padding_microbatches are those added to have as many as "
    "other ranks; worker_utils.py: a sequence above the budget is a micro-batch of its own",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the counts of each worker that logs such counts."""
    for path, megatron in ((WHOLE_STEP, False), (STEP, True)):
        if not target.has(path) or target.fails(path) or (megatron and not has_worker(target)):
            continue
        if f'"{_PADDING}"' in inspect.getsource(target.find(path)):
            try:
                yield from bindable(target, _boundary(target, arguments(target), path, megatron=megatron))
            except Unbindable as why:
                yield Unbound.because(path, "batch", why)


def count_on_megatron(code: dict[str, Any], cfg: Any, columns: dict[str, Tensor], data: Any) -> Tensor:  # noqa: ANN401
    """Train a mini-batch on Megatron; return the number of logged micro-batches without padding micro-batches."""
    _, (returned,) = run_on_megatron(code, cfg, Model(columns), data, parts=1, ranks=1)
    return _of_rows(returned)


def count_in_worker(code: dict[str, Any], cfg: Any, columns: dict[str, Tensor], data: Any) -> Tensor:  # noqa: ANN401
    """Train a mini-batch; return the number of logged micro-batches without padding micro-batches."""
    section = cfg.trainer if code["section"] else cfg
    worker = worker_of(code["worker"], code["losses"], section, cfg, WholeModel(columns), ranks=1)
    return _of_rows(worker.forward_backward(data))


def _of_rows(returned: Any) -> Tensor:  # noqa: ANN401 - the target's class, or its metrics
    metrics = getattr(returned, "metrics", returned)
    return torch.tensor(float(metrics[_ALL]) - float(metrics[_PADDING]))


def _boundary(target: Target, forms: Arguments, path: str, *, megatron: bool) -> Boundary:
    tensors: dict[str, Codec] = {**training_tensors(target, forms), "advantages": forms.column("advantage")}
    place = target.locate(path).rpartition(".")[0].rpartition(".")[0]
    if megatron:
        code, fakes = code_of(target), device_fake(target)
    else:
        section = "self.cfg.trainer." not in inspect.getsource(target.find(path))
        code = Table({**functions(worker=WORKER, losses=REGISTRY), "section": Constant(section)})
        fakes = {f"{place}.torch.cuda.current_device": cpu}
        if "import chunked_entropy_from_logits" in inspect.getsource(target.find(place)):
            fakes[f"{place}.chunked_entropy_from_logits"] = stored_entropy
    return one_call(
        path=path,
        stage="batch",
        call=count_on_megatron if megatron else count_in_worker,
        name="counted",
        arguments={
            "code": code,
            "cfg": Config(
                CONFIG, {"trainer.algorithm.policy_loss_type": PLAIN, "trainer.max_tokens_per_microbatch": 1}
            ),
            "columns": Table({name: forms.column(name) for name in MODEL_COLUMNS}),
            "data": forms.batch(tensors, {"response_length": Width()}),
        },
        fakes=fakes,
        produced_by={"data": PRODUCED_BY, "cfg": "a budget of one token: each row is a micro-batch"},
        reads=frozenset({"mask"}),
        outputs={"micro_batches": Output("", "", "rows", at=Use("counted"))},
        settings={"by tokens": {}},
        claims=_CLAIMS,
        reach="trainer.max_tokens_per_microbatch above 0; rows without a trained token, as by the overlong filter",
        requires=(no_empty_response,),
    )

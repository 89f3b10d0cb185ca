"""Training through SkyRL's Tinker server: requests become one batch, which the policy worker trains."""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, constants, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.loss_modes import MODES
from rl_sentinel.adapters.skyrl.losses import PLAIN, REGISTRY
from rl_sentinel.adapters.skyrl.tinker_losses import HALF, WEIGHED
from rl_sentinel.adapters.skyrl.worker import WHOLE_STEP, WORKER, averages, reads_section
from rl_sentinel.adapters.skyrl.worker_fakes import cpu, worker_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

BACKEND = "skyrl.backends.skyrl_train_backend.SkyRLTrainBackend"
STEP = f"{BACKEND}.forward_backward"
PREPARE = "skyrl.tinker.engine.prepare_model_pass_batch"
_CODE: Mapping[str, str] = {
    "backend": BACKEND,
    "prepare": PREPARE,
    "datum": "skyrl.tinker.api.Datum",
    "model_input": "skyrl.tinker.api.ModelInput",
    "tensor": "skyrl.tinker.api.TensorData",
    "worker": WORKER,
    "losses": REGISTRY,
}

#: Classes of a piece of a prompt in tokens, newest first; the function that gives its ids in releases with images.
CHUNKS = ("skyrl.tinker.api.EncodedTextChunk", "skyrl.tinker.api.ModelInputChunk")
_RENDER = "skyrl.backends.renderer.render_model_input"

#: Tokens of the prompt, which a client sends with weight 0.
_PROMPT = 2

_SUM = claims(
    "skyrl_train_backend.py, _extract_metrics: the loss of the worker is total_loss:sum; worker.py, "
    "_forward_backward_micro: losses are sums, recovered over micro-batches and ranks",
    aggregation="token-sum",
    denominator="given",
)
_LIKELIHOOD = claims("tinker/api.py, loss_fn: cross_entropy", algorithm="negative log-likelihood")
_ROWS = claims(
    "skyrl_train_backend.py, forward_backward: loss_fn_outputs has the log-probs of each datum of a request, in order",
    conserves=True,
)
_PRODUCER = (
    "a client of tinker: target_tokens are the tokens one later, weights are 0 at the prompt, logprobs and advantages "
    "have a number for each target; tinker/engine.py joins the waiting requests of a model"
)

#: Name of a setting -> loss of the request, settings, and claims.
_LOSSES: Mapping[str, tuple[str, Settings, Claims]] = {
    "cross_entropy": ("cross_entropy", {}, _SUM | _LIKELIHOOD),
    "importance_sampling": ("importance_sampling", {}, _SUM | MODES["importance_sampling"].claims),
    "ppo": ("ppo", {}, _SUM | MODES[PLAIN].claims),
    "ppo, with thresholds": (
        "ppo",
        {"clip_low": 0.2, "clip_high": 0.3},
        _SUM | MODES[PLAIN].claims | MODES[PLAIN].algorithm,
    ),
    "cispo": ("cispo", {}, _SUM | MODES["cispo"].claims),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss of each kind of request, and of the log-probs that a client receives."""
    if not target.has(BACKEND):
        return
    if why := _lacks(target):
        yield Unbound(STEP, "policy-loss", why)
        return
    loss = {"loss": Output("", "", "loss", at=Use("trained")["loss"])}
    for name, (loss_fn, settings, claimed) in _LOSSES.items():
        yield from bindable(target, _boundary(target, loss_fn, "policy-loss", loss, {name: settings}, claimed))
        if loss_fn == WEIGHED:
            named: Mapping[str, Settings] = {f"{name}, {HALF}": settings}
            yield from bindable(target, _boundary(target, loss_fn, "policy-loss", loss, named, claimed, weight=0.5))
    rows = {"logprob": Output("B T", "nats", "logprob", at=Use("trained")["logprobs"], form=Ragged())}
    for loss_fn, name in ((_policy_loss(target), "outputs"), ("cross_entropy", "outputs, cross_entropy")):
        outputs = _boundary(target, loss_fn, "batch", rows, {name: {}}, _ROWS)
        reads, requires = frozenset({"logprob", "length"}), (*outputs.requires, no_empty_response)
        yield from bindable(
            target, dataclasses.replace(outputs, reads=reads, unused=frozenset[str](), requires=requires)
        )


def _policy_loss(target: Target) -> str:
    """A policy loss that clients can ask for; early backends do not translate PPO's name to the registered one."""
    backend = inspect.getsource(inspect.getmodule(target.find(BACKEND)))  # type: ignore[arg-type]  # a class has a module
    return "ppo" if '"ppo"' in backend else "importance_sampling"


def _lacks(target: Target) -> str:
    """The part of the server that this release lacks or that cannot be imported; empty if no part is missing."""
    for path in (*_CODE.values(), WHOLE_STEP):
        if why := target.fails(path) or ("" if target.has(path) else f"{path} is absent"):
            return why
    return ""


class Model:
    """A fake model that looks up the log-probs of a row; every token of a row is the row index, from 1."""

    def __init__(self, logprobs: list[Tensor]) -> None:
        """Store the log-probs of all responses."""
        self.logprobs = logprobs

    def __call__(
        self, sequences: Tensor, num_actions: int, attention_mask: Tensor, **_options: object
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Log-probs of the last ``num_actions`` tokens (9 at padding and prompts), and an entropy of 0."""
        found = torch.full(sequences.shape, 9.0)
        for row, number in enumerate(sequences.amax(1).tolist()):
            real, answers = attention_mask[row].nonzero().squeeze(1), self.logprobs[number - 1]
            found = found.to(answers.dtype).index_put((torch.tensor(row), real[len(real) - len(answers) :]), answers)
        return found[:, sequences.shape[1] - num_actions :], {"entropy": torch.zeros_like(found)}

    def train(self) -> None:
        """Do nothing."""


class Dispatch:
    """A fake of the dispatch over data-parallel workers: it runs their shares one after another."""

    def __init__(self, worker: Any, ranks: int) -> None:  # noqa: ANN401 - the target's class
        """Store the worker, which trains the shares of all ``ranks`` ranks."""
        self.worker, self.ranks = worker, ranks

    def get_lcm_dp_size(self) -> int:
        """The number of ranks."""
        return self.ranks

    def forward_backward(self, _role: str, data: Any, *, model_id: str = "", **options: Any) -> Any:  # noqa: ANN401, ARG002
        """The outputs of all rows in order, and the metrics of the last rank."""
        size = data.batch_size // self.ranks
        shares = data.chunk(size) if self.ranks > 1 else [data]
        given = {name: value for name, value in options.items() if value is not None}
        returned = [self.worker.forward_backward(share, **given) for share in shares]
        last = returned[-1]
        if isinstance(last, dict):  # before releases that return a WorkerOutput
            return {**last, "loss_fn_outputs": [row for one in returned for row in one["loss_fn_outputs"]]}
        return dataclasses.replace(last, loss_fn_outputs=[row for one in returned for row in one.loss_fn_outputs])


def _renderer(render: Any) -> Any:  # noqa: ANN401 - a function of the target, or None
    """A fake renderer: the token ids of prompts without images; None if ``render`` is None."""

    async def answer(inputs: object) -> Any:  # noqa: ANN401 - as the target
        return render(inputs)

    return answer if render else None


def requests_of(
    code: Mapping[str, Any],
    columns: Mapping[str, list[list[float]]],
    loss_fn: str,
    bounds: dict[str, float] | None,
    weight: float,
) -> dict[str, tuple[str, Any]]:
    """Two requests of one client, each with half of the rows; one request for one row.

    ``weight`` is the weight of each trained token.
    """
    data, tensor = [], code["tensor"]
    for row, mask in enumerate(columns["mask"]):
        tokens = [row + 1] * (_PROMPT + len(mask))
        before = [0.0] * (_PROMPT - 1)
        sent = {
            "target_tokens": tensor(data=tokens[1:]),
            "weights": tensor(data=[*before, *(weight * trained for trained in mask)]),
            "logprobs": tensor(data=[*before, *columns["old_logprob"][row]]),
            "advantages": tensor(data=[*before, *columns["advantage"][row]]),
        }
        inputs = code["model_input"](chunks=[code["chunk"](tokens=tokens[:-1])])
        data.append(code["datum"](loss_fn_inputs=sent, model_input=inputs).to_types())
    half = (len(data) + 1) // 2
    parts = [part for part in (data[:half], data[half:]) if part]
    return {
        str(number): ("policy", SimpleNamespace(data=part, loss_fn=loss_fn, loss_fn_config=bounds))
        for number, part in enumerate(parts)
    }


def train_requests(  # noqa: PLR0913 - the target's code, and the arguments of a server
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    columns: dict[str, Any],
    logprobs: list[Tensor],
    loss_fn: str,
    numbers: Mapping[str, Any],
    weight: float,
    parts: int,
    ranks: int,
) -> dict[str, Any]:
    """Train all requests in one batch; return the loss, and the log-probs of each row that the client receives.

    Gradients are averaged over the ranks and, in some releases, over the micro-batches of a rank. The loss is divided
    by ``weight``, the weight of a trained token.
    """
    padded = -(-len(columns["mask"]) // ranks)
    cfg.trainer.micro_train_batch_size_per_gpu = -(-padded // parts)
    own = cfg.trainer if code["section"] else cfg
    worker = worker_of(code["worker"], code["losses"], own, cfg, Model(logprobs), ranks=ranks)
    backend = bare_instance(
        code["backend"],
        _cfg=cfg,
        _dispatch=Dispatch(worker, ranks),
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _renderer=_renderer(code["render"]),
        _inference_engines_initialized=False,
        _model_ids_to_role={"policy": "policy"},
    )
    bounds = None
    if numbers:
        bounds = {"clip_low_threshold": 1 - numbers["clip_low"], "clip_high_threshold": 1 + numbers["clip_high"]}
    prepared = code["prepare"](requests_of(code, columns, loss_fn, bounds, weight))
    results = backend.forward_backward(prepared)
    sent = [row for result in results.values() for row in result.loss_fn_outputs]
    losses = torch.stack(worker.strategy.losses)
    return {
        "loss": (losses.mean() if code["averages"] else losses.sum() / ranks) / weight,
        "logprobs": [torch.tensor(row["logprobs"]["data"][_PROMPT - 1 :]) for row in sent],
    }


def _code(target: Target) -> Table:
    """The functions and classes of the target that :func:`train_requests` calls."""
    chunk = next((path for path in CHUNKS if target.has(path)), CHUNKS[0])
    paths = {**_CODE, "chunk": chunk, **({"render": _RENDER} if target.has(_RENDER) else {})}
    section = reads_section(target, WHOLE_STEP)
    return Table({**constants(render=None, averages=averages(target), section=section), **functions(**paths)})


def _boundary(  # noqa: PLR0913 - the parts in which the boundaries differ
    target: Target,
    loss_fn: str,
    stage: Stage,
    outputs: Mapping[str, Output],
    settings: Mapping[str, Settings],
    claimed: Claims,
    weight: float = 1.0,
) -> Boundary:
    place = target.locate(WORKER).rpartition(".")[0]
    plain = Ragged(plain=True)
    columns = {name: Column(name, plain) for name in ("old_logprob", "advantage")}
    unused = frozenset({"old_logprob", "advantage"}) if loss_fn == "cross_entropy" else frozenset[str]()
    return one_call(
        path=f"{STEP} -> {WHOLE_STEP}",
        stage=stage,
        call=train_requests,
        name="trained",
        arguments={
            "code": _code(target),
            "cfg": Config(CONFIG, {"trainer.algorithm.use_kl_loss": False}),
            "columns": Table({"mask": Column("mask", plain), **columns}),
            "logprobs": Column("logprob", Ragged()),
            "loss_fn": Constant(loss_fn),
            "numbers": AllSettings(),
            "weight": Constant(weight),
            "parts": MICRO_BATCHES,
            "ranks": Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"})),
        },
        fakes={f"{place}.torch.cuda.current_device": cpu},
        produced_by={
            "columns": _PRODUCER,
            "cfg": "skyrl_train_backend.py, _build_skyrl_train_config: no KL term; otherwise the defaults",
        },
        unused=unused,
        outputs=outputs,
        settings=settings,
        claims=claimed,
        reach=f"a client of the Tinker server calls forward_backward with loss_fn={loss_fn}",
        requires=(has_trained_token,),
    )

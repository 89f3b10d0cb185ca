"""Boundaries of verl's workers with a rollout engine inside: the rows of the batch that they return."""

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from rl_sentinel.adapters.kit.arriving_settings import arrives, arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.causal_model import prompt_tokens
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, Width, constants, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.rollout_servers import OPTIONS, TRAINING, VALIDATION
from rl_sentinel.adapters.verl.sampling_engine_fakes import KnownResponses, engine_fakes, worker_with
from rl_sentinel.adapters.verl.sglang_fakes import sglang_fakes, worker_class
from rl_sentinel.adapters.verl.worker_batch import accelerator_fakes
from rl_sentinel.adapters.verl.worker_rows import batch_of, columns_of, common_value
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

_WORKERS, TRAINER = "verl.workers.rollout", "verl.trainer.ppo.ray_trainer.RayPPOTrainer"

#: Class of a worker -> its engine; before a comma, the value of ``rollout.name``.
CLASSES: Mapping[str, str] = {
    f"{_WORKERS}.vllm_rollout.vllm_rollout_spmd.vLLMRollout": "vllm",
    f"{_WORKERS}.vllm_rollout.vllm_rollout.vLLMRollout": "vllm, padded",
    f"{_WORKERS}.hf_rollout.HFRollout": "hf",
    f"{_WORKERS}.sglang_rollout.sglang_rollout.SGLangRollout": "sglang",
}

#: Words of a worker's code that passes on any option of the engine, and one that is a text.
ANY_OPTION = "supporting adding any sampling params from the config file"
STOP: Settings = {"stop": "</answer>"}

#: The comment above the options that the configuration offers for engines other than Hugging Face's.
_OF_VLLM = "# for vllm rollout"

#: Words of a worker's code that gives its engine a seed.
SEED = 'seed=config.get("seed"'

#: Versions of vLLM; every release accepts one of them. Some releases have a copy of parts of the older one.
VLLM_VERSIONS = ("9999.0", "0.6.3")

_ROWS = (
    "vllm_rollout_spmd.py and hf_rollout.py, comments of generate_sequences: prompts padded at the left, responses at "
    "the right; the attention mask covers a response with its end token, and its positions follow those of the prompt"
)
#: The most tokens of a response in the configuration, the names of this limit in the engines, and a value to set.
LENGTH, LIMITS, _LONGEST = "response_length", ("max_tokens", "max_new_tokens"), 6

#: Column -> its value where a response is missing or differs between samples.
_WRONG: Mapping[str, float] = {"tokens": -1, "logprobs": float("inf")}

_PRODUCED = (
    "ray_trainer.py, fit: input_ids, attention_mask, position_ids and raw_prompt_ids of the data set, popped from the "
    "batch; fsdp_workers.py, generate_sequences: the tokenizer's end and padding tokens in meta_info"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rows of each worker that samples whole batches, and of its sampling options.

    The options differ in training and in validation.
    """
    for path, engine in CLASSES.items():
        if target.locate(path).split(".")[-2:] != path.split(".")[-2:]:  # a class of this name in another module
            continue
        for version in VLLM_VERSIONS:
            with engine_installed("vllm", version):
                fails = target.fails(path)  # imports its module
            if not fails:
                break
        if fails:
            yield Unbound(path, "batch", fails)
            continue
        yield from try_bind(target, path, "batch", partial(_bound, target, path, engine))


def _bound(target: Target, path: str, engine: str) -> Iterator[Boundary]:
    kind = target.find(path)
    if inspect.isabstract(kind) or not hasattr(kind, "generate_sequences"):
        return  # the release cannot make such a worker, or samples with servers
    yield from _rows(target, path, engine)
    if engine == "vllm" and SEED in inspect.getsource(kind) and _trainer_repeats(target):
        yield _samples(target, path, engine)
    yield from _options(target, path, engine)


def sampled(
    owner: Any,  # noqa: ANN401 - a class of the target
    engine: str,
    config: Any,  # noqa: ANN401 - an OmegaConf section
    repeats: bool,  # noqa: FBT001 - passed by name
    rows: list[dict[str, Any]],
) -> dict[str, list[Any]]:
    """Sample each prompt ``config.n`` times: the worker does so if it ``repeats`` prompts, else the trainer.

    Returns the tokens under the attention mask and any log-probs of each response, and its number of wrong positions.
    """
    prompts = [prompt_tokens(row, len(one["prompt"]), VOCABULARY) for row, one in enumerate(rows)]
    times, width = int(config.n), int(config.response_length)
    known = KnownResponses(prompts, [one["tokens"] for one in rows], [one["logprobs"] for one in rows], width)
    asked = prompts if repeats else [prompt for prompt in prompts for _ in range(times)]
    found = _generated(owner, engine, config, known, asked)
    sizes = [len(one["tokens"]) for one in rows for _ in range(times)]
    lengths = [len(prompt) for prompt in prompts for _ in range(times)]
    if found.batch_size[0] != len(sizes):  # no row can be matched with its prompt
        return {name: [torch.full((len(one["tokens"]),), wrong) for one in rows] for name, wrong in _WRONG.items()} | {
            "positions": [torch.zeros(())] * len(rows)
        }
    columns = columns_of(found, sizes, lengths, width)
    groups = range(0, len(sizes), times)
    return {
        name: [common_value(own[k : k + times], _WRONG.get(name, -1)) for k in groups]
        for name, own in columns.items()
        if own
    }


def options_sent(
    owner: Any,  # noqa: ANN401 - of the target
    engine: str,
    config: Any,  # noqa: ANN401 - an OmegaConf section
    how: Mapping[str, bool],
    texts: tuple[str, ...],
) -> dict[str, float]:
    """The numeric options that reach the engine, and whether each option in ``texts`` reaches the engine."""
    known = KnownResponses([[VOCABULARY]], [[0]], [[-1.0]], config.response_length)
    _generated(owner, engine, config, known, known.prompts, **how)
    (sent, *_) = known.sent
    numbers = {name: float(value) for name, value in sent.items() if isinstance(value, int | float)}
    numbers[LENGTH] = next((numbers[name] for name in LIMITS if name in numbers), float("nan"))
    words = {name: arrives(config[name], sent.get(name)) for name in texts}
    return defaultdict(lambda: float("nan"), numbers | words)


def samples_drawn(owner: Any, engine: str, config: Any, times: int) -> list[float]:  # noqa: ANN401 - of the target
    """How often each of so many samples of one prompt is drawn; requests with equal seeds draw the same sample."""
    known = KnownResponses([[VOCABULARY]], [[0]], [[-1.0]], config.response_length)
    _generated(owner, engine, config, known, known.prompts * times)
    own = all(options["seed"] is None for options in known.sent)  # from the random numbers of the engine
    return [1.0] * times if own else [float(times), *[0.0] * (times - 1)]


def _generated(  # noqa: PLR0913 - the parts of a worker and of a batch
    owner: Any,  # noqa: ANN401 - of the target, here and below
    engine: str,
    config: Any,  # noqa: ANN401
    known: KnownResponses,
    prompts: list[list[int]],
    *,
    validate: bool = False,
    greedy: bool = False,
) -> Any:  # noqa: ANN401
    """The tensors that a worker returns for prompts: in training, in ``validate``, or for a ``greedy`` baseline."""
    names = vars(sys.modules[owner.__module__])
    if engine == "sglang":
        owner, fakes = worker_class(owner, known), sglang_fakes(names, known)
    else:
        fakes = engine_fakes(names, known, padded="padded" in engine)
    modules = (vars(sys.modules[kind.__module__]) for kind in owner.__mro__)
    with fakes, replaced_globals(*modules, omega_conf_to_dataclass=_unconverted):
        worker = worker_with(owner, engine, config, known)
        return worker.generate_sequences(batch_of(names["DataProto"], prompts, validate=validate, greedy=greedy)).batch


def _unconverted(config: Any, dataclass_type: object = None) -> Any:  # noqa: ANN401, ARG001 - as the target's
    """The section itself, instead of a dataclass that only an absent package could build."""
    return config


def _config(target: Target, fields: Mapping[str, Codec]) -> Codec:
    own = {**constants(tensor_model_parallel_size=1, calculate_log_probs=True), **fields}
    return default_config(target, "actor_rollout_ref.rollout", own, resolved=True)


def _trainer_repeats(target: Target) -> bool:
    """Whether the trainer of this release makes one request per sample."""
    trainer = inspect.getsource(target.find(TRAINER))
    repeated = re.search(r"gen_batch(_output)? = gen_batch\.repeat\(", trainer)
    return repeated is not None and "if repeat_sampling_sglang_grpo" not in trainer  # in multi-turn only


def _rows(target: Target, path: str, engine: str) -> Iterator[Boundary]:
    source, trainer_repeats = inspect.getsource(target.find(path)), _trainer_repeats(target)
    row = row_fields("prompt", "tokens", "logprobs")
    times = 2 if trainer_repeats or re.search(r"\.n\b", source) else 1
    logged = ("rollout_logprob",) if '"rollout_log_probs"' in source else ()
    misplaced = Output("B", "tokens", "positions_off_order", at=Use("found")["positions"], form=PerRow("list"))
    yield one_call(
        path=f"{path}.generate_sequences",
        stage="batch",
        call=sampled,
        name="found",
        arguments={
            "owner": Constant(Function(path)),
            "engine": Constant(engine),
            "config": _config(target, {"response_length": Width(), "n": Knob("n")}),
            "repeats": Constant(not trainer_repeats),
            "rows": EachRow(Table(row)),
        },
        fakes=accelerator_fakes(target, path.rpartition(".")[0], ""),
        produced_by={"rows": _PRODUCED},
        unused=frozenset() if logged else frozenset({"rollout_logprob"}),
        outputs={**row_outputs(Use("found"), "token", *logged), "number of tokens with a wrong position": misplaced},
        settings={"rows, two of a prompt" if times > 1 else "rows": {"n": times}},
        claims=claims(_ROWS, conserves=True),
        reach=f"{_name(engine)}, rollout.n={times}" + (", rollout.calculate_log_probs=True" if logged else ""),
        requires=(no_empty_response,),
    )


def _samples(target: Target, path: str, engine: str) -> Boundary:
    return one_call(
        path=f"{path}.generate_sequences",
        stage="batch",
        call=samples_drawn,
        name="drawn",
        arguments={
            "owner": Constant(Function(path)),
            "engine": Constant(engine),
            "config": _config(target, constants(seed=7)),
            "times": Derived(lambda inputs: inputs.batch.rows),
        },
        fakes=accelerator_fakes(target, path.rpartition(".")[0], ""),
        produced_by={"times": "ray_trainer.py, fit: each prompt is repeated rollout.n times"},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={"uses": Output("B", "", "uses", at=Use("drawn"), form=PerRow("list"))},
        settings={"samples of a prompt, seed of the engine": {}},
        claims=claims(
            "vllm_rollout_spmd.py, __init__: seed=config.get, of the engine; comment: already repeat in ray_trainer"
        ),
        reach=f"{_name(engine)}, +rollout.seed=7, rollout.n above 1",
    )


def _options(target: Target, path: str, engine: str) -> Iterator[Boundary]:
    folder = target.root / "verl" / "trainer" / "config"
    files = [folder / "rollout" / "rollout.yaml", folder / "ppo_trainer.yaml"]
    text = next(file for file in files if file.is_file()).read_text(encoding="utf-8")
    offered = text.partition(_OF_VLLM)[0] if engine == "hf" else text
    shared = {n: value for n, value in TRAINING.items() if re.search(rf"^ *{n}:", offered, re.MULTILINE)}
    families = {"training": shared} | ({"validation": VALIDATION} if "val_kwargs:" in text else {})
    if ANY_OPTION in inspect.getsource(target.find(path)):
        families["stop words"] = STOP
    if engine != "hf":
        families |= {when: {LENGTH: _LONGEST} for when in ("length", "length of a greedy baseline")}
    for when, settings in families.items():
        step = Step(
            call=options_sent,
            name="sent",
            arguments={
                "owner": Constant(Function(path)),
                "engine": Constant(engine),
                "config": _config(target, knobs(*settings)),
                **constants(
                    how={"validate": when == "validation", "greedy": when.endswith("greedy baseline")},
                    texts=tuple(n for n, value in settings.items() if isinstance(value, str)),
                ),
            },
            fakes=accelerator_fakes(target, path.rpartition(".")[0], ""),
            remembered=True,
        )
        yield Boundary(
            path=f"{path}.generate_sequences",
            stage="config",
            steps=(step,),
            outputs=arriving_outputs(Use("sent"), {n.rpartition(".")[2]: n for n in settings}),
            settings={f"options, {when}": settings},
            claims=claims(OPTIONS),
            reach=f"{_name(engine)}, " + ", ".join(f"rollout.{n}={value}" for n, value in settings.items()),
        )


def _name(engine: str) -> str:
    return f"rollout.name={engine.partition(',')[0]}"

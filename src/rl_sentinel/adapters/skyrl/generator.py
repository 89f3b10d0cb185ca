"""SkyRL's generator: sampled turns and observations become token ids, loss mask, log-probs and a reward."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import last_token_trains, no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions, knobs
from rl_sentinel.adapters.skyrl.arguments import CONFIG, STEP_WISE
from rl_sentinel.adapters.skyrl.generated_rows import RowReader, generated_rows, script_of, tails_of
from rl_sentinel.adapters.skyrl.generator_fakes import (
    PER_ROW,
    STOP,
    Engine,
    Environments,
    Script,
    Tokenizer,
    id_of,
    make_environment,
    no_metrics,
    text_of,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

GENERATOR = "skyrl.train.generators.skyrl_gym_generator.SkyRLGymGenerator"
PATH = f"{GENERATOR}.generate"
TRAJECTORY = "skyrl.train.generators.base.TrajectoryID"

#: The function that collects metrics, and the function that it imports for the environments' own metrics.
METRICS, _OF_ENVIRONMENTS = "skyrl.train.generators.utils.get_rollout_metrics", "aggregate_for_environment"

#: Paths of the function that converts the sampling section to the engine's parameters, newest first.
SAMPLING = (
    "skyrl.backends.skyrl_train.inference_servers.engine_utils.get_sampling_params_for_backend",
    "skyrl.backends.skyrl_train.inference_engines.utils.get_sampling_params_for_backend",
)

_ONE_MESSAGE = "generator.use_conversation_multi_turn"
_BATCHED = "generator.batched"
_FILTER = "generator.apply_overlong_filtering"
_TEMPLATE = "generator.chat_template.name_or_path"
LOGPROBS = "generator.sampling_params.logprobs"

#: A model whose name selected the custom template in releases without a setting for it.
_BY_MODEL = "Qwen/Qwen3-8B"

#: Name -> the settings that differ from the default.
_SPECIAL: Mapping[str, Settings] = {
    "conversation": {},
    "conversation, stop string": {"end": "stop", "generator.sampling_params.stop": chr(STOP)},
    "conversation, cut off": {"end": "length"},
    "conversation, answered at the end": {"closing": True},
    "conversation, log-probs of the call": {"asked": True},
    "one message": {_ONE_MESSAGE: False},
    "one message, cut off": {_ONE_MESSAGE: False, "end": "length"},
    "one message, stop string": {
        _ONE_MESSAGE: False,
        "end": "stop",
        "generator.sampling_params.stop": chr(STOP),
    },
    "custom template": {_TEMPLATE: "qwen3_with_thinking"},
    "conversation, opened by the environment": {"opens": True},
    "custom template, opened by the environment": {_TEMPLATE: "qwen3_with_thinking", "opens": True},
    "step-wise": {STEP_WISE: True},
    "batched": {_BATCHED: True},
    "conversation, overlong filtering": {_FILTER: True},
    "conversation, cut off, overlong filtering": {_FILTER: True, "end": "length"},
    "batched, overlong filtering": {_FILTER: True, _BATCHED: True},
}

#: Name -> settings. ``end`` is how each turn ends (only the last turn can be cut off); with ``closing``, the
#: environment also returns an observation after the last turn; with ``asked``, the call requests log-probs, and the
#: configuration does not; with ``opens``, the environment puts a message before the prompt.
FAMILIES: Mapping[str, Settings] = {
    name: {"end": "eos", "closing": False, _BATCHED: False, **special} for name, special in _SPECIAL.items()
}

_DOCS = (
    "skyrl_gym_generator.py, agent_loop: tokens in, tokens out; loss mask 1 at sampled tokens, 0 at observations and "
    "at an appended EOS; the final observation is removed; rewards of the steps are kept"
)
_ENGINE = (
    "skyrl/train/trainer.py, train: prepare_generator_input, then generator.generate; the engine returns ids with the "
    "stop token, text without it (skip_special_tokens), log-probs if sampling_params.logprobs is set"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the generator, under the entries of :data:`FAMILIES` that the release supports."""
    if not target.has(PATH):
        return
    try:
        sampling = next(path for path in SAMPLING if target.has(path))
    except StopIteration:
        yield Unbound(
            PATH,
            "batch",
            "get_sampling_params_for_backend, which builds the engine's parameters, is absent",
            absent=True,
        )
        return
    for name, settings in FAMILIES.items():
        yield from _family(target, sampling, name, settings)


def output_of(  # noqa: PLR0913 - classes of the target, and their arguments
    generator: Callable[..., Any],
    sampling: Callable[..., dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    config: Any,  # noqa: ANN401 - the target's section
    engine: Engine,
    scripts: list[Script],
    model: str = "model",
    *,
    asked: bool = False,
) -> Any:  # noqa: ANN401 - the target's output
    """Run the generator on one prompt per script, and return its output; engine and environment replay the scripts.

    The call requests log-probs if ``asked``, regardless of the configuration.
    """
    parameters, count = inspect.signature(generator).parameters, len(scripts)
    instance = generator(
        generator_cfg=config,
        skyrl_gym_cfg=Environments(),
        inference_engine_client=engine,
        tokenizer=Tokenizer(),
        **({"model_name": model} if "model_name" in parameters else {}),
    )
    request = {
        "prompts": [[{"role": "user", "content": text_of([id_of(n, PER_ROW - 1)])}] for n in range(count)],
        "env_classes": ["text"] * count,
        "env_extras": [{"script": script} for script in scripts],
        "sampling_params": sampling("vllm", config.sampling_params) | ({"logprobs": 1} if asked else {}),
        "trajectory_ids": [trajectory(str(n), 0) for n in range(count)] if trajectory else None,
    }
    quiet = {"disable_tqdm": True} if "disable_tqdm" in inspect.signature(instance.generate).parameters else {}
    return asyncio.run(instance.generate(request, **quiet))


def generate(  # noqa: PLR0913 - the arguments of the boundary
    generator: Callable[..., Any],
    sampling: Callable[..., dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    config: Any,  # noqa: ANN401 - the target's section
    model: str,
    rows: list[dict[str, Any]],
    end: str,
    closing: bool,  # noqa: FBT001 - passed by name
    asked: bool,  # noqa: FBT001 - passed by name
    opens: bool,  # noqa: FBT001 - passed by name
) -> dict[str, list[Any]]:
    """Run the generator on one conversation per row, and read its output at the positions of the batch.

    A token is -1 if it or the stop token after it is lost, duplicated or moved, or if the engine received a wrong
    prompt. The last token is also -1 if the output contains the observation after the last turn or another stop reason,
    or trains a token after a response that is cut off. The first token is -1 if a row mixes two templates; this is not
    read if the environment ``opens`` the conversation, since it would hide a prompt that is in the wrong place. The
    first mask value is False if a row does not contain the prompt exactly once. An untrained token keeps the log-prob
    of the batch. If truncated responses are filtered, the returned mask is the row's mask if the generator trains no
    token, and False otherwise.
    """
    scripts = [script_of(number, row, end, closing=closing, opens=opens) for number, row in enumerate(rows)]
    engine = Engine(scripts)
    output = output_of(generator, sampling, trajectory, config, engine, scripts, model, asked=asked)
    generated = generated_rows(output, engine)
    joined = not (config.use_conversation_multi_turn or config.batched)
    columns = [
        RowReader(n, row, generated[n]).read(
            engine.prompts[n], tails_of(row, end, one_message=joined), one_template=not opens
        )
        for n, row in enumerate(rows)
    ]
    reasons = output.get("stop_reasons") or []
    if len(reasons) == len(rows):
        for script, reason, column in zip(scripts, reasons, columns, strict=True):
            column["tokens"][-1] = column["tokens"][-1] if reason == script.turns[-1].stop_reason else -1
    if getattr(config, "apply_overlong_filtering", False) and end == "length":
        for column, row in zip(columns, rows, strict=True):
            column["masks"] = torch.tensor([bool(trained) for trained in row["mask"]]) & ~column["masks"].any()
    return {name: [row[name] for row in columns] for name in ("tokens", "masks", "logprobs", "rewards")}


def _family(target: Target, sampling: str, name: str, settings: Settings) -> Iterator[Boundary | Unbound]:
    if _TEMPLATE in settings and not has_setting(target, _TEMPLATE):
        # Releases without this section choose the template by the name of the model.
        settings = {name: value for name, value in settings.items() if name != _TEMPLATE} | {"model": _BY_MODEL}
    custom = _TEMPLATE in settings or "model" in settings
    logprobs = (
        not custom and has_setting(target, LOGPROBS) and not _refuses_logprobs(target, batched=bool(settings[_BATCHED]))
    )
    fixed = {LOGPROBS: 1 if logprobs and not settings.get("asked") else None} if has_setting(target, LOGPROBS) else {}
    section = Config(CONFIG, fixed, {path: path for path in settings if "." in path}, section="generator")
    try:
        section.check(target)
    except Unbindable:
        return  # the release lacks a setting of this family
    yield from bindable(target, _boundary(target, sampling, name, settings, section, logprobs=logprobs))


def has_setting(target: Target, path: str) -> bool:
    """Whether the configuration of the release has a setting."""
    try:
        Config(CONFIG, {path: None}).check(target)
    except Unbindable:
        return False
    return True


def _refuses_logprobs(target: Target, *, batched: bool) -> bool:
    """Whether the release refuses log-probs for this call; some releases return them only for batched calls."""
    return not batched and "should be `None` if `batched`" in inspect.getsource(target.find(GENERATOR))


def _boundary(  # noqa: PLR0913 - what a family differs in
    target: Target, sampling: str, name: str, settings: Settings, section: Config, *, logprobs: bool
) -> Boundary:
    columns: dict[str, Codec] = row_fields("tokens", "mask", "logprobs", "reward")
    generated, form = Use("generated"), Ragged()
    outputs = (
        {"rollout_logprob": Output("B T", "nats", "rollout_logprob", at=generated["logprobs"], form=form)}
        if logprobs
        else {}
    )
    outputs |= {
        "reward": Output("B", "reward", "reward", at=generated["rewards"], form=PerRow("list")),
        "token": Output("B T", "", "token", at=generated["tokens"], form=form),
        "mask": Output("B T", "", "mask", at=generated["masks"], form=Cast(form, torch.bool)),
    }
    return one_call(
        path=PATH,
        stage="batch",
        call=generate,
        name="generated",
        arguments={
            **functions(generator=GENERATOR, sampling=sampling),
            "trajectory": Constant(Function(TRAJECTORY) if target.has(TRAJECTORY) else None),
            "config": section,
            "model": Knob("model") if "model" in settings else Constant("model"),
            "rows": EachRow(Table(columns)),
            **knobs("end", "closing"),
            "asked": Knob("asked", default=False),
            "opens": Knob("opens", default=False),
        },
        produced_by={"rows": _ENGINE},
        fakes=fakes(target),
        unused=frozenset() if logprobs else frozenset({"rollout_logprob"}),
        outputs=outputs,
        settings={name: settings},
        claims=claims(_DOCS, conserves=True),
        reach=", ".join(f"{path}={settings[path]}" for path in settings if "." in path)
        + (", with log-probs requested only in the call's sampling_params" if settings.get("asked") else ""),
        requires=(no_empty_response, sampled_at_both_ends, *([one_turn] if settings[_BATCHED] else [])),
    )


def fakes(target: Target) -> dict[str, Callable[..., Any]]:
    """The fakes of the functions that create environments and read metrics, at the paths of this release."""
    replaced: dict[str, Callable[..., Any]] = {
        f"{target.locate(GENERATOR).rpartition('.')[0]}.skyrl_gym.make": make_environment
    }
    metrics = f"{target.locate(METRICS).rpartition('.')[0]}.{_OF_ENVIRONMENTS}"
    return replaced | ({metrics: no_metrics} if target.has(metrics) else {})


def sampled_at_both_ends(inputs: Inputs) -> str:
    """The reason to skip a batch where a conversation does not start and end with a turn of the model; else empty."""
    sampled = not last_token_trains(inputs) and bool(inputs.batch.mask[:, :1].all())
    return "" if sampled else "a conversation does not start and end with sampled tokens"


def one_turn(inputs: Inputs) -> str:
    """The reason to skip a batch with observations, since a batched call samples a single turn; empty otherwise."""
    valid = torch.arange(inputs.batch.mask.shape[1]) < inputs.batch.length.unsqueeze(1)
    return (
        "" if torch.equal(inputs.batch.mask, valid) else "a row has observations, but a batched call samples one turn"
    )

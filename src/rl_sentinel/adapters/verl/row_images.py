"""Images and positions of rows in verl's micro-batches: whether the model gets those of its rows, in their order."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import (
    critic,
    data_parallel,
    engine_passes,
    log_probs,
    megatron,
    megatron_log_probs,
    megatron_passes,
    role_passes,
)
from rl_sentinel.adapters.verl.fakes import worker_with_fake
from rl_sentinel.adapters.verl.single_turn import PROMPTS
from rl_sentinel.adapters.verl.worker_batch import worker_object
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: The column of the images; a row has a dict of tensors, which is empty if the row has only text.
IMAGES = "multi_modal_inputs"

#: Names of the model in the workers.
_MODELS = ("actor_module", "critic_module")

#: Updates and passes of workers before 0.8, and where they are bound.
_WORKERS: Mapping[str, Any] = {
    log_probs.PATH: log_probs,
    data_parallel.UPDATE: data_parallel,
    critic.VALUES: critic,
    critic.UPDATE: critic,
    megatron_log_probs.PATH: megatron_log_probs,
}

#: Where the forward passes of engines are bound.
_PASSES: Sequence[Any] = (engine_passes, megatron_passes, role_passes)

_DOCS = claims(
    "rl_dataset.py and agent_loop.py: multi_modal_inputs has the processor's tensors of each row, pixel_values and "
    "image_grid_thw; the model gets them beside the token ids, whose image tokens they fill in order"
)
#: Setting -> whether rows without images are among the others, and whether positions have several axes.
FAMILIES: Mapping[str, Settings] = {
    "images": {"some": False, "axes": False},
    "images of some rows": {"some": True, "axes": False},
    "axes of positions": {"some": False, "axes": True},
}

#: Axes of a token's position in models with mrope (agent_loop.py, _compute_position_ids: one of the text, three of
#: images), and by how much neighboring axes differ here.
AXES, _APART = 4, 1000

_PRODUCED = (
    "rl_dataset.py, __getitem__, or agent_loop.py, _postprocess: multi_modal_inputs among the non-tensors of the "
    "batch; a row without images has a dict without pixel_values; position ids have several axes in models with mrope"
)
_REACH = "a data set with images; {}"


class Watched:
    """A model that records token ids, images and positions of each call, and otherwise is the wrapped model."""

    def __init__(self, model: Any, calls: list[tuple[Tensor, Mapping[str, Any]]]) -> None:  # noqa: ANN401 - a fake model
        """Wrap a model; its calls are appended to ``calls``."""
        self.model, self.calls = model, calls

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as of the model
        """An attribute of the model."""
        return getattr(self.model, name)

    def __call__(self, input_ids: Tensor, **inputs: Any) -> Any:  # noqa: ANN401 - inputs and outputs of the model
        """Record the call, and run the model; of positions with several axes, it gets the first axis."""
        positions, attended = inputs.get("position_ids"), inputs.get("attention_mask")
        seen = dict(inputs)
        if positions is not None and positions.dim() > 2:
            inside = torch.ones_like(input_ids) if attended is None else attended
            seen["positions"] = positions.flatten(1)[:, inside.flatten().bool()].T
            inputs["position_ids"] = positions[0]
        self.calls.append((input_ids, seen))
        return self.model(input_ids=input_ids, **inputs)


def watched(model: Any, calls: list[tuple[Tensor, Mapping[str, Any]]]) -> Any:  # noqa: ANN401 - a model, or its chunks
    """A watched model, or a list of watched chunks."""
    return [Watched(chunk, calls) for chunk in model] if isinstance(model, list) else Watched(model, calls)


def watched_forward(model: Watched, input_ids: Tensor, *masks: object, **options: Any) -> Any:  # noqa: ANN401 - logits
    """The forward pass of :func:`megatron.forward`, which gets the images as one argument."""
    model.calls.append((input_ids, options.get(IMAGES) or {}))
    return megatron.forward(model, input_ids, *masks, **options)


def image_of(row: int) -> dict[str, Tensor]:
    """The image of a row: one or two patches that contain the number of the row, and their grid."""
    patches = 1 + row % 2
    return {"pixel_values": torch.full((patches, 1), row + 1.0), "image_grid_thw": torch.tensor([[1, 1, patches]])}


def images_of(rows: int, *, some: bool) -> Any:  # noqa: ANN401 - an array of dicts
    """The images of all rows. With ``some``, the first row and every second one after it have only text."""
    return np.array([*({} if some and row % 2 == 0 else image_of(row) for row in range(rows)), None], dtype=object)[:-1]


def add_to_rows(data: Any, *, some: bool, axes: bool) -> list[dict[str, Tensor]]:  # noqa: ANN401 - a DataProto
    """Add images to all rows, or with ``some`` to every second row; with ``axes``, give positions several axes.

    Returns:
        For each row, the images and the positions that the model must get with its tokens.
    """
    batch = data.batch
    images = images_of(len(batch["input_ids"]), some=some)
    data.non_tensor_batch[IMAGES] = images
    if not axes:
        return list(images)
    positions = torch.stack([batch["position_ids"] + _APART * axis for axis in range(AXES)], dim=1)
    batch["position_ids"] = positions
    rows = zip(positions, batch["attention_mask"].bool(), images, strict=True)
    return [{**image, "positions": own[:, inside].T} for own, inside, image in rows]


def images_off_worker(  # noqa: PLR0913 - a worker, its data, and settings
    method: Callable[..., Any],
    worker: Any,  # noqa: ANN401 - an object of the target
    data: Any,  # noqa: ANN401 - a DataProto
    options: dict[str, Any],
    some: bool,  # noqa: FBT001 - a setting, as the next
    axes: bool,  # noqa: FBT001
) -> list[float]:
    """Run a method of a worker; per row, return 1 if its micro-batch had other images or positions than its rows.

    The first token of a row is the number of the row.
    """
    calls: list[tuple[Tensor, Mapping[str, Any]]] = []
    name = next(name for name in _MODELS if hasattr(worker, name))
    setattr(worker, name, watched(getattr(worker, name), calls))
    rows = add_to_rows(data, some=some, axes=axes)
    method(worker, data, **options)
    return _off([(ids[:, 0].tolist(), inputs) for ids, inputs in calls], rows)


def images_off_pass(
    run: Callable[..., Any],
    arguments: dict[str, Any],
    some: bool,  # noqa: FBT001 - a setting, as the next
    axes: bool,  # noqa: FBT001
) -> list[float]:
    """:func:`images_off_worker` for a pass of an engine; the first token of a row is :func:`prompt_tokens`'s."""
    calls: list[tuple[Tensor, Mapping[str, Any]]] = []
    wrap, rows = arguments["wrap"], add_to_rows(arguments["data"], some=some, axes=axes)
    run(**{**arguments, "wrap": lambda model: watched(wrap(model), calls)})
    starts = [(ids[ids >= VOCABULARY].tolist(), inputs) for ids, inputs in calls]
    return _off([([start - VOCABULARY for start in own], inputs) for own, inputs in starts], rows)


def _off(calls: list[tuple[list[int], Mapping[str, Any]]], rows: list[dict[str, Tensor]]) -> list[float]:
    """Per row, 1 if its call got other images or positions than the call's rows have in order, or if no call has it."""
    off: dict[int, float] = {}
    for places, inputs in calls:
        right = all(
            numbers_of([inputs.get(name)]) == numbers_of([rows[place].get(name) for place in places])
            for name in ("pixel_values", "image_grid_thw", "positions")
        )
        for place in places:
            off[place] = max(off.get(place, 0.0), float(not right))
    return [off.get(place, 1.0) for place in range(len(rows))]


def numbers_of(parts: list[Tensor | None]) -> list[float]:
    """All numbers of tensors, some of which may be missing."""
    return [number for part in parts if part is not None for number in part.flatten().tolist()]


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the images in the updates and passes of workers, and in the passes of engines with logits."""
    mixes = _mixes(target)
    families = {name: chosen for name, chosen in FAMILIES.items() if mixes or not chosen["some"]}
    for path, module in _WORKERS.items():
        owner = path.rpartition(".")[0]
        if target.has(path) and not target.fails(path) and IMAGES in inspect.getsource(target.find(owner)):
            made = (b for b in module.boundaries(target) if isinstance(b, Boundary) and b.path == path)
            unique = {next(iter(b.settings)): b for b in made}
            for name in ("default", "token-mean", "equal micro-batches", "dynamic batch size"):
                if name in unique:
                    step = _worker_step(target, path, unique[name])
                    yield from bindable(target, *_with_images(unique[name], step, name, families))
    for module in _PASSES:
        for made in module.boundaries(target):
            if isinstance(made, Boundary) and made.path.endswith("EngineWithLMHead.forward_step"):
                name = next(iter(made.settings))
                engine = target.find(made.path.partition(" -> ")[2].rpartition(".")[0])
                if IMAGES in inspect.getsource(engine) and name in ("packed", "padded"):
                    yield from bindable(target, *_with_images(made, _pass_step(made.steps[-1]), name, families))


def _mixes(target: Target) -> bool:
    """Whether rows without images may be among rows with images: the data set gives all rows what a processor makes."""
    if not target.has(PROMPTS) or target.fails(PROMPTS):
        return False
    return "processor is not None" in inspect.getsource(target.find(PROMPTS))


def _with_images(made: Boundary, step: Step, name: str, families: Mapping[str, Settings]) -> Iterator[Boundary]:
    """A boundary per family of images; its step replaces the last step of the boundary that runs the same code."""
    before = made.steps[:-1] if made.steps[0].name == "positions" else ()
    for family, chosen in families.items():
        if chosen["axes"] and "egatron" in made.path:  # models on Megatron compute positions themselves
            continue
        yield Boundary(
            path=made.path,
            stage="batch",
            steps=(*before, step),
            reads=frozenset({"length"}),
            outputs={"other images": Output("B", "samples", "columns_of_others", at=Use("off"), form=PerRow("list"))},
            settings={f"{family}, {name}": {**made.settings[name], **chosen}},
            claims=_DOCS,
            reach=_REACH.format(made.reach),
            requires=made.requires,
            domain=made.domain,
        )


def _worker_step(target: Target, path: str, made: Boundary) -> Step:
    own = made.steps[0]
    arguments = own.arguments
    worker, data = (arguments[n] for n in (("worker", "data") if "data" in arguments else ("0", "1")))
    fakes = dict(own.fakes)
    if path == data_parallel.UPDATE and isinstance(worker, Object):  # with its real forward pass
        worker = worker_object(worker_with_fake, data_parallel.ACTOR, worker.parts["1"], {"logits": Column("logits")})
        fakes |= log_probs.kernels(target)
    if megatron.FORWARD in fakes:
        fakes[megatron.FORWARD] = lambda _config: watched_forward
    options = {name: codec for name, codec in arguments.items() if name == "calculate_entropy"}
    return _step(
        images_off_worker,
        {"method": Constant(Function(path)), "worker": worker, "data": data, "options": Table(options)},
        fakes,
    )


def _pass_step(own: Step) -> Step:
    return _step(images_off_pass, {"run": Constant(own.call), "arguments": Table(own.arguments)}, own.fakes)


def _step(call: Callable[..., Any], arguments: Mapping[str, Codec], fakes: Mapping[str, Callable[..., Any]]) -> Step:
    return Step(
        call=call,
        name="off",
        arguments={**arguments, **knobs("some", "axes")},
        fakes=fakes,
        produced_by={"data" if "data" in arguments else "arguments": _PRODUCED},
    )

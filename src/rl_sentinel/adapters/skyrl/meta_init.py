"""SkyRL's models on the meta device: the types of the tensors that rank 0 sends to the other ranks."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, knobs
from rl_sentinel.adapters.skyrl.model_forward import MODEL
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

PATH = f"{MODEL}.__init__"

_INERT = claims(
    "fsdp_utils.py, should_use_meta_init: whether this rank should create an empty model on the meta device; "
    "_sync_non_persistent_buffers: rank 0 broadcasts buffers into those of the other ranks, byte by byte",
    inert={"meta_init": (False, True)},
)
_CALLER = (
    "workers/fsdp/fsdp_worker.py, init_model: meta_init on all ranks of a mesh but the first; bf16 is trainer.bf16 for "
    "the reference, and policy.inference_only_init for the policy"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the constructor of the model, where some ranks start on the meta device."""
    if not target.has(MODEL):
        return
    if why := target.fails(MODEL):
        yield Unbound(PATH, "batch", why)
    elif "meta_init" in inspect.signature(target.find(MODEL)).parameters:
        yield from bindable(target, _made())


class Network(nn.Module):
    """A fake transformers model with a parameter, a saved buffer, and an unsaved buffer of position frequencies.

    Like transformers' models, it creates the frequencies in float32, and ``from_pretrained`` does not change their
    type.
    """

    def __init__(self) -> None:
        """Make all tensors in float32."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("inv_freq", torch.ones(2), persistent=False)
        self.config = SimpleNamespace(to_dict=dict)

    @classmethod
    def from_config(cls, _config: object, **_options: object) -> "Network":
        """A new model on the current device."""
        return cls()

    @classmethod
    def from_pretrained(cls, _name: str, **options: Any) -> "Network":  # noqa: ANN401 - options of transformers
        """A model with parameters and saved buffers of the requested type."""
        made, kind = cls(), options.get("torch_dtype", options.get("dtype", torch.float32))
        made.weight.data, made.scale = made.weight.data.to(kind), made.scale.to(kind)
        return made

    def named_non_persistent_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The buffers that are not saved, as a method of transformers' models."""
        yield "inv_freq", self.get_buffer("inv_freq")


class _Loads:
    """A fake of transformers' classes of configurations."""

    @staticmethod
    def from_pretrained(_name: str, **_options: object) -> SimpleNamespace:
        """A configuration without images."""
        return SimpleNamespace(vision_config=None)


def make_model(owner: Any, bf16: bool, meta_init: bool) -> dict[str, float]:  # noqa: ANN401, FBT001 - a class, settings
    """Build a model, and return the number of bytes of an element of each kind of tensor."""
    fakes = {
        "AutoConfig": _Loads,
        "AutoModelForCausalLM": Network,
        "Version": lambda text: tuple(int(part) for part in text.split(".")),
        "transformers": SimpleNamespace(__version__="4.50.0"),  # before a patch of one model
    }
    with replaced_globals(owner.__init__.__globals__, **fakes):
        model = owner("model", bf16=bf16, meta_init=meta_init).model
    tensors = {"parameter": model.weight, "saved buffer": model.scale, "buffer": model.inv_freq}
    return {name: float(tensor.element_size()) for name, tensor in tensors.items()}


def _made() -> Boundary:
    names = ("parameter", "saved buffer", "buffer")
    return one_call(
        path=PATH,
        stage="batch",
        call=make_model,
        name="made",
        arguments={"owner": Constant(Function(MODEL)), **knobs("bf16", "meta_init")},
        produced_by={"meta_init": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={f"bytes of a {name}": Output("", "bytes", at=Use("made")[name], form=Number()) for name in names},
        settings={
            "bfloat16": {"bf16": True, "meta_init": False},
            "float32": {"bf16": False, "meta_init": False},
        },
        claims=_INERT,
        reach="FSDP on several ranks, with untied embeddings; trainer.bf16 (the default) for the reference",
    )

"""The reference policy that TRL's trainers create for a policy that is passed as a model: it must be that policy."""

import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO
from rl_sentinel.adapters.trl.liger import layers_unchanged
from rl_sentinel.adapters.trl.preference_trainers import configuration_of, default_rows
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.tiny_trainer import RowRewards, make_model, make_tokenizer
from rl_sentinel.core.batch import Batch, take_positions, take_rows
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

DPO = "trl.trainer.dpo_trainer.DPOTrainer"
KTO = ("trl.trainer.kto_trainer.KTOTrainer", "trl.experimental.kto.kto_trainer.KTOTrainer")

#: A reference that is neither absent nor an argument.
_CREATED = re.compile(r"self\.ref_model = [\w.]+\(")

#: Maximum number of tokens of the row that is compared; a constructor takes a second.
_TOKENS = 2

_CLAIMS = claims(
    "dpo_trainer.py, DPOTrainer, docstring of ref_model: by default the initial policy corresponding to model, i.e. "
    "the model state before training starts; grpo_trainer.py, __init__: with PEFT, the adapter is disabled to revert "
    "to the initial model",
    conserves=True,
)
_PRODUCED = "docs/source: model is a path, or a loaded model, for example one that another trainer has just trained"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the constructors that create a reference for a model."""
    for path in (GRPO, RLOO, DPO, trainer_path(target, *KTO)):
        if target.has(path) and not target.fails(path) and _creates(target.find(path)):
            yield from bindable(target, _boundary(path))


def _creates(trainer: Any) -> bool:  # noqa: ANN401 - a class of the target
    """Whether the constructor takes one model and creates its reference; early online trainers are given both."""
    given = inspect.signature(trainer).parameters
    return bool(_CREATED.search(source_of(trainer.__init__))) and "ref_policy" not in given


def reference_of(trainer: Callable[..., Any], rows: list[list[float]]) -> dict[str, list[Tensor]]:
    """Build a trainer with a model whose weights have doubled since it was loaded; return those of its reference."""
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    online = "reward_funcs" in inspect.signature(trainer).parameters
    args, _ = configuration_of(trainer, {"beta": 0.1, **({"num_generations": 2} if online else {})})
    more = {"reward_funcs": [RowRewards("first", 1.0)]} if online else {}
    model, numbers = make_model(), torch.tensor([x for row in rows for x in row])
    with tempfile.TemporaryDirectory() as folder, layers_unchanged():
        set_weights(model, numbers / 2)
        model.save_pretrained(folder)
        model.name_or_path = model.config._name_or_path = folder  # noqa: SLF001 - as transformers does when it loads
        set_weights(model, numbers)
        built = trainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list([{"prompt": "w1"}] * 2 if online else default_rows(trainer)),
            processing_class=make_tokenizer(),
            **more,
        )
    weights = built.ref_model.lm_head.weight.detach().flatten()[: len(numbers)].clone()
    return {"rows": list(weights.split([len(row) for row in rows]))}


def set_weights(model: Any, numbers: Tensor) -> None:  # noqa: ANN401 - a model of transformers
    """Set the first weights of the output layer."""
    with torch.no_grad():
        model.lm_head.weight.flatten()[: len(numbers)] = numbers


def one_row(batch: Batch) -> Batch:
    """The first :data:`_TOKENS` tokens of the first row."""
    first = take_rows(batch, torch.arange(1))
    return take_positions(first, torch.arange(_TOKENS)) if first.width > _TOKENS else first


def _boundary(path: str) -> Boundary:
    step = Step(
        call=reference_of,
        name="reference",
        arguments={"trainer": Constant(Function(path)), "rows": EachRow(RowTokens("ref_logprob"))},
        remembered=True,
        produced_by={"rows": _PRODUCED},
    )
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        outputs={"ref_logprob": Output("B T", "nats", "ref_logprob", at=Use("reference")["rows"], form=Ragged())},
        settings={"reference of a model": {}},
        claims=_CLAIMS,
        reach="model passed as a loaded model, whose weights differ from those at its path; beta above 0, no PEFT",
        requires=(no_empty_response,),
        domain=one_row,
    )

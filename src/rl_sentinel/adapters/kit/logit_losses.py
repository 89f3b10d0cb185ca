"""Losses that take logits of the response tokens, or of whole sequences, which the loss itself shifts by one."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import AfterPrompt, Padded
from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import (
    PER_TOKEN,
    accepts,
    all_codecs,
    change_codecs,
    domain_probe,
    logprob_gradient,
)
from rl_sentinel.adapters.kit.number_trial import fits_formula
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.sequence_model import InputIds, PolicyLogits, SequenceMask
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

#: A gradient below this is 0.
_NEAR = 1e-9

#: Codec of logits or tokens -> the text of its binding.
_TEXTS: Mapping[Codec, str] = {
    codec_of(text): text
    for text in (
        *("response_logits", "sequence_logits", "response_labels", "labels", "completion_ids", "input_ids"),
        *("response_targets", "targets"),
    )
}


def with_logit_layout(
    target: Target, arguments: Arguments, bind: Collection[str], fitted: Callable[[Arguments], Boundary]
) -> Boundary:
    """The boundary whose logits have the positions that the loss expects.

    Logits ``[B, T, V]`` of the response are tried, and logits ``[B, P + T, V]`` of whole sequences, in which position i
    predicts token i + 1. The first layout with which the loss computes its formula is chosen; without one, the first
    with which it has a gradient at exactly the trained tokens; without either, the usual layout, although it may fail.
    The names ``labels`` and ``input_ids`` mean whole sequences, as in transformers.

    Args:
        target: where the function is looked up.
        arguments: its arguments.
        bind: the parameters that the user binds; if logits or tokens are among them, no other layout is tried.
        fitted: builds the boundary for given arguments.

    Raises:
        Unbindable: if the loss is right only if ``labels`` or ``input_ids`` have only response tokens.
    """
    usual = fitted(arguments)
    paths = {path: codec for path, codec in codec_paths(arguments.codecs) if isinstance(codec, PolicyLogits | InputIds)}
    logits = [codec for codec in paths.values() if isinstance(codec, PolicyLogits)]
    if not logits or {path.partition(".")[0] for path in paths} & set(bind):
        return usual
    tried = [(usual, arguments)]
    if not (accepts(target, usual) and fits_formula(target, usual)):
        tried += [(fitted(other), other) for other in _others(arguments)]
    accepted = [(boundary, chosen) for boundary, chosen in tried if accepts(target, boundary)]
    # A faulty loss does not fit its formula in any layout, but in the right one it reads the trained tokens.
    for is_right in (fits_formula, _reads_trained_tokens):
        for boundary, chosen in accepted:
            if is_right(target, boundary):
                _require_sequences(arguments, chosen)
                note = () if chosen is arguments else (_note(arguments, chosen),)
                return replace(boundary, notes=(*boundary.notes, *note))
    # If no layout is right, the failure with the usual layout is reported.
    return usual


def _others(arguments: Arguments) -> Iterator[Arguments]:
    """The arguments with the other kind of logits: of the response, or of whole sequences.

    For whole sequences, further variants have other token columns as whole sequences, too.
    """
    usual, other = arguments.codecs, change_codecs(arguments.codecs, _exchanged)
    whole, response = (other, usual) if _of_response(usual) else (usual, other)
    changes = (_mask_of_sequence, _mask_and_log_probs_of_sequence, _columns_of_sequence)
    for codecs in (whole, *(change_codecs(whole, change) for change in changes), response):
        if codecs == usual:
            continue
        changed = {p for (p, one), (_, two) in zip(codec_paths(usual), codec_paths(codecs), strict=True) if one != two}
        open_axes = {path: column for path, column in arguments.open_axes.items() if path not in changed}
        yield replace(arguments, codecs=codecs, open_axes=open_axes)


def _of_response(codecs: Mapping[str, Codec]) -> bool:
    return any(isinstance(codec, PolicyLogits) and codec.response_only for codec in all_codecs(codecs.values()))


def _exchanged(codec: Codec) -> Codec:
    """The codec for whole sequences instead of responses, or the reverse, if it holds logits, tokens or masks."""
    if isinstance(codec, PolicyLogits | InputIds | SequenceMask):
        return replace(codec, response_only=not codec.response_only)
    return codec


def _mask_of_sequence(codec: Codec) -> Codec:
    return SequenceMask("trained") if isinstance(codec, Column) and codec.name == "mask" else codec


def _mask_and_log_probs_of_sequence(codec: Codec) -> Codec:
    """The codec of a mask or of a padded column of tokens, changed to whole sequences; others are unchanged.

    An advantage is unchanged too, because it may be one number per response.
    """
    return codec if isinstance(codec, Column) and codec.name == "advantage" else _columns_of_sequence(codec)


def _columns_of_sequence(codec: Codec) -> Codec:
    """The codec; a mask or a padded column of tokens gets the prompt in front."""
    codec = _mask_of_sequence(codec)
    padded = isinstance(codec, Column) and codec.name in PER_TOKEN and type(codec.form) is Padded
    return replace(codec, form=AfterPrompt()) if padded else codec  # type: ignore[type-var]  # a Column, as asked


def _reads_trained_tokens(target: Target, boundary: Boundary) -> bool:
    """Whether the loss has a gradient at the trained tokens and at no others."""
    batch = domain_probe(boundary)
    near = with_columns(batch, old_logprob=batch.logprob - 0.01)  # no ratio is clipped
    try:
        gradient = logprob_gradient(target, boundary, near, near.advantage)
    except Exception:  # noqa: BLE001 - a loss without a gradient is judged by the laws
        return False
    return torch.equal(gradient.abs() > _NEAR, near.mask)


def _require_sequences(arguments: Arguments, right: Arguments) -> None:
    """Raise an error if parameters with names of whole sequences get only the tokens of responses.

    Raises:
        Unbindable: names the logits and the parameters with such names.
    """
    if _of_response(arguments.codecs) or not _of_response(right.codecs):
        return
    texts = _texts(right)
    names, bind = " and ".join(texts), ", ".join(f'"{path}": "{text}"' for path, text in texts.items())
    raise Unbindable(
        f"the loss is right only if {names} are aligned by position, but a model's logits at position t predict token "
        f"t + 1: shift the logits in the function, or state that its caller does so with bind={{{bind}}}"
    )


def _texts(arguments: Arguments) -> dict[str, str]:
    """Path -> the text of its binding, for logits and tokens."""
    return {path: _TEXTS[codec] for path, codec in codec_paths(arguments.codecs) if codec in _TEXTS}


def _note(usual: Arguments, chosen: Arguments) -> str:
    if _of_response(usual.codecs) == _of_response(chosen.codecs):
        return "columns of tokens were passed for whole sequences, with a token of the prompt in front"
    texts = ", ".join(f'"{path}": "{text}"' for path, text in _texts(chosen).items())
    return f"logits and tokens of whole sequences were passed, which the loss shifts by one: bind={{{texts}}}"

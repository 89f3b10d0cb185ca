"""Functions that are right only for one kind of caller: ask the user which caller they have."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on
from rl_sentinel.adapters.kit.masked_value import is_zero_off_mask, zero_off_mask
from rl_sentinel.adapters.kit.number_trial import fits_formula
from rl_sentinel.adapters.kit.prompt_groups import (
    BY_POSITION,
    equal_groups,
    fixed_groups,
    one_prompt,
    strided_groups,
    with_strided_groups,
)
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.user_layouts import Domains, GroupSize, PromptCount
from rl_sentinel.adapters.kit.user_results import CallFailed
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import STATED, Claims, Said, claims, value_of
from rl_sentinel.core.codec import Codec


def with_unstated_choice(
    target: Target, boundary: Boundary, codecs: Mapping[str, Codec], stated: Iterable[str]
) -> Boundary:
    """Mark the boundary as undecided, or add a note, if only the user knows whether its function is right.

    The formula of an undecided boundary is not compared.

    A function without a parameter that tells prompts apart may be called once per prompt. In that case a mean over
    all rewards is right, otherwise it is a fault. Only the user knows which case applies.

    Args:
        target: where the function is looked up.
        boundary: its boundary; the function may not compute the formula of the boundary.
        codecs: the codecs of its parameters.
        stated: the parameters, or keys such as ``batch.rewards``, whose axes the user binds.
    """
    if boundary.stage == "policy-loss":
        return _with_width(target, boundary)
    if boundary.stage != "advantage" or boundary.claims.algorithm is None or fits_formula(target, boundary):
        return boundary
    ways = (_of_one_prompt, _of_masked_values, _of_adjacent_responses)
    if changed := next((one for way in ways if (one := way(target, boundary, codecs, stated))), None):
        return changed
    notes = [*_of_other_order(target, boundary, codecs)] or [*_of_batch_deviation(target, boundary)]
    return replace(boundary, notes=(*boundary.notes, *notes))


def _of_one_prompt(
    target: Target, boundary: Boundary, codecs: Mapping[str, Codec], stated: Iterable[str]
) -> Boundary | None:
    """The undecided boundary, if the function is right for a caller that calls it once per prompt; otherwise None."""
    if "group" in boundary.reads or value_of(boundary.claims.scope) != "group":
        return None
    domain = Domains((one_prompt, *([boundary.domain] if boundary.domain else [])))
    rewards = [path for path, codec in codec_paths(codecs) if {"reward", "token_reward"} & codec.columns]
    if not rewards or rewards[0] in stated or not fits_formula(target, replace(boundary, domain=domain)):
        return None
    why = (
        f"the function computes {value_of(boundary.claims.algorithm)} only for one prompt, and nothing says how many "
        f'prompts a call has: state bind={{"{rewards[0]}": "reward[K]"}} for one prompt, "reward[B]" for several'
    )
    return replace(boundary, claims=_without_siblings(boundary), undecided=why)


def _of_adjacent_responses(
    target: Target, boundary: Boundary, codecs: Mapping[str, Codec], stated: Iterable[str]
) -> Boundary | None:
    """The undecided boundary, if the function is right only for adjacent responses; otherwise None.

    This is tried if the name of a parameter, but not the user, says that the responses are strided.
    """
    sizes = [path for path, codec in codec_paths(codecs) if isinstance(codec, GroupSize) and codec.strided]
    if not sizes or sizes[0] in stated:
        return None
    parts = boundary.domain.parts if isinstance(boundary.domain, Domains) else ()
    adjacent = Domains(tuple(equal_groups if part is strided_groups else part for part in parts))
    if not fits_formula(target, replace(boundary, domain=adjacent, requires=BY_POSITION)):
        return None
    why = (
        f"the function computes {value_of(boundary.claims.algorithm)} only if responses of a prompt are adjacent: "
        f'state bind={{"{sizes[0]}": "group_size"}} if they are, "strided_group_size" if they are G rows apart'
    )
    return replace(boundary, claims=_without_siblings(boundary), undecided=why)


def _without_siblings(boundary: Boundary) -> Claims:
    """The claims of a boundary, without the claims that compare responses of a prompt."""
    return replace(boundary.claims, algorithm=None, scope=None, baseline=None, grouping=None)


def _of_batch_deviation(target: Target, boundary: Boundary) -> Iterator[str]:
    """A note if the function divides by the standard deviation of the whole batch."""
    of_batch = replace(boundary.claims, deviation_of=Said("batch", STATED))
    if boundary.claims.deviation_of is None and fits_formula(target, replace(boundary, claims=of_batch)):
        yield (
            f"the function computes {value_of(boundary.claims.algorithm)} with the standard deviation of the whole "
            'batch: if that is intended, state claims={"deviation-of": "batch"}, or --claim deviation-of=batch on the '
            "command line"
        )


def _of_other_order(target: Target, boundary: Boundary, codecs: Mapping[str, Codec]) -> Iterator[str]:
    """A note if the function is right for responses of a prompt that are not adjacent."""
    sizes = {path: codec for path, codec in codec_paths(codecs) if isinstance(codec, GroupSize)}
    other = with_strided_groups(boundary)
    fixed = fixed_groups(boundary)
    if other is None or not (fixed or sizes) or not fits_formula(target, other):
        return
    if fixed:
        stated = f'numbers={{"strided_group_size": {fixed.size}}}'
    else:
        path, codec = next(iter(sizes.items()))
        word = "strided_num_prompts" if isinstance(codec, PromptCount) else "strided_group_size"
        stated = f'bind={{"{path}": "{word}"}}'
    yield (
        f"the function computes {value_of(boundary.claims.algorithm)} if the responses of a prompt are G rows apart, "
        f"for G prompts; in the checks they are adjacent: if your trainer orders rows so, state {stated}"
    )


def _of_masked_values(
    target: Target, boundary: Boundary, codecs: Mapping[str, Codec], stated: Iterable[str]
) -> Boundary | None:
    """The undecided boundary, if the function is right for a caller that sets values of untrained tokens to 0.

    Otherwise None.
    """
    values = [path for path, codec in codec_paths(codecs) if codec.columns == {"value"}]
    if not values or values[0] in stated or not {"value", "mask"} <= boundary.reads:
        return None
    zeroed = Domains((*([boundary.domain] if boundary.domain else []), zero_off_mask))
    other = replace(boundary, domain=zeroed, requires=(*boundary.requires, is_zero_off_mask))
    if not fits_formula(target, other):
        return None
    why = (
        f"the function computes {value_of(boundary.claims.algorithm)} only if values are 0 at untrained tokens, and "
        f'nothing says whether the caller sets them to 0: state bind={{"{values[0]}": "masked_value"}} if the caller '
        'does, "value[B T]" if not'
    )
    return replace(other, claims=replace(boundary.claims, algorithm=None), undecided=why)


def _with_width(target: Target, boundary: Boundary) -> Boundary:
    """Claim the width as the divisor and add a note, if a Dr. GRPO loss divides by the width, which padding changes."""
    stated, width = boundary.claims.aggregation, "sequence-mean-token-sum-by-width"
    if value_of(stated) != "token-sum-by-constant" or boundary.claims.normalizer or boundary.claims.algorithm is None:
        return boundary
    by_width = boundary.claims | claims(STATED, aggregation=width, normalizer="width")
    if "length" in boundary.settings["default"] or not fits_formula(target, replace(boundary, claims=by_width)):
        return boundary
    note = "the loss divides by the width of the batch, padding included: pad every batch to the same width"
    return replace(boundary, claims=by_width, notes=(*boundary.notes, note))


def with_rows_that_train(target: Target, boundary: Boundary) -> Boundary:
    """Limit the boundary to batches without untrained rows, with a note, if its function crashes on such rows only.

    A refusal in words is left to the laws.
    """
    batch = domain_probe(boundary)
    mask = batch.mask.clone()
    mask[0] = False
    dead = with_columns(batch, mask=mask)
    dead = dead if boundary.domain is None else boundary.domain(dead)
    if "mask" not in boundary.reads or bool(dead.live.all()):
        return boundary
    try:
        outputs_on(target, boundary, batch)
    except Exception:  # noqa: BLE001 - a function that always fails is reported by the audit
        return boundary
    try:
        outputs_on(target, boundary, dead)
    except CallFailed as why:
        failure = str(why).partition("; passed")[0]
        note = (
            f"{failure} on a row without a trained token; such rows were left out, because your code may never pass one"
        )
        return replace(boundary, requires=(*boundary.requires, every_row_trains), notes=(*boundary.notes, note))
    except Exception:  # noqa: BLE001 - a refusal in words is judged by the laws
        return boundary
    return boundary

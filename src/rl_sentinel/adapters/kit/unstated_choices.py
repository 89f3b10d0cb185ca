"""What a user has not stated about a function, and its result gives away: one prompt per call, another deviation."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.masked_value import MaskedValue, zero_off_mask
from rl_sentinel.adapters.kit.number_trial import fits_formula
from rl_sentinel.adapters.kit.prompt_groups import fixed_groups, one_prompt, with_strided_groups
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.user_layouts import Domains, GroupSize
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import STATED, Said, claims, value_of
from rl_sentinel.core.codec import Codec


def with_unstated_choice(
    target: Target, boundary: Boundary, codecs: Mapping[str, Codec], stated: Iterable[str]
) -> Boundary:
    """The boundary, undecided where one statement more makes a sound function of a wrong one, or with a note on it.

    A function without a parameter that tells prompts apart may be called once per prompt. Then a mean over all its
    rewards is right, and else it is a fault; only the user knows.

    Args:
        target: where the function is looked up.
        boundary: its boundary, whose formula it may miss.
        codecs: the codecs of its parameters.
        stated: the parameters, or keys of them as ``batch.rewards``, whose axes the user binds.
    """
    if boundary.stage == "policy-loss":
        return _with_width(target, boundary)
    if boundary.stage != "advantage" or boundary.claims.algorithm is None or fits_formula(target, boundary):
        return boundary
    if "group" not in boundary.reads and value_of(boundary.claims.scope) == "group":
        domain = Domains((one_prompt, *([boundary.domain] if boundary.domain else [])))
        rewards = [path for path, codec in codec_paths(codecs) if {"reward", "token_reward"} & codec.columns]
        if rewards and rewards[0] not in stated and fits_formula(target, replace(boundary, domain=domain)):
            return _undecided(boundary, rewards[0])
    if notes := [*_of_other_order(target, boundary, codecs), *_of_values_off_mask(target, boundary, codecs)]:
        return replace(boundary, notes=(*boundary.notes, *notes))
    of_batch = replace(boundary.claims, deviation_of=Said("batch", STATED))
    if boundary.claims.deviation_of is None and fits_formula(target, replace(boundary, claims=of_batch)):
        note = (
            f"it computes {value_of(boundary.claims.algorithm)} with the standard deviation of the whole batch: if "
            'that is intended, state claims={"deviation-of": "batch"}, or --claim deviation-of=batch on the command '
            "line"
        )
        return replace(boundary, notes=(*boundary.notes, note))
    return boundary


def _of_other_order(target: Target, boundary: Boundary, codecs: Mapping[str, Codec]) -> Iterator[str]:
    """A note if the function is right for responses of a prompt that are not adjacent."""
    sizes = [path for path, codec in codec_paths(codecs) if isinstance(codec, GroupSize)]
    other = with_strided_groups(boundary)
    if other is None or not fits_formula(target, other):
        return
    fixed = fixed_groups(boundary)
    stated = (
        f'numbers={{"strided_group_size": {fixed.size}}}' if fixed else f'bind={{"{sizes[0]}": "strided_group_size"}}'
    )
    yield (
        f"it computes {value_of(boundary.claims.algorithm)} if the responses of a prompt are as many rows apart as "
        f"there are prompts; they are adjacent here: if your trainer orders them so, state {stated}"
    )


def _of_values_off_mask(target: Target, boundary: Boundary, codecs: Mapping[str, Codec]) -> Iterator[str]:
    """A note if the function is right for a caller that sets values to 0 at untrained tokens."""
    values = [p for p, codec in codec_paths(codecs) if codec.columns == {"value"} and type(codec) is not MaskedValue]
    if not values or not {"value", "mask"} <= boundary.reads:
        return
    zeroed = Domains((*([boundary.domain] if boundary.domain else []), zero_off_mask))
    if fits_formula(target, replace(boundary, domain=zeroed)):
        yield (
            f"it computes {value_of(boundary.claims.algorithm)} if values are 0 at untrained tokens: if your trainer "
            f'sets them so, state bind={{"{values[0]}": "masked_value"}}'
        )


def _with_width(target: Target, boundary: Boundary) -> Boundary:
    """The loss of Dr. GRPO with a note if its constant is the width of the batch, which padding changes."""
    stated, width = boundary.claims.aggregation, "sequence-mean-token-sum-by-width"
    if value_of(stated) != "token-sum-by-constant" or boundary.claims.normaliser or boundary.claims.algorithm is None:
        return boundary
    by_width = boundary.claims | claims(STATED, aggregation=width, normaliser="width")
    if "length" in boundary.settings["default"] or not fits_formula(target, replace(boundary, claims=by_width)):
        return boundary
    note = "the loss divides by the width of the batch, padding included: pad every batch to the same width"
    return replace(boundary, claims=by_width, notes=(*boundary.notes, note))


def _undecided(boundary: Boundary, name: str) -> Boundary:
    """The boundary without claims that compare responses of a prompt."""
    why = (
        f"it computes {value_of(boundary.claims.algorithm)} only for one prompt, and nothing says how many a call has: "
        f'state bind={{"{name}": "reward[K]"}} for one, "reward[B]" for several'
    )
    left = replace(boundary.claims, algorithm=None, scope=None, baseline=None, grouping=None)
    return replace(boundary, claims=left, undecided=why)

"""The boundary of a user's function: the output of its stage, and the batches that suit its layouts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rl_sentinel.adapters.kit.codecs import CumulativeLengths, Lengths, ResponseMask
from rl_sentinel.adapters.kit.forms import AfterPrompt, Packed, Padded, Ragged
from rl_sentinel.adapters.kit.layout_trial import PER_TOKEN, all_codecs
from rl_sentinel.adapters.kit.logit_kernels import FORMULAS
from rl_sentinel.adapters.kit.masked_value import MaskedValue, is_zero_off_mask, zero_off_mask
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.prompt_groups import FixedGroups, grouping
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.sequence_model import SequenceMask, uncertain
from rl_sentinel.adapters.kit.user_layouts import (
    Domains,
    FunctionCodec,
    Grouped,
    GroupedTokens,
    PromptList,
    full_width,
    last_token_trains,
    one_advantage_per_row,
    whole_responses,
)
from rl_sentinel.adapters.kit.user_results import NamedOutput
from rl_sentinel.adapters.kit.wrapped_forms import is_time_first, of_one_prompt
from rl_sentinel.adapters.user_errors import explain_error
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.claims import claims as said
from rl_sentinel.core.codec import Codec, Form
from rl_sentinel.formulas.policy_losses import OF_RESPONSES


@dataclass(frozen=True, slots=True)
class _Kind:
    """The output of a stage, and the ``word`` that names this output in a returned dict."""

    stage: Stage
    word: str
    output: Output


#: Value of ``--stage`` -> the output of the stage.
STAGES: Mapping[str, _Kind] = {
    "advantage": _Kind("advantage", "advantage", Output("B T", "reward", "advantage")),
    "policy-loss": _Kind("policy-loss", "loss", Output("", "", "loss")),
    "value-loss": _Kind("value-loss", "loss", Output("", "", "loss")),
    "kl": _Kind("kl", "kl", Output("B T", "nats", "kl")),
    "aggregate": _Kind("aggregate", "loss", Output("", "", "loss")),
    "reward": _Kind("reward", "reward", Output("B T", "reward", "token_reward")),
    "normalize": _Kind("normalize", "reward", Output("B T", "reward", "reward")),
    "weight": _Kind("correct", "weight", Output("B T", "ratio", "weight")),
    "keep": _Kind("correct", "mask", Output("B T", "", "keep")),
    "logprob": _Kind("batch", "logprob", Output("B T", "nats", "logprob")),
    "entropy": _Kind("batch", "entropy", Output("B T", "nats", "entropy")),
}

#: Stages whose output has a single definition.
DEFINED = ("logprob", "entropy")

#: Stages whose functions are passed full rows, if tokens are padded and no argument has a mask or lengths.
_WITHOUT_MASK = frozenset({"advantage", "policy-loss", "value-loss", "aggregate"})

#: Note on a loss without a mask, if all tokens of its rows are trained.
_UNMASKED = "no parameter says which tokens are trained, so all tokens of all rows count as trained"


@dataclass(frozen=True, slots=True)
class _Layouts:
    """The layouts of a function's arguments; ``codecs`` includes the codecs in dicts and objects."""

    codecs: Sequence[Codec]

    @property
    def forms(self) -> list[Form]:
        """The forms of all codecs that have a form."""
        return [codec.form for codec in self.codecs if hasattr(codec, "form")]

    @property
    def unpadded(self) -> bool:
        """Whether tokens of responses are packed, or in a list per response."""
        return any(isinstance(form, Packed | Ragged) for form in self.forms)

    @property
    def padded(self) -> bool:
        """Whether tokens of responses are padded to one width."""
        forms = any(isinstance(getattr(form, "inner", form), Padded | GroupedTokens) for form in self.forms)
        return forms or self.modeled or any(isinstance(c, FunctionCodec) and c.of & PER_TOKEN for c in self.codecs)

    @property
    def masked(self) -> bool:
        """Whether an argument says which tokens are trained."""
        return any("mask" in codec.columns for codec in self.codecs)

    @property
    def measured(self) -> bool:
        """Whether an argument says how long each response is, or which tokens are trained."""
        kinds = CumulativeLengths | Lengths | ResponseMask | SequenceMask
        return self.masked or any(isinstance(codec, kinds) for codec in self.codecs)

    @property
    def modeled(self) -> bool:
        """Whether an argument is a model."""
        return any(codec.modeled for codec in self.codecs)

    @property
    def masked_values(self) -> bool:
        """Whether an argument has values that are 0 at untrained tokens."""
        return any(isinstance(codec, MaskedValue) for codec in self.codecs)

    @property
    def outcome_at_last_token(self) -> bool:
        """Whether an argument has the outcome at the last token; a function in ``bind`` may have it there."""
        return any(isinstance(c, TokenRewards) or {"reward", "token_reward"} <= c.columns for c in self.codecs)

    @property
    def advantage_of_response(self) -> bool:
        """Whether the advantage is one number per response."""
        return any(isinstance(codec, PerResponse) and codec.name == "advantage" for codec in self.codecs)


def user_boundary(  # noqa: PLR0913 - the parts of a boundary
    path: str,
    stage: str,
    claimed: Claims,
    settings: Mapping[str, Scalar],
    groups: FixedGroups | None,
    codecs: Mapping[str, Codec],
) -> Boundary:
    """The boundary of the function at ``path``, with these codecs for its parameters.

    Args:
        path: dotted path of the function.
        stage: a key of :data:`STAGES`.
        claimed: the claims about it.
        settings: the numbers of its formula.
        groups: the groups of a function in which the number of responses per prompt is fixed.
        codecs: the codec of each parameter.
    """
    kind, layouts = STAGES[stage], _Layouts(list(all_codecs(codecs.values())))
    claimed |= _implied_claims(stage, claimed)
    group_domain, group_conditions = grouping(layouts.codecs, groups)
    domain = _domain(kind.stage, claimed, layouts, group_domain)
    output = replace(_output(kind, claimed), at=Use("result"), form=_result_form(stage, layouts))
    boundary = one_call(
        path=path,
        stage=kind.stage,
        call=path,
        name="result",
        arguments=codecs,
        explain=partial(explain_error, codecs),
        outputs={kind.output.quantity: output},
        settings={"default": settings},
        claims=claimed,
        notes=(_UNMASKED,) if kind.word == "loss" and _trains_every_token(kind.stage, layouts) else (),
        requires=(*group_conditions, is_zero_off_mask) if layouts.masked_values else group_conditions,
        domain=Domains(domain) if domain else None,
        own=True,
    )
    by_position = groups is not None or any(of_one_prompt(form) for form in layouts.forms)
    return replace(boundary, reads=boundary.reads | {"group"}) if by_position else boundary


def _implied_claims(stage: str, claimed: Claims) -> Claims:
    """The claims that follow from the stage, and from the claimed KL of a reward."""
    if stage in DEFINED:
        word = STAGES[stage].word
        return said(f"stage {stage}", output_algorithms={word: FORMULAS[word]})
    if stage == "reward" and claimed.kl is not None:
        return said(claimed.kl.cite, algorithm=f"less {claimed.kl.value}")
    return Claims()


def _fills_the_width(stage: Stage, layouts: _Layouts) -> bool:
    """Whether rows must be full: at some stages, if no argument separates the padding of its tensors from tokens."""
    return stage in _WITHOUT_MASK and layouts.padded and not layouts.measured


def _trains_every_token(stage: Stage, layouts: _Layouts) -> bool:
    """Whether all tokens of the rows are trained, because no argument has padding or says which tokens are trained."""
    return not layouts.masked and (layouts.unpadded or _fills_the_width(stage, layouts))


def _domain(
    stage: Stage, claimed: Claims, layouts: _Layouts, group_domain: Sequence[Callable[[Batch], Batch]]
) -> tuple[Callable[[Batch], Batch], ...]:
    """The changes that fit a batch to the function, in order.

    Args:
        stage: the stage of its output.
        claimed: the claims about it.
        layouts: the layouts of its arguments.
        group_domain: the changes that fit the responses of each prompt.
    """
    one_advantage = stage == "policy-loss" and value_of(claimed.algorithm) in OF_RESPONSES
    changes = [
        (last_token_trains, layouts.outcome_at_last_token),
        (whole_responses, not layouts.masked and (layouts.unpadded or layouts.measured)),
        (full_width, _fills_the_width(stage, layouts)),
        *((change, True) for change in group_domain),
        (one_advantage_per_row, one_advantage or layouts.advantage_of_response),
        (zero_off_mask, layouts.masked_values),
        (uncertain, layouts.modeled),
    ]
    return tuple(change for change, is_needed in changes if is_needed)


def _result_form(stage: str, layouts: _Layouts) -> NamedOutput:
    """The form that reads the output from the function's result."""
    kind, forms = STAGES[stage], layouts.forms
    per_token = kind.output.axes == "B T"
    return NamedOutput(
        kind.word,
        per_token,
        decision=stage == "keep",
        packed=any(isinstance(x, CumulativeLengths | Lengths | Packed) for x in (*layouts.codecs, *forms)),
        grouped=any("group" in c.shapes for c in layouts.codecs) or any(isinstance(form, Grouped) for form in forms),
        sequences=any(isinstance(form, AfterPrompt) for form in forms),
        time_first=per_token and any(is_time_first(form) for form in forms),
        of_tokens=kind.stage == "kl",
        lists=layouts.unpadded or any(isinstance(form, PromptList) for form in forms),
    )


def _output(kind: _Kind, claimed: Claims) -> Output:
    """The output of a stage, with the kind of KL and the scope of a decision that the claims state."""
    if kind.stage == "kl" and claimed.algorithm:
        return replace(kind.output, quantity=f"kl.{claimed.algorithm.value}")
    if kind.stage == "correct" and claimed.scope:
        return replace(kind.output, scope=claimed.scope.value)
    return kind.output

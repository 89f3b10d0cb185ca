"""slime's agent sessions: the server samples each turn, and the session becomes training samples."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.http_fake import HttpFake
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import last_token_trains, no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions, knobs
from rl_sentinel.adapters.slime.rollout_fakes import Words
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.slime.trajectories import MANAGER, ROW, TURN, Session, append_row, empty_columns, with_turns
from rl_sentinel.adapters.slime.trajectories import MODULE as TRAJECTORY
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

MODULE = "slime.agent.adapters.common"
GENERATE, STATE, ADAPTER = f"{MODULE}.call_sglang_generate", f"{MODULE}.Session", f"{MODULE}.BaseAdapter"

#: Classes of early revisions whose sessions are merged to segments, and the function that makes samples of these.
EARLY_ADAPTERS = tuple(
    f"slime.agent.adapters.{module}.{name}Adapter"
    for module, name in (("openai", "OpenAI"), ("anthropic", "Anthropic"))
)
FAN_OUT, CHAIN, MERGE_ALL = f"{TRAJECTORY}.fan_out_sample_segments", f"{MODULE}.AdapterChain", "merge_turn_segments"

#: Setting -> the size of the context: larger than the session, just large enough for the last reply, or exceeded by the
#: prompt of one more turn, which is then empty.
LIMITS: Mapping[str, Settings] = {
    "default": {"full": False, "exceeded": False},
    "context is full": {"full": True, "exceeded": False},
    "context is exceeded": {"full": True, "exceeded": True},
}

_DOCS = (
    "agent/adapters/common.py, call_sglang_generate: the reply of the server as a turn, empty if the context is full; "
    "trajectory.py: replies are trained once, and prompts not"
)
_PRODUCER = (
    "slime/agent/adapters/common.py, _run_turn: the messages as token ids, call_sglang_generate, record_turn; "
    "examples/coding_agent_rl/generate.py: max_context_tokens of the session"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the session.

    There are no boundaries in revisions without an adapter that stores the trajectories or the turns of its sessions.
    """
    if target.has(FAN_OUT) and target.has(CHAIN) and target.has(f"{TRAJECTORY}.{MERGE_ALL}"):
        for adapter in EARLY_ADAPTERS:
            if target.has(f"{adapter}.finish_session") and not target.fails(adapter):
                yield from bindable(target, _early_session(adapter))
    if target.has(GENERATE) and target.has(f"{ADAPTER}.finish_session") and target.has(MANAGER):
        if why := target.fails(MODULE):
            yield Unbound(GENERATE, "batch", why)
        else:
            yield from bindable(target, _session())


class Replies(HttpFake):
    """A fake aiohttp. Its server samples one known reply, cut to the requested number of tokens."""

    def __init__(self, tokens: list[int], logprobs: list[float]) -> None:
        """Store the tokens and log-probs of the reply."""
        super().__init__()
        self.tokens, self.logprobs = tokens, logprobs

    async def json(self, **_options: object) -> dict[str, Any]:
        """The reply, in SGLang's format."""
        room = int(self.asked["sampling_params"]["max_new_tokens"])
        pairs = zip(self.logprobs, self.tokens, strict=True)
        scored = [(logprob, token, None) for logprob, token in pairs][:room]
        reason = "stop" if len(scored) == len(self.tokens) else "length"
        return {"text": "", "meta_info": {"output_token_logprobs": scored, "finish_reason": {"type": reason}}}


def run_sessions(  # noqa: PLR0913 - functions and classes of the target
    generate: Callable[..., Any],
    adapter: type,
    state: Callable[..., Any],
    manager: Callable[..., Any],
    sample: Callable[..., Any],
    rows: list[dict[str, Any]],
    full: bool,  # noqa: FBT001 - a setting
    exceeded: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[Any]]:
    """Sample the turns of each row in one session, and read the row from the training samples of the session."""
    columns = empty_columns()
    for number, row in enumerate(rows):
        name, turns = f"session-{number}", Session(row, retokenized=False)
        prompt, last = turns.turns[-1]
        limits = state(max_context_tokens=len(prompt) + len(last) if full else 0)
        if exceeded:
            turns.exceed()
        instance = bare_instance(adapter, tokenizer=Words(), sglang_url="server", manager=manager())
        instance.store, instance.inflight, instance.closed = {name: limits}, {}, set()
        messages: list[dict[str, Any]] = [{"role": "user", "content": "question"}]
        for place, (ids, at) in enumerate(turns.turns):
            server = Replies([row["tokens"][n] for n in at], [row["logprobs"][n] for n in at])
            with replaced_globals(generate.__globals__, aiohttp=server):
                turn = asyncio.run(generate(list(ids), limits, {}, adapter=instance, session_id=name))
            reply = {"role": "assistant", "content": f"reply {place}"}
            instance.manager.record_turn(name, turn=turn, prompt_messages=list(messages), response_message=reply)
            messages += [reply, {"role": "tool", "content": f"answer {place}"}]
        base = sample(index=number, group_index=0, prompt="question")
        append_row(
            columns, turns.read(asyncio.run(instance.finish_session(name, base_sample=base, reward=row["reward"])))
        )
    return columns


def run_early_sessions(  # noqa: PLR0913 - classes and a function of the target
    adapter: type,
    chain: Callable[..., Any],
    turn: Callable[..., Any],
    fan_out: Callable[..., Any],
    sample: Callable[..., Any],
    rows: list[dict[str, Any]],
    full: bool,  # noqa: FBT001 - a setting
    exceeded: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[Any]]:
    """Finish a session with the turns of each row, and read the row from the samples of the session's segments."""
    columns, state = empty_columns(), adapter.session_cls  # type: ignore[attr-defined]  # of the target
    for number, row in enumerate(rows):
        name, turns = f"session-{number}", Session(row, retokenized=False)
        prompt, last = turns.turns[-1]
        if exceeded:
            turns.exceed()
        recorded = [turns.record(turn, place) for place in range(len(turns.turns))]
        session = state(main=chain(turns=recorded), max_context_tokens=len(prompt) + len(last) if full else 0)
        instance = bare_instance(adapter, store={name: session}, inflight={}, closed=set())
        segments = asyncio.run(instance.finish_session(name))
        append_row(columns, turns.read(fan_out(sample(index=number), segments, row["reward"], Words())))
    return columns


def _early_session(adapter: str) -> Boundary:
    classes = {"adapter": adapter, "chain": CHAIN, "turn": TURN, "fan_out": FAN_OUT, "sample": SAMPLE}
    return _boundary(f"{adapter}.finish_session -> {FAN_OUT}", run_early_sessions, classes)


def _session() -> Boundary:
    classes = {"generate": GENERATE, "adapter": ADAPTER, "state": STATE, "manager": MANAGER, "sample": SAMPLE}
    return _boundary(f"{GENERATE} -> {ADAPTER}.finish_session", run_sessions, classes)


def _boundary(path: str, call: Callable[..., Any], classes: Mapping[str, str]) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=call,
        name="samples",
        arguments={**functions(**classes), "rows": EachRow(ROW), **knobs("full", "exceeded")},
        produced_by={"rows": _PRODUCER},
        outputs=row_outputs(Use("samples"), "rollout_logprob", "token", "mask", "reward"),
        settings=LIMITS,
        claims=claims(_DOCS, conserves=True),
        reach="agents that train through slime.agent.adapters",
        requires=(no_empty_response, last_token_trains),
        domain=with_turns,
    )

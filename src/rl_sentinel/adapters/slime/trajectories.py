"""slime's agent trajectories: from the turns of a session to its training samples."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import last_token_trains, no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions, knobs
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

MODULE = "slime.agent.trajectory"
TURN = f"{MODULE}.TurnRecord"
MANAGER = f"{MODULE}.TrajectoryManager"
#: The functions of releases before the manager: the turns of a session to a segment, and a segment to a sample.
MERGE, WRITE = f"{MODULE}.merge_turns", f"{MODULE}.write_segment_to_sample"

#: Tokens that no case has: the template's addition to a prompt, and the token of a reply that is tokenized again.
_QUESTION, _OTHER = 1_000_000, 1_000_001

#: The shortest response of three turns: replies of one token, with a token between them.
THREE_TURNS = 5

#: Setting -> how the prompts of later turns repeat earlier replies.
REPLAYS: Mapping[str, Settings] = {
    "replies repeated": {"retokenized": False, "fork_threshold": 1024},
    "a reply tokenized again": {"retokenized": True, "fork_threshold": 1024},
    "a reply tokenized again, forked": {"retokenized": True, "fork_threshold": 0},
}

_DOCS = (
    "agent/trajectory.py: turns become loss-masked training rows; replies are trained once, and prompts not; a reply "
    "that differs when it is tokenized again is masked or trained apart, earlier turns are untouched"
)
_PRODUCER = (
    "slime/agent/adapters/common.py, record_turn after each model call: prompt_ids are the tokens of all messages "
    "before it, output_ids and output_log_probs come from the engine; get_trajectory at the end of the session"
)


#: The inputs of a row: its prompt, its response as the engine returns it, and its reward.
ROW = Table(row_fields("prompt", "tokens", "mask", "logprobs", "reward"))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the samples of a session. Releases without the manager merge turns with a function."""
    if not target.has(TURN):
        return
    if why := target.fails(MODULE):
        yield Unbound(MANAGER, "batch", why)
    elif target.has(MANAGER):
        yield from bindable(target, _boundary(f"{MANAGER}.get_trajectory", manage, MANAGER, REPLAYS))
    elif target.has(MERGE) and target.has(WRITE):
        settings = {name: family for name, family in REPLAYS.items() if family["fork_threshold"]}
        yield from bindable(target, _boundary(MERGE, merge, MERGE, settings))


@dataclass(slots=True)
class Session:
    """The turns of one row: the prompt, then replies and tool results.

    ``turns`` has the prompt of each turn, and the positions of its reply in the response. ``optional`` has the
    positions of a reply that is tokenized again; these positions may be trained or not.
    """

    row: dict[str, Any]
    retokenized: bool
    turns: list[tuple[list[int], range]] = field(default_factory=list)
    optional: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Build the prompt of each turn. The last prompt may contain a different tokenization of the previous reply."""
        runs = [
            (bool(trained), list(at))
            for trained, at in groupby(range(len(self.row["mask"])), self.row["mask"].__getitem__)
        ]
        replies = [at for trained, at in runs if trained]
        conversation = [*self.row["prompt"], _QUESTION]
        for trained, at in runs:
            if trained:
                again = self.retokenized and len(replies) > 1 and at == replies[-2]
                self.turns.append((list(conversation), range(at[0], at[-1] + 1)))
                conversation += [*self.row["tokens"][at[0] : at[-1]], _OTHER if again else self.row["tokens"][at[-1]]]
                self.optional |= set(at) if again else set()
            else:
                conversation += [self.row["tokens"][place] for place in at]

    def exceed(self) -> None:
        """Append a turn without a reply; its prompt is one token longer than the session with its last reply."""
        prompt, at = self.turns[-1]
        self.turns.append(([*prompt, *(self.row["tokens"][n] for n in at), _QUESTION], range(0)))

    def record(self, turn: Callable[..., Any], number: int) -> Any:  # noqa: ANN401 - the target's class
        """One turn as the engine returned it, in the release's format."""
        prompt, at = self.turns[number]
        known = {one.name for one in fields(turn)}  # type: ignore[arg-type]  # a dataclass of the target
        columns = {
            "output_log_probs": [self.row["logprobs"][n] for n in at],
            "output_loss_mask": [1] * len(at),
        }
        output = [self.row["tokens"][n] for n in at]
        more = {name: column for name, column in columns.items() if name in known}
        return turn(prompt_ids=list(prompt), output_ids=output, finish_reason="stop", **more)

    def read(self, samples: list[Any]) -> dict[str, Any]:
        """The row, read from its samples.

        A token that may be trained or not keeps its values if no sample trains it. A token that is trained twice counts
        as untrained. The reward is infinite if the samples have different rewards.
        """
        first = len(self.row["prompt"]) + 1
        trained = dict[int, list[tuple[int, float]]]()
        context = dict[int, int]()
        for sample in samples:
            start = len(sample.tokens) - len(sample.loss_mask)
            logprobs = sample.rollout_log_probs or self.row["logprobs"][start - first :]
            for place, token in enumerate(sample.tokens[first:]):
                at = place + first - start
                if at >= 0 and sample.loss_mask[at]:
                    trained.setdefault(place, []).append((token, logprobs[at]))
                context[place] = token
        rewards = {float(sample.reward) for sample in samples}
        whole = [self._cell(place, trained.get(place, []), context.get(place, -1)) for place in range(self._length)]
        return {
            "tokens": torch.tensor([token for token, _, _ in whole]),
            "masks": torch.tensor([mask for _, mask, _ in whole]),
            "logprobs": torch.tensor([logprob for _, _, logprob in whole]),
            "rewards": rewards.pop() if len(rewards) == 1 else float("inf"),
        }

    @property
    def _length(self) -> int:
        return len(self.row["tokens"])

    def _cell(self, position: int, trained: list[tuple[int, float]], context: int) -> tuple[int, bool, float]:
        """Token, mask and log-prob at one position. A reply that is tokenized again may be trained or not."""
        cell = self.row["tokens"][position], bool(self.row["mask"][position]), self.row["logprobs"][position]
        if len(trained) == 1:
            return trained[0][0], True, trained[0][1]
        return cell if position in self.optional and not trained else (context, False, cell[2])


def manage(  # noqa: PLR0913 - the classes of the target, and the settings
    entry: Callable[..., Any],
    turn: Callable[..., Any],
    sample: Callable[..., Any],
    rows: list[dict[str, Any]],
    retokenized: bool,  # noqa: FBT001 - a setting
    fork_threshold: int,
) -> dict[str, list[Any]]:
    """Record the turns of each row as one session, and read the row from the samples of the session."""
    columns = empty_columns()
    for number, row in enumerate(rows):
        manager, session = entry(fork_threshold_tokens=fork_threshold), Session(row, retokenized)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "question"}]
        for place in range(len(session.turns)):
            reply = {"role": "assistant", "content": f"reply {place}"}
            manager.record_turn(
                f"session-{number}",
                turn=session.record(turn, place),
                prompt_messages=list(messages),
                response_message=reply,
            )
            messages += [reply, {"role": "tool", "content": f"answer {place}"}]
        base = sample(index=number, group_index=0, prompt="question")
        append_row(
            columns, session.read(manager.get_trajectory(f"session-{number}", base_sample=base, reward=row["reward"]))
        )
    return columns


def merge(  # noqa: PLR0913 - as manage
    entry: Callable[..., Any],
    turn: Callable[..., Any],
    sample: Callable[..., Any],
    rows: list[dict[str, Any]],
    retokenized: bool,  # noqa: FBT001 - a setting
    fork_threshold: int,  # noqa: ARG001 - of later releases
) -> dict[str, list[Any]]:
    """Merge the turns of each row into a segment, write the segment to a sample, and read the row from the sample."""
    write: Any = inspect.getmodule(entry).write_segment_to_sample  # type: ignore[union-attr]  # a module of the target
    columns, tokenizer = empty_columns(), SimpleNamespace(decode=lambda _ids, **_options: "")
    for number, row in enumerate(rows):
        session, one = Session(row, retokenized), sample(index=number)
        segment = entry([session.record(turn, place) for place in range(len(session.turns))])
        write(one, segment, row["reward"], tokenizer)
        append_row(columns, session.read([one]))
    return columns


def with_turns(batch: Batch) -> Batch:
    """Train the last token of each row; besides, in rows with room for three turns, exactly every other token."""
    places = torch.arange(batch.width).expand_as(batch.mask)
    last = places == (batch.length - 1).unsqueeze(1)
    turns = torch.where((batch.length >= THREE_TURNS).unsqueeze(1), places % 2 == 0, batch.mask)
    return with_columns(batch, mask=(turns | last) & batch.valid)


def empty_columns() -> dict[str, list[Any]]:
    """Empty columns."""
    return {"tokens": [], "masks": [], "logprobs": [], "rewards": []}


def append_row(columns: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    """Append the values of a row to the columns."""
    for name, value in row.items():
        columns[name].append(value)


def _boundary(path: str, call: Callable[..., Any], entry: str, settings: Mapping[str, Settings]) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=call,
        name="samples",
        arguments={
            **functions(entry=entry, turn=TURN, sample=SAMPLE),
            "rows": EachRow(ROW),
            **knobs("retokenized", "fork_threshold"),
        },
        produced_by={"rows": _PRODUCER},
        outputs=row_outputs(Use("samples"), "rollout_logprob", "token", "mask", "reward"),
        settings=settings,
        claims=claims(_DOCS, conserves=True),
        reach="agents that train through slime.agent",
        requires=(no_empty_response, last_token_trains),
        domain=with_turns,
    )

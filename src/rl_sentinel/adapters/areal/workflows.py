"""AReaL's rollout workflows: from responses of the engine to tokens, masks, log-probs, versions and a reward."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

CONFIG = "areal.api.cli_args.GenerationHyperparameters"
RESPONSE = "areal.api.io_struct.ModelResponse"

#: Workflow -> setting -> how turns before the last one end, and the discount per further turn.
WORKFLOWS: Mapping[str, Mapping[str, Settings]] = {
    "areal.workflow.rlvr.RLVRWorkflow": {"one turn": {"end": "length", "turn_discount": 1.0}},
    "areal.workflow.multi_turn.MultiTurnWorkflow": {
        "end of sequence": {"end": "eos", "turn_discount": 0.5},
        "cut off": {"end": "length", "turn_discount": 0.5},
    },
}

#: Token ids: end of sequence, padding, the message after a wrong answer, and the first of the other tokens.
_EOS, _PAD, _WRONG, FIRST = 1, 2, (3, 4), 10

_DOCS = (
    "workflow/rlvr.py and multi_turn.py, arun_episode: prompt and feedback have loss mask 0, sampled tokens 1 with the "
    "log-probs and versions of the response; the reward is discounted once per further turn"
)
_PRODUCER = (
    "remote_inf_engine.py, agenerate: sampled tokens with their stop token; the reward function gives 0 for each turn "
    "except the last one, whose reward is that of the row before the discount"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the workflows of one turn and of several turns."""
    for path, settings in WORKFLOWS.items():
        if not target.has(f"{path}.arun_episode") or not target.has(CONFIG) or not target.has(RESPONSE):
            continue
        if why := target.fails(path):
            yield Unbound(path, "batch", why)
        else:
            yield from bindable(target, _episodes(path, settings))


def run_episodes(  # noqa: PLR0913 - classes of the target, and their arguments
    make: Callable[..., Any],
    config: Callable[..., Any],
    response: Callable[..., Any],
    rows: list[dict[str, Any]],
    end: str,
    turn_discount: float,
) -> dict[str, list[Any]]:
    """Run an episode per row; return the training row of each episode, at the positions of the batch.

    A token is -1 where it or a token beside it is wrong; all are -1 if the row has a wrong length or prompt. An
    untrained token keeps the log-prob and the version of the batch.
    """
    columns: dict[str, list[Any]] = {"tokens": [], "masks": [], "logprobs": [], "versions": [], "rewards": []}
    with replaced_globals(vars(inspect.getmodule(make)), **workflow_fakes()):
        for row in rows:
            episode = Episode(response, row, _turns_of(row, end), turn_discount)
            options = {"max_turns": len(episode.turns), "turn_discount": turn_discount, "enable_thinking": False}
            known = inspect.signature(make).parameters
            workflow = make(
                reward_fn=episode.score,
                gconfig=config(n_samples=1),
                tokenizer=Tokenizer(),
                **{name: value for name, value in options.items() if name in known},
            )
            prompt = [FIRST + token for token in row["prompt"]]
            data = asyncio.run(workflow.arun_episode(episode, {"messages": prompt, "answer": "kept"}))
            for name, value in _read(row, episode.turns, {k: v[0].tolist() for k, v in data.items()}).items():
                columns[name].append(value)
    return columns


def workflow_fakes() -> dict[str, Any]:
    """Fakes of the globals that a workflow reads: the reward wrapper, the chat template and the metrics."""
    return {
        "AsyncRewardWrapper": call_at_once,
        "apply_chat_template": lambda tokenizer, *a, **k: tokenizer.apply_chat_template(*a, **k),
        "stats_tracker": SimpleNamespace(get=lambda *_a: SimpleNamespace(scalar=lambda **_k: None)),
    }


def call_at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A fake of AReaL's asynchronous reward wrapper: it calls the function in this process."""

    async def call(*args: object, **more: object) -> Any:  # noqa: ANN401 - a reward
        return function(*args, **more)

    return call


def _message_tokens(message: dict[str, str]) -> list[int]:
    """The tokens of a message: the feedback of a user, or one token for any other role."""
    return list(_WRONG) if message["role"] == "user" else [_EOS]


class Tokenizer:
    """A tokenizer whose prompts are token ids; the template encodes replies and feedback as fixed ids."""

    eos_token_id, pad_token_id = _EOS, _PAD

    def apply_chat_template(self, messages: list[Any], **_options: object) -> list[int]:
        """The prompt unchanged; for a list of messages, the feedback of a user, and one token per other message."""
        written = [_message_tokens(one) if isinstance(one, dict) else [one] for one in messages]
        return [token for tokens in written for token in tokens]

    def decode(self, ids: list[int], **_options: object) -> str:
        """The ids as words."""
        return " ".join(map(str, ids))


@dataclass(frozen=True, slots=True)
class Turn:
    """One sampled turn, and the tokens between it and the next turn: the id and the position of each token."""

    sampled: list[tuple[int, int]]
    after: list[tuple[int, int]]

    @property
    def ids(self) -> list[int]:
        """The sampled tokens."""
        return [token for token, _ in self.sampled]


@dataclass(slots=True)
class Episode:
    """A fake engine and reward function for one episode; turns come one after another."""

    response: Callable[..., Any]
    row: dict[str, Any]
    turns: list[Turn]
    turn_discount: float
    done: int = field(default=0)

    async def agenerate(self, request: Any) -> Any:  # noqa: ANN401 - classes of the target
        """The response of the next turn."""
        turn = self.turns[self.done]
        self.done += 1
        return self.response(
            input_tokens=list(request.input_ids),
            output_tokens=turn.ids,
            output_logprobs=[self.row["logprobs"][place] for _, place in turn.sampled],
            output_versions=[self.row["versions"][place] for _, place in turn.sampled],
            stop_reason="stop" if turn.ids[-1] == _EOS else "length",
        )

    def get_version(self) -> int:
        """The version of the weights."""
        return 0

    def score(
        self, _prompt: str, completion: str, _prompt_ids: list[int], completion_ids: list[int], **data: object
    ) -> float:
        """The reward of the turn; infinite if the workflow passes other tokens, or loses the task's data."""
        turn = self.turns[self.done - 1]
        if completion_ids != turn.ids or completion != Tokenizer().decode(turn.ids) or data.get("answer") != "kept":
            return float("inf")
        last = self.done == len(self.turns)
        return float(self.row["reward"] / self.turn_discount ** (self.done - 1)) if last else 0.0


def _turns_of(row: dict[str, Any], end: str) -> list[Turn]:
    """Split a response into turns: each run of trained tokens, with fixed feedback for the untrained tokens after it.

    A turn before the last one ends with EOS, which is sampled if ``end`` is ``eos``, and else added by the template.
    """
    turns: list[Turn] = []
    for trained, run in groupby(range(len(row["mask"])), row["mask"].__getitem__):
        places = list(run)
        if trained:
            turns.append(Turn([(FIRST + row["tokens"][place], place) for place in places], []))
            continue
        before = turns[-1]
        if end == "eos":
            before.sampled.append((_EOS, before.sampled[-1][1]))
        else:
            before.after.append((_EOS, places[0]))
        before.after.extend((token, places[-1]) for token in _WRONG)
    return turns


def _read(row: dict[str, Any], turns: list[Turn], data: dict[str, Any]) -> dict[str, Any]:
    size, prompt = len(row["mask"]), len(row["prompt"])
    steps = [
        (*pair, is_sampled)
        for turn in turns
        for part, is_sampled in ((turn.sampled, True), (turn.after, False))
        for pair in part
    ]
    whole = prompt + len(steps)
    names = ("input_ids", "loss_mask", "logprobs", "versions", "attention_mask")
    fits = all(len(data[name]) == whole for name in names) and all(data["attention_mask"])
    fits = fits and data["input_ids"][:prompt] == [FIRST + token for token in row["prompt"]]
    same, trained = [fits] * size, [fits] * size
    logprobs, versions = list(row["logprobs"]), list(row["versions"])
    for at, (token, place, is_sampled) in enumerate(steps, prompt) if fits else ():
        same[place] &= data["input_ids"][at] == token
        trained[place] &= bool(data["loss_mask"][at]) == is_sampled
        if is_sampled:
            logprobs[place], versions[place] = data["logprobs"][at], data["versions"][at]
    trained = [ok and not any(data["loss_mask"][:prompt]) for ok in trained]
    return {
        "tokens": torch.tensor([token if ok else -1 for token, ok in zip(row["tokens"], same, strict=True)]),
        "masks": torch.tensor([bool(m) == ok for m, ok in zip(row["mask"], trained, strict=True)]),
        "logprobs": torch.tensor(logprobs),
        "versions": torch.tensor(versions),
        "rewards": float(data["rewards"]),
    }


def train_both_ends(batch: Batch) -> Batch:
    """Train the first and the last token of each response, because an episode starts and ends with a model turn."""
    place = torch.arange(batch.width)
    ends = (place == 0) | (place == batch.length.unsqueeze(1) - 1)
    return with_columns(batch, mask=(batch.mask | ends) & batch.valid)


def train_all(batch: Batch) -> Batch:
    """Train all tokens, so that a response has one turn."""
    return with_columns(batch, mask=batch.valid)


def _as_sampled(domain: Callable[[Batch], Batch]) -> Callable[[Inputs], str]:
    def check(inputs: Inputs) -> str:
        same = torch.equal(domain(inputs.batch).mask, inputs.batch.mask)
        return "" if same else "the trained tokens are not those of sampled turns"

    return check


def has_prompt(inputs: Inputs) -> str:
    """The reason to skip a batch in which a row has no prompt; else empty."""
    return "an episode has no prompt" if bool((inputs.batch.prompt_length < 1).any()) else ""


def _episodes(path: str, settings: Mapping[str, Settings]) -> Boundary:
    row = Table(row_fields("prompt", "tokens", "mask", "logprobs", "versions", "reward"))
    domain = train_all if len(settings) == 1 else train_both_ends
    return one_call(
        path=f"{path}.arun_episode",
        stage="batch",
        call=run_episodes,
        name="episodes",
        arguments={
            **functions(make=path, config=CONFIG, response=RESPONSE),
            "rows": EachRow(row),
            **knobs("end", "turn_discount"),
        },
        produced_by={"rows": _PRODUCER},
        outputs=row_outputs(Use("episodes"), "rollout_logprob", "token", "mask", "version", "reward"),
        settings=settings,
        domain=domain,
        claims=claims(_DOCS, conserves=True),
        reach="every run with this workflow",
        requires=(no_empty_response, has_prompt, _as_sampled(domain)),
    )

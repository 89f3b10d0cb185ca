"""A specimen of slime's agent trajectories in words of our own, as modules of a source tree."""

TYPES = """
    from dataclasses import dataclass, field

    @dataclass
    class Sample:
        index: int = 0
        group_index: int = 0
        prompt: str = ""
        tokens: list = field(default_factory=list)
        loss_mask: list = field(default_factory=list)
        rollout_log_probs: list = None
        reward: float = 0.0
"""

MANAGER = """
    from dataclasses import dataclass, replace

    @dataclass(frozen=True)
    class TurnRecord:
        prompt_ids: list
        output_ids: list
        finish_reason: str
        output_log_probs: list

    class Row:
        def __init__(self, turn):
            self.first, self.tokens, self.masks, self.logprobs, self.reply = len(turn.prompt_ids), [], [], [], 0

        def add(self, ids, mask, logprobs=None):
            self.tokens += ids
            self.masks += [mask] * len(ids)
            self.logprobs += logprobs or [0.0] * len(ids)

        def cut(self, place):
            for column in (self.tokens, self.masks, self.logprobs):
                del column[place:]

    class TrajectoryManager:
        def __init__(self, fork_threshold_tokens):
            self.limit, self.turns = fork_threshold_tokens, {}

        def record_turn(self, name, *, turn, prompt_messages, response_message):
            self.turns.setdefault(name, []).append(turn)

        def get_trajectory(self, name, *, base_sample, reward):
            rows = []
            for turn in self.turns.pop(name):
                same = rows and rows[-1].tokens == turn.prompt_ids[: len(rows[-1].tokens)]
                if not rows or not (same or len(turn.output_ids) < self.limit):
                    rows.append(Row(turn))
                row = rows[-1]
                if row.tokens and not same:
                    row.cut(ALIGNED)
                row.add(turn.prompt_ids[len(row.tokens) :], 0)
                row.reply = len(row.tokens)
                row.add(turn.output_ids, 1, turn.output_log_probs)
            parts = [(row.tokens, row.masks[row.first :], row.logprobs[row.first :]) for row in rows]
            return [
                replace(base_sample, tokens=t, loss_mask=m, rollout_log_probs=p, reward=reward / DIVISOR)
                for t, m, p in parts
            ]
"""

"""Trajectories of several steps, in plain lists: their outcomes, and their tokens joined."""

from collections.abc import Callable

from oracle.rows import Row

#: A step: trajectory, prompt, response, trained, rewards, log-probs, whether it is the last.
Told = tuple[str, list[int], list[int], list[bool], Row, Row, bool]


def last_steps(trajectory: list[int], last: list[bool]) -> list[int]:
    """By the order of their ids."""
    return [next(b for b, t in enumerate(trajectory) if t == one and last[b]) for one in sorted(set(trajectory))]


def over_trajectories(  # noqa: PLR0913 - columns, and what judges
    reward: Row,
    group: list[int],
    live: list[bool],
    trajectory: list[int],
    last: list[bool],
    estimator: Callable[[Row, list[int], list[bool]], Row],
) -> Row:
    """One outcome for each, judged among its siblings, then told to each live step of it."""
    ids = sorted(set(trajectory))
    rows = last_steps(trajectory, last)
    alive = [any(live[b] for b, t in enumerate(trajectory) if t == one) for one in ids]
    found = estimator([reward[b] for b in rows], [group[b] for b in rows], alive)
    of = dict(zip(ids, found, strict=True))
    return [of[t] if on else 0.0 for t, on in zip(trajectory, live, strict=True)]


def merge(steps: list[Told]) -> list[Told]:
    """One token after the other: what a step read and had not been there yet is text between, and no more."""
    found: list[Told] = []
    for step in steps:
        name, prompt, response, trained, reward, logprob, last = step
        if found and found[-1][0] == name and _starts_with(prompt, found[-1][1] + found[-1][2]):
            _, start, own, kept, gains, chances, _ = found.pop()
            own, kept, gains, chances = list(own), list(kept), list(gains), list(chances)
            for token in prompt[len(start) + len(own) :]:
                own.append(token)
                kept.append(False)
                gains.append(0.0)
                chances.append(0.0)
            found.append((name, start, own + response, kept + trained, gains + reward, chances + logprob, last))
        else:
            found.append(step)
    return found


def _starts_with(sequence: list[int], start: list[int]) -> bool:
    if len(start) > len(sequence):
        return False
    return all(sequence[i] == token for i, token in enumerate(start))

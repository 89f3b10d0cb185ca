"""A scripted response is sampled in parts: by version, by the limit of a request, and to its end."""

import pytest

from rl_sentinel.adapters.kit.scripted_sampling import (
    WRONG,
    Sampled,
    ScriptedResponse,
    fit_to_length,
    sampling_option,
)

RESPONSE = ScriptedResponse([7], tokens=[1, 2, 3], logprobs=[-0.1, -0.2, -0.3], versions=[4, 4, 5])


@pytest.mark.parametrize(
    ("ids", "most", "expected"),
    [
        ([7], 8, Sampled([1, 2], [-0.1, -0.2], "abort", 4)),  # the weights change before token 3
        ([7], 1, Sampled([1], [-0.1], "length", 4)),
        ([7, 1, 2], 8, Sampled([3], [-0.3], "stop", 5)),
        ([7, 1, 9], 8, Sampled([WRONG], [-0.3], "stop", 5)),  # 9 is not what was sampled
    ],
)
def test_sample(ids: list[int], most: int, expected: Sampled) -> None:
    assert RESPONSE.sample(ids, most, room=8) == expected


def test_full_response_does_not_end() -> None:
    """A response that fills its room stops at the limit only: a request for more gets wrong tokens."""
    assert RESPONSE.sample([7, 1, 2], 1, room=3) == Sampled([3], [-0.3], "length", 5)
    assert RESPONSE.sample([7, 1, 2], 2, room=3) == Sampled([3, WRONG], [-0.3, 0.0], "length", 5)


@pytest.mark.parametrize(("values", "expected"), [([1], [1, 9]), ([1, 2], [1, 2]), ([1, 2, 3], [1, 9]), ([], [9, 9])])
def test_fit_to_length(values: list[int], expected: list[int]) -> None:
    assert fit_to_length(values, 2, 9).tolist() == expected


def test_stop_options_are_lists() -> None:
    assert sampling_option("eval_stop_token_ids", "3") == [3]
    assert sampling_option("stop", "word") == ["word"]
    assert sampling_option("top_k", 5) == 5

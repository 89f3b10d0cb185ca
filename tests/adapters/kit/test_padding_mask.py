"""A mask that is True at padding."""

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.padding_mask import PaddingMask
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.layout import Layout
from rl_sentinel.search.filled_batch import filled


def test_it_is_true_behind_responses_and_in_the_padding_of_the_layout() -> None:
    """An untrained token inside a response is no padding."""
    batch = filled([[1, 0, 1], [1, 0, 0]], reward=[0, 0], group=[0, 0], length=[3, 1])
    inputs = Inputs(batch, layout=Layout(extra=1))
    value = codec_of("padding").put(inputs)
    assert value.tolist() == [[False, False, False, True], [False, True, True, True]]
    lengths = PaddingMask().sizes(value).length
    assert lengths is not None
    assert lengths.tolist() == [3, 1]

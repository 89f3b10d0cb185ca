"""Keys that a function reads from a parameter: of a dict, of an object, of dicts in it."""

from typing import Any

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.container_probe import Keys, keys_read
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.core.codec import Codec


def _codec(name: str, bindings: Any) -> Codec | None:
    return codec_of(name) if name in ("reward", "mask") else None


def _keys(function: Any) -> Keys | None:
    return keys_read(function, "data", {}, {"data": _codec}, probe_batch())


def test_keys_of_dicts_in_an_object() -> None:
    """What a dict holds may be needed before the next one is read."""
    keys = _keys(lambda data: data.batch["reward"].sum(-1) + data.labels["uid"])
    assert keys is not None
    assert keys.attributes
    assert {name: ([*one.known], [*one.unknown]) for name, one in keys.inner.items()} == {
        "batch": (["reward"], []),
        "labels": ([], ["uid"]),
    }


def test_an_unknown_number_is_no_dict() -> None:
    keys = _keys(lambda data: data["reward"] * data["colour"])
    assert keys is not None
    assert ([*keys.known], [*keys.unknown], keys.inner) == (["reward"], ["colour"], {})


def test_what_is_written_is_not_read() -> None:
    def function(data: Any) -> Any:
        data.batch["sum"] = data.batch["reward"]
        return data.batch["sum"]

    keys = _keys(function)
    assert keys is not None
    assert [*keys.inner["batch"].unknown] == []


def test_a_tensor_is_no_container() -> None:
    assert _keys(lambda data: data.shape[0]) is None

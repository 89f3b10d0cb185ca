"""Keys that a function reads from a parameter: of a dict, of an object, of dicts in it."""

from typing import Any

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.container_probe import Keys, keys_read
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.core.codec import Codec


def _codec(name: str, bindings: Any) -> Codec | None:
    return codec_of(name.rpartition(".")[2]) if name.rpartition(".")[2] in ("reward", "mask") else None


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
    keys = _keys(lambda data: data["reward"] * data["color"])
    assert keys is not None
    assert ([*keys.known], [*keys.unknown], keys.inner) == (["reward"], ["color"], {})


def test_what_is_written_is_not_read() -> None:
    def function(data: Any) -> Any:
        data.batch["sum"] = data.batch["reward"]
        return data.batch["sum"]

    keys = _keys(function)
    assert keys is not None
    assert [*keys.inner["batch"].unknown] == []


def test_a_tensor_is_no_container() -> None:
    assert _keys(lambda data: data.shape[0]) is None


def test_a_known_name_may_be_a_dict() -> None:
    """If the function fails on a column there, and reads known names from it."""
    keys = _keys(lambda data: data["reward"]["mask"] + data["scale"])
    assert keys is not None
    assert ([*keys.known], [*keys.unknown], [*keys.inner["reward"].known]) == ([], ["reward", "scale"], ["mask"])
    plain = _keys(lambda data: data["reward"].nothing + data["mask"])
    assert plain is not None
    assert ([*plain.known], plain.inner) == (["reward", "mask"], {})


def test_dicts_in_dicts_of_dicts() -> None:
    """At any depth."""
    keys = _keys(lambda data: data.a["b"].c["mask"] * data.a["reward"])
    assert keys is not None
    assert [*keys.inner["a"].inner["b"].inner["c"].known] == ["mask"]


def test_a_text_is_no_object() -> None:
    """Its methods are those of a text."""
    keys = _keys(lambda data: data["reward"] if data.kind.lower() == "sum" else data["mask"])
    assert keys is not None
    assert keys.inner == {}


def test_a_copy_of_what_was_read_is_no_read_of_all_keys() -> None:
    keys = _keys(lambda data: {"mine": data["reward"], **data})
    assert keys is not None
    assert ([*keys.known], keys.whole) == (["reward"], False)
    ids = _keys(lambda data: {key: sum(rewards) for key, rewards in data.items()})
    assert ids is not None
    assert ids.whole

"""Lists of allowed values in docstrings, comments and code, by hand."""

from rl_sentinel.adapters.kit.listed_options import assigned_words, comment_words, field_words


class Config:
    """Numbers of a loss, 'not a value'.

    Args:
        before (str): one of 'x'.
        kind (Optional[str]): How it is estimated: "k1" or
            `k3+`, see page.
        after: not 'y'.

    A paragraph about 'z'.
    """


class Bare:
    """A class whose docstring lists nothing."""

    kind = "k1"


def test_the_lines_of_one_field() -> None:
    """Continued lines belong to a field, the next field and the text around do not."""
    assert field_words(Config, "kind") == ("k1", "k3+")
    assert field_words(Config, "missing") == ()
    assert field_words(Bare, "kind") == ()


def test_the_comment_right_above() -> None:
    text = '# "far"\nother: 1\n\n# Kind: "k1",\n  # "k2"\n  kind: k1\n# "below"\n'
    assert comment_words(text, "kind") == ("k1", "k2")
    assert comment_words(text, "missing") == ()
    assert comment_words('# "far"\n\nkind: k1\n', "kind") == ()


def test_a_name_in_code() -> None:
    def check(mode: str) -> bool:
        valid = {"mean", "sum"} if mode else set()
        allowed = ("mean", "sum", 3)
        return mode in valid or mode in allowed

    assert assigned_words(check, "allowed") == ("mean", "sum")
    assert assigned_words(check, "valid") == ()
    assert assigned_words(check, "missing") == ()

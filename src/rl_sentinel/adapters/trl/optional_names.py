"""Define names of packages that are not installed. Some TRL releases read these names in annotations at import."""

import builtins
from collections.abc import Iterator
from contextlib import contextmanager

#: Classes of peft. ``if is_peft_available(): from peft import PeftConfig``, and then ``peft_config: PeftConfig | None``
#: in a signature, raises NameError without peft: sdft_trainer.py of June to August 2026.
NAMES = ("PeftConfig", "PeftModel")


@contextmanager
def defined_names() -> Iterator[None]:
    """Define an empty class for each name while TRL is imported. Modules that import the real class are unaffected."""
    added = [name for name in NAMES if not hasattr(builtins, name)]
    for name in added:
        setattr(builtins, name, type(name, (), {}))
    try:
        yield
    finally:
        for name in added:
            delattr(builtins, name)

"""Import the signal library from the audited tree, which may differ from the running copy."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import rl_sentinel
from rl_sentinel.adapters.library.arguments import SIGNAL
from rl_sentinel.core.errors import Unbindable


def import_from(root: Path) -> None:
    """Import ``rl_sentinel.signal`` from the package in ``root``, in place of the modules that are loaded.

    Nothing is imported if that package is the running copy.

    Raises:
        Unbindable: if that package has no signal library that can be imported.
    """
    folder = (root / "rl_sentinel" / "signal").resolve()
    if not (folder / "__init__.py").is_file():
        raise Unbindable(f"{SIGNAL} is absent in {root}, expected a package in {folder}")
    if folder.is_relative_to(Path(rl_sentinel.__file__).parent.resolve()):
        return
    for name in [n for n in sys.modules if n == SIGNAL or n.startswith(f"{SIGNAL}.")]:
        del sys.modules[name]
    spec = spec_from_file_location(SIGNAL, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise Unbindable(f"{SIGNAL} cannot be imported from {folder}")
    module = module_from_spec(spec)
    sys.modules[SIGNAL] = module
    spec.loader.exec_module(module)
    vars(rl_sentinel)["signal"] = module

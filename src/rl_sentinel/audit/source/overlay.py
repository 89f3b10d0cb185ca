"""Install the small packages that a target imports at run time, in the cache and not in the user's environment."""

import hashlib
from pathlib import Path

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.audit.source.fetch import pip, pip_failure
from rl_sentinel.core.errors import SentinelError


def overlays(framework: Framework, version: str) -> tuple[str, ...]:
    """Folders for ``sys.path`` with the small packages that the target imports, pinned; empty if it needs none.

    Raises:
        SentinelError: if the packages are not in the cache and cannot be fetched.
    """
    lock = "\n".join(sorted(framework.light(version).split()))
    if not lock:
        return ()
    key = f"{framework.name}-{hashlib.sha256(lock.encode()).hexdigest()[:16]}"
    return (str(cached_folder("overlays", key, lambda to: _install(framework.name, lock, to))),)


def _install(framework: str, lock: str, to: Path) -> None:
    requirements = lock.splitlines()
    run = pip("install", "--no-deps", "--prefer-binary", "--no-compile", "-q", "--target", str(to), *requirements)
    if run.returncode:
        message = (
            f"packages that {framework} imports ({', '.join(requirements)}) are not in the cache and cannot be fetched "
            f"({pip_failure(run.stderr)}): fix this, or connect once to an index of these packages"
        )
        raise SentinelError(message)

"""Install the light packages that a target needs at run time, in the cache and not in the user's environment."""

import hashlib
from pathlib import Path

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.audit.source.fetch import pip
from rl_sentinel.core.errors import SentinelError


def overlays(framework: Framework, version: str) -> tuple[str, ...]:
    """Folders for ``sys.path`` with the target's light packages at locked versions.

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
        last = [line for line in run.stderr.strip().splitlines() if "ERROR" in line][-1:] or ["no answer"]
        message = (
            f"packages that {framework} imports ({', '.join(requirements)}) are not in the cache and cannot be fetched "
            f"({last[0][:160]}): connect once to a package index that has these packages"
        )
        raise SentinelError(message)

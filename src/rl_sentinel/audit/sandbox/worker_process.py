"""Start a worker on a request and read its events."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import rl_sentinel
from rl_sentinel.audit.sandbox.request import Request, Task
from rl_sentinel.audit.source.cache import home
from rl_sentinel.audit.source.fetch import Source, source
from rl_sentinel.audit.source.interpreter import check_interpreter
from rl_sentinel.audit.source.overlay import overlays
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.core.errors import SentinelError

_WORKER = "rl_sentinel.audit.engine.worker"
#: Environment variables that are passed to a worker; all others are left out.
_PASSED = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH")


def request(target: TargetSpec, task: Task, *, python: str = sys.executable, **more: Any) -> tuple[Request, Source]:  # noqa: ANN401
    """Fetch the code of a target, and build the request for a worker; ``more`` are further fields of the request.

    Unless the target is installed, the small packages that it imports are fetched too.

    Returns:
        The request, and the target's tree on disk.
    """
    fetched = source(target, python)
    provenance = {"spec": target.text, "commit": fetched.commit, "digest": fetched.digest}
    provenance |= {"stage": more["stage"]} if more.get("stage") else {}
    bindings: dict[str, Any] = {key: dict(more[key]) for key in ("bind", "numbers") if more.get(key)}
    bindings |= {key: more[key] for key in ("recipe", "search_path") if more.get(key)}
    provenance |= {"bound": json.dumps(bindings)} if bindings else {}
    version = fetched.known_version
    job = Request(
        task=task,
        framework=target.framework.name,
        root=str(fetched.root),
        version=fetched.version,
        overlays=overlays(target.framework, version) if target.form != "installed" else (),
        target=provenance,
        function=fetched.function,
        **more,
    )
    return job, fetched


def events(job: Request, python: str = sys.executable) -> Generator[dict[str, Any]]:
    """Run a worker on a request and yield its events as they arrive.

    The worker and its children end when the generator is closed or this process ends.

    Raises:
        SentinelError: if the worker cannot start, fails as a whole, or dies.
    """
    check_interpreter(python)
    with tempfile.TemporaryDirectory(prefix="rl-sentinel-") as scratch:
        request_file, log = Path(scratch) / "request.json", Path(scratch) / "output.txt"
        request_file.write_text(json.dumps(job.as_json()), encoding="utf-8")
        reader, writer = os.pipe()
        with log.open("wb") as output:
            command = [python, "-s", *_bytecode_option(job), "-m", _WORKER, str(request_file), str(writer)]
            worker = subprocess.Popen(  # noqa: S603 - the worker of this package
                command,
                cwd=scratch,
                env=_environment(scratch, _import_folder(Path(scratch), python)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,
            )
        os.close(writer)
        try:
            yield from _read(reader, worker, log)
        finally:
            _kill(worker)


def _bytecode_option(job: Request) -> tuple[str, ...]:
    """Interpreter options that stop a worker from writing compiled code into a user's tree."""
    return () if Path(job.root).is_relative_to(home()) else ("-B",)


def _import_folder(scratch: Path, python: str) -> Path:
    """The folder from which a worker imports this package; for another interpreter, one without other packages."""
    package = Path(rl_sentinel.__file__).parent
    if python == sys.executable:
        return package.parent
    folder = scratch / "code"
    folder.mkdir()
    (folder / package.name).symlink_to(package)
    return folder


def _environment(scratch: str, import_folder: Path) -> dict[str, str]:
    passed = {k: os.environ[k] for k in _PASSED if k in os.environ}
    fixed = {
        "HOME": scratch,
        "TMPDIR": scratch,
        "PYTHONPATH": str(import_folder),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_DEDUP_LOGS": "0",
    }
    return passed | fixed


def _read(pipe: int, worker: subprocess.Popen[bytes], log: Path) -> Generator[dict[str, Any]]:
    finished = False
    with os.fdopen(pipe, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "failed":
                raise SentinelError(str(event["message"]))
            if event["event"] == "done":
                finished = True
                break
            yield event
    if not finished:
        status = worker.wait()
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["no output"]
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        killed = " for lack of memory or" if status == -signal.SIGKILL else ""
        raise SentinelError(
            f"the worker {how} before it finished, maybe{killed} because of the target's code, which runs when it is "
            f"imported; last line of the worker's output: {tail[0][:200]}"
        )


def _kill(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, 9)
    worker.wait()

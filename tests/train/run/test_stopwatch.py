"""Times per phase, from any thread."""

import threading
import time

from rl_sentinel.train.run.stopwatch import PHASES, Stopwatch, unmeasured


def test_phases_of_two_threads_are_of_their_steps() -> None:
    stopwatch = Stopwatch()

    def sample() -> None:
        with stopwatch.measure(1)("sampling"):
            time.sleep(0.02)

    thread = threading.Thread(target=sample)
    thread.start()
    for _ in range(2):
        with stopwatch.measure(0)("update"):
            time.sleep(0.01)
    thread.join()
    timing = stopwatch.timing(0, seconds=0.12345678)
    assert list(timing) == ["seconds", *(f"{phase}_seconds" for phase in PHASES)]
    assert timing["seconds"] == 0.123457
    assert timing["update_seconds"] >= 0.02
    assert timing["sampling_seconds"] == 0.0
    assert stopwatch.take(1)["sampling"] >= 0.02
    with unmeasured("update"):
        pass
    assert stopwatch.take(0)["update"] == 0.0

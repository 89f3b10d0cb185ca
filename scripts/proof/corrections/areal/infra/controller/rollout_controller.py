# Corrections of areal/infra/controller/rollout_controller.py (1.0.4).
# - A worker does not divide the limit on staleness, since the controller keeps it and any worker may get all rollouts.
# - Workers behind a proxy pause during a weight update too.


_initialize = RolloutController.initialize


def initialize(self, role, server_args=None, server_infos=None, *args, **kwargs):
    _initialize(self, role, server_args, server_infos, *args, **{"train_data_parallel_size": 1, **kwargs})


RolloutController.initialize = initialize


def pause(self):
    self.dispatcher.pause()
    if self._proxy_started:
        self._proxy_collective_rpc("pause", http_timeout=60.0)
    self._collective_rpc("pause", http_timeout=60.0)


def resume(self):
    self._collective_rpc("resume", http_timeout=60.0)
    if self._proxy_started:
        self._proxy_collective_rpc("resume", http_timeout=60.0)
    self.dispatcher.resume()


RolloutController.pause, RolloutController.resume = pause, resume

# Corrections of areal/infra/controller/rollout_controller.py (1.0.4).
# - A worker does not divide the limit on staleness, since the controller keeps it and any worker may get all rollouts.


_initialize = RolloutController.initialize


def initialize(self, role, server_args=None, server_infos=None, *args, **kwargs):
    _initialize(self, role, server_args, server_infos, *args, **{"train_data_parallel_size": 1, **kwargs})


RolloutController.initialize = initialize

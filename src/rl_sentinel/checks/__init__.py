"""Check a function from Python: ``rl_sentinel.check``, ``rl_sentinel.assert_sound`` and the pytest plugin."""

"""What parts of the trainer cost, each in a process of its own: ``python -m benchmarks.costs``."""

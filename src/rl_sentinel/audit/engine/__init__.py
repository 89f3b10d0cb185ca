"""What runs in the worker: calling boundaries, searching cases, judging laws."""

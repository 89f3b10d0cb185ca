"""Code that runs in the worker: call boundaries, search for cases, check laws."""

"""Small faults put into ``signal``, to see whether the laws notice: ``python -m mutants``."""

"""Adapters: they convert between the neutral batch and a framework; the framework computes."""

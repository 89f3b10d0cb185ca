"""The central types of RL-Sentinel: batch, case, boundary, law, expectation, verdict."""

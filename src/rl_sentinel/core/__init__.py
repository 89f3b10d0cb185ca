"""The words of RL-Sentinel as types: batch, case, boundary, law, verdict, evidence."""

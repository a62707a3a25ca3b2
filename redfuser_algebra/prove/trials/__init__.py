"""Trials: a fused form carried out on a few elements, in arithmetic that cannot lie."""

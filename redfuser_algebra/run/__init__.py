"""Execution: the NumPy reference of a cascade, the fused form by chunks and trees, and streams."""

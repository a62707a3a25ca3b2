"""Measurements, and the demonstration: real sizes, figures next to NumPy."""

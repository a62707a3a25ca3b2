"""Simplifying: terms of a form as SymPy understands them."""

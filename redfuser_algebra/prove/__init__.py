"""Proof of legality, or a counterexample.

`obligations` states what must hold for a fused form; `by_egraph`, `by_sympy`, `by_examples` and `by_floats` each say
what they can about it; `certificate` keeps proved and tested apart.  `refute` looks for numbers that no form can fit,
`witness` holds them and computes them again; `proof` is either of the two for one operator.  `declarations` tries what
users claim about monoids and functions of their own before it is used.
"""

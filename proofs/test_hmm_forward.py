"""hmm_forward: one pass is enough.

    hmm_forward(E[l, s], A[s, t], pi[s]):
        t1 = index(s) == 0
        t2 = index(l) == 0
        t3 = index(t) == 0
        d1 = sum(where(t1, A, 0), s)
        t4 = index(s) == 1
        d2 = sum(where(t4, A, 0), s)
        t5 = index(s) == 2
        d3 = sum(where(t5, A, 0), s)
        t6 = index(t) == 1
        t7 = index(t) == 2
        return log(scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a *
                exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0),
                t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6,
                d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))),
                exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0),
                t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0),
                place=0) + scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0),
                s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3,
                0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a *
                exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0),
                t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7,
                d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0,
                0.0), place=1) + scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi,
                0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3,
                d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a *
                exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0),
                t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7,
                d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0,
                0.0), place=2))

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 13 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    h_EA'   = h_EA·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0
        else 0))) + v·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t =
        0 else 0))) + z·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t
        = 0 else 0)))  ¹
    h_E_pi' = h_E_pi·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0
        else 0))) + (exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_s (pi[s] if s = 0 else 0)) if l = 0 else 0) + r·(0 if l =
        0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + w·(0 if l
        = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))  ¹
    h'      = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else
        0))) + y·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0
        else 0))) + f·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t =
        0 else 0)))  ¹
    u'      = u·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else
        0))) + g·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0
        else 0))) + alpha·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if
        t = 0 else 0)))  ¹
    v'      = h_EA·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1
        else 0))) + v·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t =
        1 else 0))) + z·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t
        = 1 else 0)))  ¹
    r'      = h_E_pi·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1
        else 0))) + (exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_s (pi[s] if s = 1 else 0)) if l = 0 else 0) + r·(0 if l =
        0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + w·(0 if l
        = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))  ¹
    y'      = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else
        0))) + y·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1
        else 0))) + f·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t =
        1 else 0)))  ¹
    g'      = u·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else
        0))) + g·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1
        else 0))) + alpha·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if
        t = 1 else 0)))  ¹
    z'      = h_EA·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2
        else 0))) + v·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t =
        2 else 0))) + z·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t
        = 2 else 0)))  ¹
    w'      = h_E_pi·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2
        else 0))) + (exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_s (pi[s] if s = 2 else 0)) if l = 0 else 0) + r·(0 if l =
        0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + w·(0 if l
        = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))  ¹
    f'      = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else
        0))) + y·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2
        else 0))) + f·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t =
        2 else 0)))  ¹
    alpha'  = u·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else
        0))) + g·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2
        else 0))) + alpha·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if
        t = 2 else 0)))  ¹
    beta'   = beta

Guards:

    ¹ an element or state that does not take part is left out, not multiplied by 0

Dangers:

    exp(Σ_s (E[l,s] if s = 0 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_s (E[l,s] if s = 1 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_s (E[l,s] if s = 2 else 0)) may overflow: nothing bounds its exponent

Laws: none beyond those of the monoids.

Proved below, by SymPy over the reals: merge is associative (it does not commute). Tested below, by Hypothesis on
small examples in float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
import sympy
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


class State(NamedTuple):
    """What is kept of a part of the elements."""

    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))
    h_EA: np.ndarray
    # ∘_l exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_s (pi[s] if s = 0 else 0)) if l = 0 else 0
    h_E_pi: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))
    h: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0))
    u: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))
    v: np.ndarray
    # ∘_l exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_s (pi[s] if s = 1 else 0)) if l = 0 else 0
    r: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))
    y: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0))
    g: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))
    z: np.ndarray
    # ∘_l exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_s (pi[s] if s = 2 else 0)) if l = 0 else 0
    w: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))
    f: np.ndarray
    # ∘_l 0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0))
    alpha: np.ndarray
    beta: np.ndarray  # Σ_l 0


def lift(E, A, pi, l):
    """The state of one element, whose arrays have no axis l any more."""
    h_EA = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 0, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 0,
            np.sum(np.where((np.arange(len(E)) == 0)[..., None], A, 0), axis=0), 0)))
        ),
    )
    h_E_pi = np.where(
        l == 0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 0, E, 0)))
            * np.exp(np.sum(np.where(np.arange(len(E)) == 0, pi, 0)))
        ),
        0,
    )
    h = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 0, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 0,
            np.sum(np.where((np.arange(len(E)) == 1)[..., None], A, 0), axis=0), 0)))
        ),
    )
    u = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 0, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 0,
            np.sum(np.where((np.arange(len(E)) == 2)[..., None], A, 0), axis=0), 0)))
        ),
    )
    v = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 1, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 1,
            np.sum(np.where((np.arange(len(E)) == 0)[..., None], A, 0), axis=0), 0)))
        ),
    )
    r = np.where(
        l == 0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 1, E, 0)))
            * np.exp(np.sum(np.where(np.arange(len(E)) == 1, pi, 0)))
        ),
        0,
    )
    y = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 1, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 1,
            np.sum(np.where((np.arange(len(E)) == 1)[..., None], A, 0), axis=0), 0)))
        ),
    )
    g = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 1, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 1,
            np.sum(np.where((np.arange(len(E)) == 2)[..., None], A, 0), axis=0), 0)))
        ),
    )
    z = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 2, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 2,
            np.sum(np.where((np.arange(len(E)) == 0)[..., None], A, 0), axis=0), 0)))
        ),
    )
    w = np.where(
        l == 0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 2, E, 0)))
            * np.exp(np.sum(np.where(np.arange(len(E)) == 2, pi, 0)))
        ),
        0,
    )
    f = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 2, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 2,
            np.sum(np.where((np.arange(len(E)) == 1)[..., None], A, 0), axis=0), 0)))
        ),
    )
    alpha = np.where(
        l == 0,
        0,
        (
            np.exp(np.sum(np.where(np.arange(len(E)) == 2, E, 0)))
            * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 2,
            np.sum(np.where((np.arange(len(E)) == 2)[..., None], A, 0), axis=0), 0)))
        ),
    )
    beta = np.float64(0)
    return State(h_EA, h_E_pi, h, u, v, r, y, g, z, w, f, alpha, beta)


def merge(one, two):
    """The state of two parts together."""
    h_EA = two.h_EA * one.h_EA + two.h * one.v + two.u * one.z
    h_E_pi = two.h_EA * one.h_E_pi + two.h_E_pi + two.h * one.r + two.u * one.w
    h = two.h_EA * one.h + two.h * one.y + two.u * one.f
    u = two.h_EA * one.u + two.h * one.g + two.u * one.alpha
    v = two.v * one.h_EA + two.y * one.v + two.g * one.z
    r = two.v * one.h_E_pi + two.r + two.y * one.r + two.g * one.w
    y = two.v * one.h + two.y * one.y + two.g * one.f
    g = two.v * one.u + two.y * one.g + two.g * one.alpha
    z = two.z * one.h_EA + two.f * one.v + two.alpha * one.z
    w = two.z * one.h_E_pi + two.w + two.f * one.r + two.alpha * one.w
    f = two.z * one.h + two.f * one.y + two.alpha * one.f
    alpha = two.z * one.u + two.f * one.g + two.alpha * one.alpha
    beta = one.beta + two.beta
    return State(h_EA, h_E_pi, h, u, v, r, y, g, z, w, f, alpha, beta)


def finalize(state):
    """The results of a state."""
    h_EA, h_E_pi, h, u, v, r, y, g, z, w, f, alpha, beta = state
    return np.log(h_E_pi + r + w) + 0.6931471805599453 * beta


def definition(E, A, pi):
    """The operator as written."""
    a = np.float64(0)
    b = np.float64(0)
    c = np.float64(0)
    for at in range(len(E)):
        a, b, c = (
            (
                np.exp(np.sum(np.where(np.arange(E.shape[1]) == 0, E[at], 0)))
                * np.where(at == 0, np.exp(np.sum(np.where(np.arange(E.shape[1]) == 0, pi, 0))), a
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 0,
                np.sum(np.where((np.arange(E.shape[1]) == 0)[..., None], A, 0), axis=0), 0))) + b
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 0,
                np.sum(np.where((np.arange(E.shape[1]) == 1)[..., None], A, 0), axis=0), 0))) + c
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 0,
                np.sum(np.where((np.arange(E.shape[1]) == 2)[..., None], A, 0), axis=0), 0))))
            ),
            (
                np.exp(np.sum(np.where(np.arange(E.shape[1]) == 1, E[at], 0)))
                * np.where(at == 0, np.exp(np.sum(np.where(np.arange(E.shape[1]) == 1, pi, 0))), a
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 1,
                np.sum(np.where((np.arange(E.shape[1]) == 0)[..., None], A, 0), axis=0), 0))) + b
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 1,
                np.sum(np.where((np.arange(E.shape[1]) == 1)[..., None], A, 0), axis=0), 0))) + c
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 1,
                np.sum(np.where((np.arange(E.shape[1]) == 2)[..., None], A, 0), axis=0), 0))))
            ),
            (
                np.exp(np.sum(np.where(np.arange(E.shape[1]) == 2, E[at], 0)))
                * np.where(at == 0, np.exp(np.sum(np.where(np.arange(E.shape[1]) == 2, pi, 0))), a
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 2,
                np.sum(np.where((np.arange(E.shape[1]) == 0)[..., None], A, 0), axis=0), 0))) + b
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 2,
                np.sum(np.where((np.arange(E.shape[1]) == 1)[..., None], A, 0), axis=0), 0))) + c
                * np.exp(np.sum(np.where(np.arange(A.shape[1]) == 2,
                np.sum(np.where((np.arange(E.shape[1]) == 2)[..., None], A, 0), axis=0), 0))))
            ),
        )
    return np.log(a + b + c)


def between(first, last, E, A, pi):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(E[at], A, pi, at)
    for at in range(first + 1, last):
        state = merge(state, lift(E[at], A, pi, at))
    return state


ANY = (0, 1, -1, 2, 0.5, -2, -0.5, 3)
POSITIVE = (1, 2, 0.5, 3, 0.25, 1.5)
UNIT = (0.5, 0.25, 0.75, 0.125)
FEW = (0, 1)


def array(draw, shape, *palettes):
    """An array of simple numbers, so that equal ones are drawn."""
    numbers = draw(st.sampled_from(palettes))
    return draw(arrays(float, shape, elements=st.sampled_from(numbers)))


@st.composite
def examples(draw):
    """A few elements, the parameters, and where they are cut into three neighbours."""
    n = draw(st.integers(3, 6))
    E = array(draw, (n, 3), ANY, POSITIVE, UNIT, FEW)
    A = array(draw, (3, 3), ANY, POSITIVE, UNIT, FEW)
    pi = array(draw, (3,), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return E, A, pi, cuts


def nudged(state):
    """The state with its numbers moved by some roundings: up and down, the first or the last of them most."""
    for by, turn in ((1e-13, 1), (-1e-13, 1), (1e-13, -1), (-1e-13, -1)):
        moved = (
            word * (1 + by * at**turn) if np.asarray(word).dtype.kind == "f" else word
            for at, word in enumerate(state, 1)
        )
        yield State(*moved)


def agree(got, want, *around):
    """Equal up to rounding (and roots of it) where roundings leave both alone, and NaN where neither is a number."""
    got, want, *around = np.broadcast_arrays(got, want, *around)
    at_once, *beside = around
    known = np.isfinite(want) & np.isfinite(at_once) & np.isclose(beside, beside[0], rtol=1e-9, atol=1e-7).all(0)
    assert np.isnan(got[np.isnan(want) & np.isnan(at_once)]).all()
    assume(known.any())
    np.testing.assert_allclose(got[known], want[known], rtol=1e-9, atol=1e-7)


def same(one, two):
    """Two states are equal up to rounding."""
    for name in State._fields:
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-9, err_msg=name)


@settings(max_examples=50, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.filter_too_much])
@given(examples())
@np.errstate(all="ignore")
def test_the_theorem(example):
    """On fifty small examples, the same ones every time."""
    E, A, pi, cuts = example
    one = between(0, cuts[0], E, A, pi)
    two = between(cuts[0], cuts[1], E, A, pi)
    three = between(cuts[1], len(E), E, A, pi)
    whole = between(0, len(E), E, A, pi)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(E, A, pi)
    around = [finalize(each) for each in (whole, *nudged(whole))]
    for state in (left, right):
        agree(finalize(state), want, *around)


def sums(value):
    """A largest (or smallest) of sums as the set of its sums, and a sum of products multiplied out."""
    value = sympy.expand(value)
    if isinstance(value, (sympy.Max, sympy.Min)):
        return set().union(*map(sums, value.args))
    if value.has(sympy.Max, sympy.Min) and isinstance(value, sympy.Add):
        return {sympy.expand(one + other) for one in sums(value.args[0]) for other in sums(value.func(*value.args[1:]))}
    return {value}


def test_merge_is_associative_for_all_numbers():
    """SymPy, over the reals, for any three states: both bracketings are the same sums."""

    def state(part):
        return State(*(sympy.Symbol(f"{name}_{part}", real=True) for name in State._fields))

    a, b, c = map(state, "abc")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for name, one, other in zip(State._fields, left, right, strict=True):
        assert sums(sympy.sympify(one)) == sums(sympy.sympify(other)), name

"""Operators in the many ways people write them: those that fuse, and their near twins that do not."""
from __future__ import annotations

import numpy as np

import redfuser_algebra as ra

FUSABLE: list[ra.Operator] = []
STUCK: list[ra.Operator] = []


def fuses(function):
    FUSABLE.append(ra.operator(function))
    return FUSABLE[-1]


def sticks(function):
    STUCK.append(ra.operator(function))
    return STUCK[-1]


@fuses
def softmax_under_an_additive_mask(x: "l", M: "l"):
    s = ra.where(M > 0, x, -np.inf)
    e = ra.exp(s - ra.max(s, "l"))
    return ra.where(M > 0, e, 0) / ra.sum(e, "l")


@fuses
def attention_under_a_where_mask(S: "m l", V: "l j", M: "m l"):
    m = ra.max(S, "l", where=M > 0)
    e = ra.exp(S - m)
    return ra.sum(e * V, "l", where=M > 0) / (1 + ra.sum(e, "l", where=M > 0))


@fuses
def masked_second_moment(x: "b l", M: "b l"):
    mu = ra.sum(x, "l", where=M > 0) / (1e-9 + ra.count(M > 0, "l"))
    return ra.sum((x - mu) ** 2, "l", where=M > 0)


@fuses
def variance_of_both_axes(x: "b h w"):
    return ra.var(x, "h w")


@fuses
def tempered_softmax(x: "l", t: float = 2.0):
    e = ra.exp((x - ra.max(x, "l")) / t)
    return e / ra.sum(e, "l")


@fuses
def negative_scale(x: "l", v: "l", scale: float = -0.5):
    s = x * scale
    e = ra.exp(s - ra.max(s, "l"))
    return ra.sum(e * v, "l") / ra.sum(e, "l")


@fuses
def scale_outside_the_max(x: "l", v: "l", scale: float = 2.0):
    e = ra.exp(x * scale - ra.max(x, "l") * scale)
    return ra.sum(e * v, "l") / ra.sum(e, "l")


@fuses
def capped_gated_squares(x: "l", V: "l j", G: "l j"):
    s = 15 * ra.tanh(x / 15)
    e = ra.exp(s - ra.max(s, "l"))
    return ra.sum(e * V * V * ra.sigmoid(G), "l") / ra.sum(e, "l")


@fuses
def z_scores_under_sums(x: "l", w: "l"):
    z = (x - ra.mean(x, "l")) / ra.std(x, "l")
    return ra.sum(z * w, "l"), ra.sum(z**3, "l")


@fuses
def kl_of_log_softmaxes(x: "l", y: "l"):
    p, q = x - ra.max(x, "l"), y - ra.max(y, "l")
    p, q = p - ra.log(ra.sum(ra.exp(p), "l")), q - ra.log(ra.sum(ra.exp(q), "l"))
    return ra.sum(ra.exp(p) * (p - q), "l")


@fuses
def softmax_collision(x: "l"):
    p = ra.exp(x - ra.max(x, "l"))
    p = p / ra.sum(p, "l")
    return ra.sum(p * p, "l")


@fuses
def range_scaled(x: "l", w: "l"):
    return ra.sum((x - ra.min(x, "l")) * w, "l") / (ra.max(x, "l") - ra.min(x, "l"))


@fuses
def boltzmann_of_the_minimum(x: "l"):
    return ra.sum(ra.exp(ra.min(x, "l") - x), "l")


@fuses
def ties_at_both_ends(x: "l"):
    return ra.sum(ra.where(x == ra.min(x, "l"), 1, 0), "l"), ra.count(x == ra.max(x, "l"), "l")


@fuses
def all_but_the_largest(x: "l", v: "l"):
    return ra.sum(v, "l", where=x != ra.max(x, "l"))


@fuses
def payload_or_other(x: "l", v: "l", u: "l"):
    return ra.sum(ra.where(x == ra.max(x, "l"), v, u), "l")


@fuses
def max_under_a_moving_switch(x: "l", y: "l"):
    return ra.max(x, "l", where=ra.max(y, "l") > 0.5)


@fuses
def shares(x: "l", y: "l"):
    n = ra.sum(x, "l")
    return ra.sum(y * x / n, "l"), ra.sum((y / n) ** 2, "l")


@fuses
def third_mixed_moments(x: "l", y: "l"):
    a, b = ra.mean(x, "l"), ra.mean(y, "l")
    return ra.mean((x - a) ** 2 * (y - b), "l"), ra.mean((x - a) * (y - b) ** 2, "l")


@fuses
def signed_weights(x: "l", w: "l"):
    mu = ra.sum(w * x, "l") / ra.sum(w, "l")
    return ra.sum(w * (x - mu) ** 2, "l")


@fuses
def radius_of_gyration(x: "l d"):
    return ra.mean(ra.sum((x - ra.mean(x, "l")) ** 2, "d"), "l")


@fuses
def quadratic_form_of_the_mean(x: "l d"):
    u = x - ra.mean(x, "l")
    return ra.sum(ra.sum(u * ra.mean(x, "l"), "d") ** 2, "l")


@fuses
def two_top_k(x: "l"):
    return ra.topk(x, "l", 2, name="a").values - ra.topk(x, "l", 2, name="b").values


@fuses
def payload_of_top_k(x: "l", v: "l"):
    return ra.sum(ra.take(v, ra.topk(x, "l", 2, name="t").indices, "l") * 0.5, "t")


@fuses
def farthest(x: "l"):
    mu = ra.mean(x, "l")
    return ra.max(ra.abs(x - mu), "l"), ra.argmax(ra.abs(x - mu), "l"), ra.any(ra.abs(x - mu) > 2, "l")


@fuses
def chebyshev(x: "l d"):
    return ra.max(ra.max(ra.abs(x - ra.mean(x, "l")), "d"), "l")


@fuses
def softmax_over_both_axes(x: "h w"):
    e = ra.exp(x - ra.max(x, "h w"))
    return e / ra.sum(e, "h w")


@fuses
def experts_mixed_after_softmax(x: "l", v: "l j"):
    e = ra.exp(x - ra.max(x, "l"))
    best = ra.topk(e / ra.sum(e, "l"), "l", 2, name="t")
    return ra.sum(best.values * ra.take(v, best.indices, "l"), "t")


@fuses
def payload_after_softmax(x: "l", v: "l"):
    e = ra.exp(x - ra.max(x, "l"))
    return ra.take(v, ra.argmax(e / ra.sum(e, "l"), "l"), "l")


@fuses
def squared_absolute_deviation(x: "l"):
    return ra.sum(ra.abs(x - ra.mean(x, "l")) ** 2, "l")


@fuses
def product_of_contractions(K: "l k"):
    d = ra.max(K, "l")
    return ra.sum(ra.sum((K - d) ** 2, "k") * ra.sum(K * d, "k"), "l")


@fuses
def truth_as_a_pivot(x: "l", y: "l"):
    return ra.sum(y - (ra.max(x, "l") > 0.5) * x, "l"), ra.sum((y - ra.any(x > 1, "l")) ** 2, "l")


@fuses
def an_input_called_like_a_value(x: "l", i_value: "l"):
    return ra.take(i_value, ra.argmax(x, "l"), "l") + ra.max(x, "l")


@fuses
def powers_of_two(x: "l", v: "l"):
    e = 2.0 ** (x - ra.max(x, "l"))
    return ra.sum(e * v, "l") / ra.sum(e, "l")


@fuses
def gap_that_is_never_negative(x: "l"):
    return ra.sum(ra.maximum(ra.max(x, "l") - x, 0), "l")


@fuses
def contractions_of_one_input(K: "l k", Q: "k"):
    d = ra.sum((K - ra.mean(K, "l")) * Q, "k")
    return ra.sum(d * ra.sum(K - ra.max(K, "l"), "k"), "l")


@fuses
def fourth_order_contraction(K: "l k"):
    return ra.sum(ra.sum(ra.square(K - ra.mean(K, "l")), "k") ** 2, "l")


@fuses
def sum_about_another_mask(x: "l", y: "l", M: "l"):
    return ra.sum(ra.exp(x - ra.max(y, "l", where=M > -9)), "l"), ra.sum(ra.sin(x - ra.max(y, "l")), "l")


@fuses
def ties_written_as_an_inequality(x: "l", y: "l"):
    return ra.sum(ra.where(x >= ra.max(x, "l"), y, 0), "l"), ra.count(ra.min(x, "l") >= x, "l")


@fuses
def all_below_the_largest(x: "l", y: "l"):
    return ra.sum(y, "l", where=x < ra.max(x, "l"))


@fuses
def ties_written_as_a_difference(x: "l", y: "l"):
    return ra.sum(ra.where(x - ra.max(x, "l") == 0, y, 0), "l"), ra.count(x - ra.min(x, "l") <= 0, "l")


@fuses
def everything_but_unequal(x: "l", y: "l"):
    return ra.sum(ra.where(x != ra.max(x, "l"), 0, y), "l")


@fuses
def clipped_to_its_own_range(x: "l"):
    return ra.sum(ra.clip(x, ra.min(x, "l"), ra.max(x, "l")), "l")


@fuses
def ties_under_a_mask_in_one_condition(x: "l", M: "l"):
    return ra.count((x == ra.max(x, "l", where=M > 0)) & (M > 0), "l")


@fuses
def scaled_power_norm(x: "l"):
    return ra.sum((ra.abs(x) / ra.max(ra.abs(x), "l")) ** 2.5, "l")


@fuses
def members_of_the_top(x: "l", y: "l"):
    return ra.sum(y, "l", where=ra.any(ra.index("l") == ra.topk(x, "l", 2).indices, "top"))


@fuses
def extremes_about_the_mean(x: "l"):
    return ra.max(ra.abs(x - ra.mean(x, "l")), "l"), ra.max(x, "l") - ra.min(x, "l")


@fuses
def unexplained_share(x: "l", y: "l"):
    a, b = x - ra.mean(x, "l"), y - ra.mean(y, "l")
    slope = ra.sum(a * b, "l") / ra.sum(a * a, "l")
    left = y - (slope * x + ra.mean(y, "l") - slope * ra.mean(x, "l"))
    return ra.sum(left * left, "l") / ra.sum(b * b, "l")


@fuses
def weighted_residuals(x: "l", y: "l", w: "l"):
    total = ra.sum(ra.exp(w), "l")
    mu, nu = ra.sum(ra.exp(w) * x, "l") / total, ra.sum(y * ra.exp(w), "l") / total
    return ra.sum(ra.exp(w) * (0.5 * y - 2 * x + (2 * mu - nu / 2)) ** 2, "l")


@fuses
def line_through_another_point(x: "l", y: "l"):
    return ra.sum((y - ra.max(y, "l") - 2 * (x - ra.mean(x, "l"))) ** 2, "l")


@ra.operator
def ninth_moment(x: "l"):
    return ra.sum((x - ra.mean(x, "l")) ** 9, "l")


@ra.operator
def top_of_scaled_under_a_mask(x: "l", M: "l"):
    return ra.topk(ra.exp(x - ra.max(x, "l")), "l", 2, where=M > 0).values


@ra.operator
def log_share(x: "l"):
    p = x / ra.sum(x, "l")
    return -ra.sum(p * ra.log(p), "l")


@ra.operator(assume="x > 0")
def log_share_of_positive(x: "l"):
    p = x / ra.sum(x, "l")
    return -ra.sum(p * ra.log(p), "l")


@sticks
def absolute_deviation(x: "l"):
    return ra.sum(ra.abs(x - ra.mean(x, "l")), "l")


@sticks
def huber_with_a_moving_knot(x: "l"):
    d = ra.mean(ra.abs(x), "l")
    return ra.mean(ra.where(ra.abs(x) < d, 0.5 * x * x, d * (ra.abs(x) - 0.5 * d)), "l")


@sticks
def softmax_of_normalised(x: "l"):
    z = x / ra.sqrt(ra.mean(x * x, "l"))
    return ra.sum(ra.exp(z - ra.max(z, "l")), "l")


@sticks
def mass_above_the_mean(x: "l"):
    return ra.sum(ra.where(x > ra.mean(x, "l"), x, 0), "l")


@sticks
def equal_to_the_mean(x: "l", w: "l"):
    return ra.sum(ra.where(x == ra.mean(x, "l"), w, 0), "l")


@fuses
def payload_at_a_choice_of_positions(x: "l", v: "l"):
    return ra.take(v, ra.argmax(ra.abs(x - ra.mean(x, "l")), "l"), "l")


@fuses
def entropy_through_one_logsumexp(x: "l"):
    m = ra.max(x, "l")
    lse = m + ra.log(ra.sum(ra.exp(x - m), "l"))
    return -ra.sum(ra.exp(x - lse) * (x - lse), "l")


@fuses
def entropy_of_what_has_a_weight(x: "l"):
    p = ra.exp(x - ra.max(x, "l"))
    p = p / ra.sum(p, "l")
    return -ra.sum(p * ra.log(p), "l", where=p > 0)


@fuses
def least_of_the_largest(x: "l", y: "l"):
    return ra.min(ra.where(x == ra.max(x, "l"), y, np.inf), "l"), ra.count(x > ra.max(x, "l"), "l")


@sticks
def number_as_a_condition(x: "l", a: "l"):
    return ra.sum(ra.where(x - ra.mean(x, "l"), a, 0), "l")


@sticks
def payload_of_a_max_that_may_fall(x: "l", y: "l", z: "l", w: "l"):
    c = ra.sum(ra.exp(y), "l", where=x == ra.max(x, "l"))
    return ra.sum(ra.where(z == ra.maximum(ra.max(z, "l"), c), w, 0), "l")


@sticks
def product_of_gaps(x: "l"):
    return ra.prod(ra.max(x, "l") - x, "l")


@sticks
def power_with_a_pivot(x: "l"):
    return ra.sum(ra.abs(x) ** ra.mean(x, "l"), "l")


@sticks
def remainder_by_a_pivot(x: "l"):
    return ra.sum(x % ra.max(ra.abs(x), "l"), "l")

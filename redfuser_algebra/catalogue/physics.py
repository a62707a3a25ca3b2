"""Particles and points l: centres, moments about them, superposition, shape."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.catalogue.draws import identity, positive
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra


def _about_centre(m, r):
    return r - m @ r / m.sum()


@entry(source="rigid-body mechanics; RedFuser §6", reason="rank-R", words=3, inputs={"m": positive},
       reference=lambda m, r: (m @ _about_centre(m, r) ** 2).sum())
def moment_of_inertia(m: "l", r: "l c"):
    """I = Σ m |r_l − R|² about the centre of mass R = Σ m r/Σ m."""
    centre = ra.sum(m * r, "l") / ra.sum(m, "l")
    return ra.sum(m * ra.sum((r - centre) ** 2, "c"), "l")


def _inertia(m, r, basis):
    d = _about_centre(m, r)
    square = (d * d).sum(1)
    return m @ r / m.sum(), (m @ square) * basis - (m[:, None] * d).T @ d @ basis, m @ square


@entry(source="MDAnalysis moment_of_inertia", reason="rank-R", words=5, inputs={"m": positive, "basis": identity},
       reference=_inertia)
def center_of_mass_inertia(m: "l", r: "l c", basis: "c u"):
    """Centre R, the tensor Σ m (|d|²·1 − d dᵀ) with d = r − R applied to the columns of a basis, and Σ m |d|²."""
    centre = ra.sum(m * r, "l") / ra.sum(m, "l")
    d = r - centre
    square = ra.sum(d * d, "c")
    tensor = ra.sum(m * (square * basis - d * ra.sum(d * basis, "c")), "l")
    return centre, tensor, ra.sum(m * square, "l")


def _multipoles(q, m, r, basis):
    d = _about_centre(m, r)
    return q @ d, 3 * (q[:, None] * d).T @ d @ basis - (q @ (d * d).sum(1)) * basis


@entry(source="MDAnalysis dipole_vector, quadrupole_tensor", reason="rank-R", words=6,
       inputs={"m": positive, "basis": identity}, reference=_multipoles)
def dipole_quadrupole(q: "l", m: "l", r: "l c", basis: "c u"):
    """About the centre of mass, d = r − R: dipole Σ q d and quadrupole Σ q (3 d dᵀ − |d|²·1) on a basis."""
    d = r - ra.sum(m * r, "l") / ra.sum(m, "l")
    quadrupole = q * (3.0 * d * ra.sum(d * basis, "c") - ra.sum(d * d, "c") * basis)
    return ra.sum(q * d, "l"), ra.sum(quadrupole, "l")


@entry(source="LAMMPS compute temp/com", reason="rank-R", words=3, inputs={"m": positive},
       reference=lambda m, v: ((m @ _about_centre(m, v) ** 2).sum() / 2, m @ v))
def thermal_kinetic(m: "l", v: "l c"):
    """K = Σ ½ m |v − V|² with the drift V = Σ m v/Σ m taken out, and the momentum Σ m v."""
    momentum = ra.sum(m * v, "l")
    drift = momentum / ra.sum(m, "l")
    return ra.sum(0.5 * m * ra.sum((v - drift) ** 2, "c"), "l"), momentum


@entry(source="ASE get_angular_momentum", reason="rank-R", words=6, inputs={"m": positive},
       reference=lambda m, r, v: tuple(m @ np.cross(_about_centre(m, r), _about_centre(m, v))))
def angular_momentum_com(m: "l", r: "l c", v: "l c"):
    """The three components of J = Σ m (r − R)×(v − V)."""
    total = ra.sum(m, "l")
    r, v = (w - ra.sum(m * w, "l") / total for w in (r, v))
    (x, y, z), (u, w, s) = ([ra.take(vector, i, "c") for i in range(3)] for vector in (r, v))
    return tuple(ra.sum(m * j, "l") for j in (y * s - z * w, z * u - x * s, x * w - y * u))


def _kabsch(X, Y):
    X, Y = X - X.mean(0), Y - Y.mean(0)
    U, _, Vt = np.linalg.svd(X.T @ Y)
    turn = U @ np.diag([1, np.linalg.det(U @ Vt)]) @ Vt
    return np.sqrt(((X @ turn - Y) ** 2).sum() / len(X))


@entry(source="Kabsch 1976; MDAnalysis rms", reason="rank-R", words=10, shortest=3, reference=_kabsch)
def kabsch_rmsd(X: "l plane", Y: "l plane"):
    """RMSD of two centred point sets of the plane after the best rotation, whose angle is atan2(Σ x×y, Σ x·y)."""
    (x, y), (u, w) = ([ra.take(P - ra.mean(P, "l"), i, "plane") for i in range(2)] for P in (X, Y))
    angle = ra.arctan2(ra.sum(x * w - y * u, "l"), ra.sum(x * u + y * w, "l"))
    c, s = ra.cos(angle), ra.sin(angle)
    return ra.sqrt(ra.mean((c * x - s * y - u) ** 2 + (s * x + c * y - w) ** 2, "l"))


def _scattering(m, x):
    wave = np.exp(1.3j * _about_centre(m, x)).sum()
    return wave.real, wave.imag


@entry(source="scattering; freud StaticStructureFactor", reason="rank-R", words=4, inputs={"m": positive},
       reference=_scattering)
def structure_factor_com(m: "l", x: "l"):
    """Σ cos k(x − R) and Σ sin k(x − R) with k = 1.3 and R = Σ m x/Σ m."""
    angle = 1.3 * (x - ra.sum(m * x, "l") / ra.sum(m, "l"))
    return ra.sum(ra.cos(angle), "l"), ra.sum(ra.sin(angle), "l")


def _fox_wolfram(p, basis):
    a = np.sqrt((p * p).sum(1))
    cosine = p @ p.T / np.outer(a, a)
    return (np.outer(a, a) * (3 * cosine ** 2 - 1) / 2).sum() / a.sum() ** 2


@entry(source="Fox & Wolfram 1978; PYTHIA event shapes", reason="no-pivot", words=2, inputs={"basis": identity},
       reference=_fox_wolfram)
def fox_wolfram_h2(p: "l c", basis: "c u"):
    """H₂/H₀ = Σ_ij |p_i||p_j| P₂(cos θ_ij)/(Σ |p|)², by the addition theorem ½ (3 ‖Σ p pᵀ/|p|‖²/(Σ |p|)² − 1)."""
    a = ra.sqrt(ra.sum(p * p, "c"))
    tensor = ra.sum(p * ra.sum(p * basis, "c") / a, "l")
    return 1.5 * ra.sum(tensor ** 2, "c u") / ra.sum(a, "l") ** 2 - 0.5


@entry(source="axis-aligned bounding volumes", reason="tropical-R", words=4,
       reference=lambda X: np.abs(X - X.mean(0)).max())
def chebyshev_radius_2d(X: "l plane"):
    """r = max_l max_c |X_lc − mean_c|."""
    return ra.max(ra.max(ra.abs(X - ra.mean(X, "l")), "plane"), "l")


@entry(source="MDAnalysis bsphere; trimesh bounding radius", verdict="not fusable", reason="envelope",
       reference=lambda X: np.linalg.norm(X - X.mean(0), axis=1).max())
def farthest_from_centroid_2d(X: "l plane"):
    """r = max_l ‖X_l − mean‖: every vertex of the hull is the farthest point of some centre."""
    return ra.max(ra.sqrt(ra.sum((X - ra.mean(X, "l")) ** 2, "plane")), "l")


@entry(source="sklearn davies_bouldin_score", verdict="not fusable", reason="unbounded-rank",
       reference=lambda X: np.linalg.norm(X - X.mean(0), axis=1).mean())
def mean_distance_to_centroid(X: "l plane"):
    """S = mean ‖X_l − mean‖."""
    return ra.mean(ra.sqrt(ra.sum((X - ra.mean(X, "l")) ** 2, "plane")), "l")


def _extent(X):
    c = X - X.mean(0)
    return np.ptp(c @ np.linalg.eigh(c.T @ c)[1][:, 1])


@entry(source="open3d and trimesh oriented bounding box", verdict="not fusable", reason="envelope", shortest=3,
       inputs={"X": lambda rng, shape: rng.standard_normal(shape) * np.array([2.0, 1.0])}, reference=_extent)
def pca_obb_extent(X: "l plane"):
    """Extent max − min along the first principal axis, at the angle ½ atan2(2 S_xy, S_xx − S_yy)."""
    x, y = (ra.take(X - ra.mean(X, "l"), i, "plane") for i in range(2))
    xy, difference = ra.sum(x * y, "l"), ra.sum(x * x - y * y, "l")
    angle = 0.5 * ra.arctan2(2.0 * xy, difference)
    along = x * ra.cos(angle) + y * ra.sin(angle)
    return ra.max(along, "l") - ra.min(along, "l")

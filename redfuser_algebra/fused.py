"""The front door's objects: `fuse` and `decide`, what they return, and what they raise."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO

from redfuser_algebra.discover.asking import Settings
from redfuser_algebra.discover.discovery import Discovery
from redfuser_algebra.discover.display import fused_html, verdict_html
from redfuser_algebra.discover.egraph import Limits
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.discover.refusal import Refusal
from redfuser_algebra.discover.verdict import FUSABLE, PARTLY
from redfuser_algebra.gradient import Gradient, gradient_of
from redfuser_algebra.in_passes import Passes, in_passes
from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.nearest import Variant, nearest
from redfuser_algebra.pipeline import Decision, fuses
from redfuser_algebra.pipeline import decide as run_passes
from redfuser_algebra.prove.certificate import Certificate, Heard, Progress, certify
from redfuser_algebra.prove.export.proof_module import proof_module
from redfuser_algebra.prove.proof import Proof, proved
from redfuser_algebra.run.cpu import is_worth_a_kernel
from redfuser_algebra.run.cuda import CudaKernel, factors_of, format_of, made_cuda
from redfuser_algebra.run.dask import run_dask
from redfuser_algebra.run.dtypes import in_dtypes, result_dtypes
from redfuser_algebra.run.export import exported_cpu, exported_cuda
from redfuser_algebra.run.files import save_text
from redfuser_algebra.run.kernel import Kernel, made_kernel
from redfuser_algebra.run.laid_out import delivered
from redfuser_algebra.run.reference import fused_by_chunks, reference
from redfuser_algebra.run.repeated_calls import Calls
from redfuser_algebra.run.stream import Stream
from redfuser_algebra.run.tune import tune

CHUNK = 4096
"""Elements of the reduced axis that the NumPy interpreter takes at a time."""

BACKENDS = ("auto", "cpu", "cuda", "numpy", "reference")
TARGETS = ("cpu", "cuda")
PREFERENCES = ("centred", "raw")


class NotFusable(RedfuserError):
    """No fused form was found; `refusal` says what stood in the way, `verdict` whether that is proved."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.refusal = verdict, verdict.refusal
        super().__init__(f"fusing {verdict.operator.name}", f"{verdict.status} ({verdict.reason}): {self.refusal}", ", or ".join(_remedies(verdict)))


def _remedies(verdict: Verdict) -> Iterator[str]:
    """What can be done about an operator that does not fuse, from what keeps its meaning to what changes it."""
    yield from (f'fuse it over {found.cascade.axis} (axis="{found.cascade.axis}")' for found in verdict.discoveries if found.form)
    cut = len(verdict.refusal.passes)
    if cut > 1:
        yield f"run it in {cut} passes (in_passes() of its verdict, `redfuser export --passes`)"
    yield "look for a variant that fuses (nearest() of its verdict, `redfuser fuse`)"


@dataclass(frozen=True)
class Verdict:
    """What was decided about an operator: `status` and `reason` in the words of DESIGN §2, and the evidence."""

    operator: Operator
    status: str
    reason: str
    fused: Fused | None
    refusal: Refusal | None
    decision: Decision

    @property
    def discoveries(self) -> tuple[Discovery, ...]:
        """What was found for each cascade."""
        return self.decision.discoveries

    @property
    def fusable(self) -> bool:
        """Whether there is a fused form to run (also one that is exact only over the reals, or under a condition)."""
        return self.status in (FUSABLE, PARTLY)

    def in_passes(self) -> Passes:
        """The operator in as few passes as the laws can find: an operator for each, fused, and called as one.

        What fuses takes one pass; what has no passes, since the search hit a limit, takes one for each reduction.
        """
        cascade = self.decision.main.cascade
        names = [reduction.name for reduction in cascade.reductions]
        cut = (tuple(names),) if self.fused else self.refusal.passes or tuple((name,) for name in names)
        return in_passes(self.operator, cascade, cut, self._decided)

    def nearest(self) -> tuple[Variant, ...]:
        """The operators that differ from this one in one change, or else in two, and fuse; none if this one does.

        Changes are: roundings may move, or are left out; an exponent is a number; bounds that depend on earlier results
        are left out.  Each variant has its `change`, in words, and its `verdict`.
        """
        fused_over = partial(fuses, axis=self.decision.main.cascade.axis, settings=self.decision.settings)
        return () if self.fusable else nearest(self.operator, self._decided, fused_over)

    def _decided(self, operator: Operator) -> Verdict:
        """The verdict on an operator made of this one."""
        settings = self.decision.settings
        return decide(operator, axis=self.decision.main.cascade.axis, prefer=settings.prefer, limits=settings.limits)

    def prove(self, *, progress: Progress | None = None, **how: object) -> Proof:
        """The evidence: the form's certificate (`how` as for `certify`), or the refusal's witness computed again."""
        return proved(self, progress, **how)

    def proof_text(self) -> str:
        """A Python module that checks the verdict again without this package.  Raises OperatorError where there is none."""
        return proof_module(self)

    def __str__(self) -> str:
        return f"{self.operator.name}: {self.status} ({self.reason})" + (f"\n{self.refusal}" if self.refusal else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return verdict_html(self)


@dataclass(frozen=True)
class Fused:
    """An operator in one pass.  Call it with arrays; `form` says what it does, `stream()` runs it piece by piece."""

    operator: Operator
    form: FusedForm
    decision: Decision

    def __call__(self, /, *arrays: object, backend: str = "auto", out: object = None, **named: object) -> object:
        """The outputs for arrays given by position or name, scalars by name; leading extra dimensions are batch.

        Real outputs are float64 if any array is, or if none is real; else float32 (`run/dtypes.py` has the rule).
        `backend` "auto" runs a compiled CPU kernel where the work is worth compiling one, or one is compiled already,
        and NumPy otherwise.  "cpu" always runs the kernel (NumPy where there is none); "numpy" runs the fused form in
        float64, chunk by chunk; "reference" evaluates the operator as written; "cuda" runs a kernel on a GPU and raises
        OperatorError where there is none.  `out` is an array (a tuple of them, if there are several outputs) to write to.
        Raises OperatorError for arrays that do not fit.
        """
        into = () if out is None else out if isinstance(out, tuple) else (out,)
        operator = self.operator
        return operator.widened(self._computed(arrays, named, backend, operator.narrowed(into)))

    def _computed(self, arrays: tuple, named: dict[str, object], backend: str, into: tuple) -> object:
        """The outputs without their dimensions of length one."""
        if backend not in BACKENDS:
            raise OperatorError(f"{self.operator.name} with backend={backend!r}", "there is no such backend here",
                                f"choose one of {', '.join(BACKENDS)}")
        if backend in ("auto", "cpu") and (result := self._calls.again(arrays, named, into)) is not None:
            return result
        binding = self.operator.bind(*arrays, **named)
        dtypes = result_dtypes(self.operator, {name: array.dtype for name, array in binding.arrays.items()}, binding.params)
        if backend == "cpu" or backend == "auto" and is_worth_a_kernel(self.operator, self.form, binding):
            result = self._calls.first(binding, arrays, named, into, dtypes)
            if result is not None:
                return result
        if backend == "cuda":
            given = {name: array.dtype for name, array in binding.arrays.items()}
            result = self._on_gpu(format_of(given.values()), factors_of(given)).launched(binding)
        elif backend == "reference":
            result = reference(self.operator.as_written, self.operator.as_written.bind(*arrays, **named))
        else:
            length = binding.sizes[self.form.axis]
            result = fused_by_chunks(self.operator, self.form, binding, [CHUNK] * (length // CHUNK) + [length % CHUNK] * bool(length % CHUNK))
        return delivered(self.operator, in_dtypes(self.operator, result, dtypes), into)

    @cached_property
    def _calls(self) -> Calls:
        return Calls(self.operator, self.form)

    def _on_gpu(self, dtype: str, factors: Mapping[str, str]) -> CudaKernel:
        """The kernel for real numbers of a dtype and of eight bits, made when first asked for."""
        key = dtype, *factors.items()
        if key not in self._gpu_kernels:
            self._gpu_kernels[key] = made_cuda(self.operator, self.form, dtype, factors=factors or None)
        return self._gpu_kernels[key]

    @cached_property
    def _gpu_kernels(self) -> dict[tuple, CudaKernel]:
        return {}

    def kernel(self, target: str = "cpu", *, dtype: str | Mapping[str, str] = "float32", schedule: Schedule | None = None,
               arch: str = "sm_90a", factors: str | Mapping[str, str] | None = None) -> Kernel | CudaKernel:
        """The kernel for arrays of a dtype (one for all real ones, or one per input): `.source`, `.schedule`, callable.

        Inputs that the operator uses as truth values or as whole numbers are taken as such.  Without `schedule` each
        call chooses by its sizes.  For "cuda" there is one dtype, float16 and bfloat16 among them, `.audit()` needs no
        GPU, `arch` is what it executes, and of `schedule` only `wgmma` counts; `factors` says which inputs are floats of
        eight bits, float8_e4m3 or float8_e5m2: one format for all that matrix products take as they lie in memory, or
        one by name.  Raises OperatorError or LoweringError for a target, dtype or form without kernels.
        """
        if target not in TARGETS:
            raise OperatorError(f"the kernel of {self.operator.name} for {target!r}", "there is no such target here",
                                f"choose one of {', '.join(TARGETS)}")
        if target == "cuda":
            return made_cuda(self.operator, self.form, dtype, arch, schedule, factors)
        self._check_no_factors(factors)
        return made_kernel(self.operator, self.form, dtype, schedule)

    def _check_no_factors(self, factors: object) -> None:
        if factors is not None:
            raise OperatorError(f"a CPU kernel of {self.operator.name} with factors {factors!r}", "its arrays are widened on their way in",
                                "leave factors out: arrays of ml_dtypes are taken as they are")

    def tune(self, /, *arrays: object, progress: Callable[[int, int], None] | None = None, **named: object) -> dict[Schedule, float]:
        """Measure the CPU kernel's schedules on these arrays: seconds of each, fastest first.

        Later calls of about these lengths use the fastest; it is kept on disk, after each measurement, so that stopping
        loses nothing.  `progress` hears (done, of how many).  Raises OperatorError where there is no kernel.
        """
        return tune(self.operator, self.form, self.operator.bind(*arrays, **named), progress)

    def stream(self, /, start: int | None = None, length: int | None = None, **given: object) -> Stream:
        """A running state over the reduced axis: `.update(chunk…)`, `.merge(other)`, `.result()`.

        `length` is the number of elements in all, where `form.length_given` says that they depend on it.
        """
        return Stream(self.operator, self.form, start, length, **given)

    def load_stream(self, file: str | Path | IO[bytes]) -> Stream:
        """A stream that `.save(file)` wrote, here or on another machine; it may go on, or be merged into another.

        Raises OperatorError for a file that is no saved stream of this form.
        """
        return Stream.load(self.operator, self.form, file)

    def dask(self, /, *arrays: object, **named: object) -> object:
        """The outputs for dask arrays, chunked along any axis, as dask arrays: lift, merge and finalize in dask's own tree.

        Lazy, on any scheduler; the same chunks give the same bits.  Raises OperatorError where dask is not installed
        and for arrays that do not fit.
        """
        return run_dask(self.operator, self.form, arrays, named)

    def gradient(self) -> Gradient:
        """The vector–Jacobian product, as fused operators of the inputs, of saved rows' results and of cotangents.

        What varies along the swept axis is not stored but computed again from what the forward pass leaves of each row.
        States of scans are stored where the derivative, which goes from the last element to the first, reads them.  At a
        tie the first of equal elements wins.  Raises OperatorError, which names the term, where there is no derivative.
        """
        return gradient_of(self.operator, self.form.axis, decide)

    @cached_property
    def certificate(self) -> Certificate:
        """The evidence that the form is right, obligation by obligation; `certify` asks for more of it."""
        return self.certify()

    def certify(self, *, examples: int | None = None, seed: int = 0, deep: bool = False,
                progress: Callable[[int, int], None] | None = None, heard: Heard = lambda id, evidence: None) -> Certificate:
        """The certificate with so many examples (40; 1000 if `deep`) from this seed.

        `progress` is told (done, of how many), `heard` each piece of evidence as it is found, with the obligation's id.
        """
        return certify(self.operator, self.decision.main.cascade, self.form, examples=examples, seed=seed, deep=deep,
                       interpreter=fused_by_chunks, progress=progress, heard=heard)

    def export(self, path: str | Path, *, target: str = "cpu", dtype: str = "float32", schedule: Schedule | None = None,
               certificate: Certificate | str | None = None, arch: str = "sm_90a", factors: str | Mapping[str, str] | None = None) -> Path:
        """Write a kernel as a file of its own, which needs NumPy and Numba (or numba-cuda) and checks itself when run; its path.

        The same form, dtype and schedule give the same bytes on every machine; `arch` and `factors` are for "cuda", as in
        `kernel`.  The header names the hash of the certificate, which is made if none is given; a text is taken for such
        a hash.  Raises OperatorError for an unknown target or dtype, a certificate of something else, and a path that
        cannot be written; LoweringError where there is no kernel.
        """
        if target not in TARGETS:
            raise OperatorError(f"exporting {self.operator.name} with target={target!r}", "there is no such target here",
                                f"choose one of {', '.join(TARGETS)}")
        if target == "cpu":
            self._check_no_factors(factors)
        kernel = self.kernel("cuda", dtype=dtype, schedule=schedule, arch=arch, factors=factors) if target == "cuda" else None
        certificate = certificate or self.certificate
        if isinstance(certificate, Certificate) and not certificate.speaks_of(self.operator, self.form):
            raise OperatorError(f"exporting {self.operator.name} with a certificate", "it speaks of another operator or form",
                                "give the certificate of this form, or none")
        digest = certificate if isinstance(certificate, str) else certificate.hash
        text = exported_cuda(kernel, digest) if kernel else exported_cpu(self.operator, self.form, digest, dtype, schedule)
        return save_text(Path(path), text)

    def __str__(self) -> str:
        return f"{self.operator}\n\n{self.form}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return fused_html(self.operator, self.form)


def fuse(operator: Operator | Callable, *, axis: str | None = None, prefer: str = "centred",
         limits: Limits | None = None) -> Fused:
    """The fused form of an operator.

    `prefer="raw"` keeps sums that never move where that is possible (the form then states the danger).  Raises
    NotFusable, with `.refusal`, and OperatorError for an operator that makes no sense.
    """
    verdict = decide(operator, axis=axis, prefer=prefer, limits=limits)
    if verdict.fused is None:
        raise NotFusable(verdict)
    return verdict.fused


def decide(operator: Operator | Callable, *, axis: str | None = None, prefer: str = "centred",
           limits: Limits | None = None) -> Verdict:
    """Whether an operator can run in one pass: fusable, partly, not fusable or undecided, with the evidence."""
    if prefer not in PREFERENCES:
        raise OperatorError(f"prefer={prefer!r}", "there is no such preference", f"choose one of {', '.join(PREFERENCES)}")
    if not isinstance(limits, Limits | None):
        raise OperatorError(f"limits={limits!r:.60}", "it does not say how far to search", "give ra.Limits(nodes=…)")
    decision = run_passes(operator, axis, Settings(limits or Limits(), prefer))
    main = decision.main
    fused = Fused(decision.operator, main.form, decision) if main.form else None
    return Verdict(decision.operator, decision.status, decision.reason, fused, main.refusal, decision)

"""Functions and modules of torch become operators: they are called once with tensors that record what is done to them.

In: a function of tensors or a module, and its arguments by example or by the names of their axes.  Out: an `Operator`
in which parameters and buffers of the module are inputs.  Torch is imported when this is used, and by nothing else.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from unittest.mock import patch

import numpy as np

from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.numpy_trace import excerpt_of, trace
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.tracing.array import Length, Traced
from redfuser_algebra.language.tracing.lengths import current
from redfuser_algebra.language.tracing import torch_losses  # noqa: F401  (it enters what it handles)
from redfuser_algebra.language.tracing.patched import numeric
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.torch_functions import TORCH, WHY


def operator_from_torch(function: Callable, /, *examples: object, name: str | None = None, assume: str = "", **given: object) -> Operator:
    """The operator that a function written with torch, or a module, computes.

    Its arguments are given as for `trace`: by example (tensors or arrays, also by position), or by name as the names of
    their axes (`Q="m k"`), as `float` for a parameter or as its default.  What a module reads of its own parameters and
    buffers becomes inputs named by their paths, `norm.weight` as norm_weight; call the operator with their values.  Float
    formats from float32 up are the ones that is computed in; `.half()` and its like round.

    Raises OperatorError, with the line named, for functions of torch without a meaning here and for branches on
    elements; and where torch is not installed.
    """
    try:
        torch = import_module("torch")
    except ImportError:
        raise OperatorError("an operator from torch", "torch is not installed", "install torch, or write the function with NumPy for ra.trace") from None
    forward = getattr(function, "forward", function)
    arguments = _arguments(forward, examples, given)
    tensors = _tensors(function)
    shapes = {own: np.broadcast_to(0.0, tuple(tensor.shape)) for own, tensor in tensors.items() if own not in arguments}
    name = name or (type(function).__name__.lower() if forward is not function else getattr(function, "__name__", "traced"))
    name = name if name.isidentifier() else "traced"
    run = _Run(torch, function, tensors, [*arguments])
    operator = trace(run, name=name, assume=assume, **arguments, **shapes)
    read = {term.name for term in subterms(*operator.outputs) if term.op == "input"} | {*arguments}
    return trace(run, name=name, assume=assume, **{own: value for own, value in (arguments | shapes).items() if own in read})


def _arguments(forward: Callable, examples: tuple, given: Mapping[str, object]) -> dict[str, object]:
    """The arguments by name; tensors as arrays of their shape."""
    if not callable(forward):
        raise OperatorError(f"an operator from {forward!r:.60}", "it is neither a function nor a module", "give what computes with tensors")
    parameters = [each for each in inspect.signature(forward).parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if len(examples) > len(parameters):
        raise OperatorError(f"an operator from torch with {len(examples)} examples", f"the function has {len(parameters)} arguments", "give one for each")
    found = {each.name: example for each, example in zip(parameters, examples, strict=False)} | dict(given)
    missing = [each.name for each in parameters if each.default is each.empty and each.name not in found]
    if missing:
        raise OperatorError("an operator from torch", f"nothing says what {missing[0]} is", f'give an example tensor, or name its axes, as in {missing[0]}="l"')
    return {key: np.broadcast_to(0.0, tuple(value.shape)) if hasattr(value, "__torch_function__") else value for key, value in found.items()}


def _tensors(function: object) -> dict[str, object]:
    """The parameters and buffers of a module, by names that operators can have."""
    if not hasattr(function, "named_parameters"):
        return {}
    return {path.replace(".", "_"): tensor for path, tensor in (*function.named_parameters(), *function.named_buffers())}


class _Run:
    """A function of traced arrays that calls one of tensors, with torch's functions taken over for that time."""

    def __init__(self, torch: ModuleType, function: Callable, tensors: Mapping[str, object], arguments: list[str]) -> None:
        self.torch, self.function, self.tensors, self.arguments = torch, function, tensors, arguments
        kind = inspect.Parameter.KEYWORD_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(key, kind, default=None) for key in dict.fromkeys((*arguments, *tensors))])
        self.__doc__ = inspect.getdoc(function) if inspect.isfunction(function) else ""

    def __call__(self, **given: object) -> object:
        class Recording(import_module("torch.overrides").TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                return called(function, args, kwargs or {})

        own = {key: tensor_of(value) for key, value in given.items() if key in self.arguments}
        token = _inputs.set({id(tensor): _as_shaped(given[key], tensor) for key, tensor in self.tensors.items() if key in given})
        with Recording(), patch.object(self.torch, "arange", numeric(self.torch.arange)):
            try:
                return plain(self.function(**own))
            except RedfuserError:
                raise
            except Exception as error:
                raise OperatorError("an operator from torch", f"its function raised {type(error).__name__}: {error}".partition("\n")[0],
                                    "use torch's functions over whole tensors, or write that part in the front-door language",
                                    excerpt_of(error)) from error
            finally:
                _inputs.reset(token)


def _as_shaped(array: object, tensor: object) -> object:
    """What stands for a tensor of the module, whose dimensions of length one meet any other, as in torch."""
    ones = tuple(place for place, length in enumerate(tensor.shape) if length == 1) if isinstance(array, Traced) else ()
    for place in ones:
        current.get().fix(array.dims[place][0], 1)
    return np.sum(array, axis=ones, keepdims=True) if ones else array


_inputs: ContextVar[Mapping[int, Traced]] = ContextVar("_inputs", default={})
"""What stands for each tensor of the module that is being traced, by its identity."""


def called(function: Callable, args: tuple, kwargs: dict) -> object:
    """One of torch's functions: recorded if something traced is among its arguments, otherwise as it is."""
    operands = plain(args), plain(kwargs)
    if not _has_traced(operands):
        return function(*args, **kwargs)
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        return getattr(tensor_of(operands[0][0]), function.__self__.__name__)
    return recorded(name, *operands[0], **operands[1])


def recorded(name: str, *args: object, **kwargs: object) -> object:
    """What one of torch's names means for traced arrays, as tensors.  A name that ends in _ writes in place."""
    word = name.strip("_")
    if word not in TORCH:
        raise refused(f"torch.{word} in traced code", WHY.get(word, "it is not followed"),
                      "write that part in the front-door language (ra.sum, ra.exp, …), or pass its result as an input")
    result = TORCH[word](*args, **kwargs)
    return tensor_of(args[0].overwritten(result) if name.endswith("_") and not name.startswith("_") else result)


def plain(value: object) -> object:
    """Tensors as arrays: traced ones, those of the module that are inputs, and constants."""
    if isinstance(value, Tensor):
        return value.array
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        parts = [plain(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts) if type(value) in (tuple, list) else tuple(parts)
    if id(value) in _inputs.get():
        return _inputs.get()[id(value)]
    return value.detach().cpu().numpy() if hasattr(value, "detach") and hasattr(value, "layout") else value


def _has_traced(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_traced, value.values()))
    return any(map(_has_traced, value)) if isinstance(value, tuple | list) else isinstance(value, Traced)


def tensor_of(value: object) -> object:
    """Traced arrays as tensors, also inside tuples; anything else as it is."""
    if isinstance(value, Traced):
        return Tensor(value)
    if isinstance(value, tuple) and _has_traced(value):
        parts = map(tensor_of, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


class Tensor:
    """A traced array in the eyes of code that computes with torch."""

    __array_ufunc__ = None

    def __init__(self, array: Traced) -> None:
        self.array = array

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        return called(function, args, kwargs or {})

    @property
    def shape(self) -> tuple[Length | int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def T(self) -> Tensor:
        return recorded("t", self.array)

    @property
    def mT(self) -> Tensor:
        return recorded("transpose", self.array, -1, -2)

    @property
    def dtype(self) -> object:
        return import_module("torch").float32

    @property
    def device(self) -> object:
        return import_module("torch").device("cpu")

    def __len__(self) -> int:
        return len(self.array)

    def __bool__(self) -> bool:
        return bool(self.array)

    def __float__(self) -> float:
        return float(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __iter__(self) -> object:
        return iter(self.array)

    def __setitem__(self, key: object, value: object) -> None:
        self.array[plain(key)] = plain(value)

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: recorded(name, self.array, *plain(args), **plain(kwargs))

    def __repr__(self) -> str:
        return f"Tensor({self.array!r})"


def _operator(name: str) -> Callable:
    def method(self: Tensor, *others: object) -> Tensor:
        return recorded(name, self.array, *plain(others))

    method.__name__ = name
    return method


for _name in """add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow matmul rmatmul neg abs invert and rand or ror
        eq ne lt le gt ge getitem""".split():
    setattr(Tensor, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Tensor, f"__i{_name}__", _operator(f"{_name}_"))
Tensor.__hash__ = object.__hash__

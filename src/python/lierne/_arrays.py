"""Buffers of calls: numpy arrays, and anything that exports DLPack (torch, jax, cupy).

Where the type of an array has DLPack's C exchange API, its function describes the array in place. Otherwise the
capsule of DLPack is read in place and never consumed: its producer frees it when the call has ended. numpy's own
reader knows no bfloat16 and marks what it reads as read-only."""
import ctypes
import functools
import math
import operator

import numpy as np

from lierne._library import call, ffi, lib, text

try:  # numpy has no bfloat16 of its own
    from ml_dtypes import bfloat16 as _BF16
except ImportError:
    _BF16 = np.uint16

_NUMPY = {"f64": np.float64, "f32": np.float32, "bf16": _BF16, "f16": np.float16, "i64": np.int64,
          "i32": np.int32, "i8": np.int8, "u8": np.uint8, "bits8": np.uint8, "bits16": np.uint16,
          "bits32": np.uint32, "bits64": np.uint64, "bits128": np.complex128}
_NAMES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "int64": "i64",
          "int32": "i32", "int8": "i8", "uint8": "u8", "bool": "bits8", "int16": "bits16",
          "uint16": "bits16", "uint32": "bits32", "uint64": "bits64", "complex64": "bits64",
          "complex128": "bits128"}
# The address of an empty buffer: NULL as an output would mean that the input is to be its alias.
NOWHERE = ffi.new("char[16]")
# Devices of DLPack whose memory plans of a kind take: kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged.
_DEVICES = {"host": (1, 3), "cuda": (2, 3, 13)}
_DLPACK = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_COMPLEX = 5


class _Tensor(ctypes.Structure):
    """DLTensor of the DLPack standard."""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI of the DLPack standard, version 1."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
                ("functions", ctypes.c_void_p * 3), ("describe", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


_describer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def dtype_name(dtype):
    """lierne's name ("bf16") of a dtype: such a name, or one of numpy, torch or jax.

    Types without arithmetic in lierne (bool, int16, complex, fp8) are opaque: "bits8" and so on."""
    if isinstance(dtype, str) and dtype in _NUMPY:
        return dtype
    if dtype is None:
        raise TypeError(f"dtype is None, must be one of {', '.join(_NUMPY)}, or of numpy or torch")
    name = str(dtype).rsplit(".", 1)[-1] if "torch." in str(dtype) else None
    if name is None:
        try:
            name = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"dtype is {dtype!r}, must be one of {', '.join(_NUMPY)}, or of numpy or "
                            "torch") from None
        if not name.isnative:
            raise TypeError(f"lierne has no dtype for {name.str!r}: its bytes are in the other order")
        name = name.name
    if name in _NAMES:
        return _NAMES[name]
    if name.startswith("float8"):
        return "bits8"
    raise TypeError(f"lierne has no dtype for {dtype} (it has {', '.join(_NUMPY)})")


name_of = functools.lru_cache(maxsize=None)(dtype_name)  # of dtypes, in every call


def dtype_number(dtype):
    """The enum lierne_dtype of a dtype."""
    number = ffi.new("lierne_dtype *")
    call(lib.lierne_dtype_parse, number, dtype_name(dtype).encode())
    return number[0]


def numpy_dtype(name):
    """The numpy dtype in which results of a dtype of lierne are returned; bf16 without the package
    ml_dtypes as uint16, bits128 as complex128."""
    return np.dtype(_NUMPY[name])


def dtype_of_number(number):
    return text(lib.lierne_dtype_name(number))


def _contiguous(shape, strides):
    if 0 in shape:
        return True  # strides of nothing may be any
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


@functools.lru_cache(maxsize=64)
def _describer_of(kind):
    """The C function that describes arrays of a type, where it has DLPack's C exchange API of version 1."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    address = capsule and _pointer_of(capsule, b"dlpack_exchange_api")
    while address:
        exchange = _Exchange.from_address(address)
        if exchange.major == 1:
            return _describer(exchange.describe) if exchange.describe else None
        address = exchange.older
    return None


def _described(array):
    """The array's DLTensor by the C function of its type; None where only __dlpack__ tells whether it may be
    exported: torch's function describes what needs a gradient, and conjugates as if they were none."""
    describe = None if getattr(array, "requires_grad", False) else _describer_of(type(array))
    if describe is None:
        return None
    tensor = _Tensor()
    try:
        failed = describe(array, tensor)
    except Exception:  # the message of __dlpack__ is made for readers
        return None
    return None if failed or tensor.code == _COMPLEX else tensor


def _exported(array, memory):
    """(DLTensor, what owns it)"""
    tensor = _described(array)
    if tensor is not None:
        return tensor, array
    # On a device the call is ordered by its stream: the producer need not wait for anything.
    capsule = array.__dlpack__() if memory == "host" else array.__dlpack__(stream=-1)
    return _Tensor.from_address(_pointer_of(capsule, b"dltensor")), (capsule, array)


@functools.lru_cache(maxsize=64)
def _dlpack_name(code, bits, lanes):
    """lierne's name of a dtype of DLPack."""
    kind = _DLPACK.get(code, "opaque")
    name = f"bits{bits * lanes}"
    return name if kind == "opaque" else _NAMES.get("bool" if kind == "bool" else f"{kind}{bits}", name)


def _read_dlpack(array, memory):
    """(address, shape, name of the dtype, contiguous, what owns the memory)"""
    tensor, keep = _exported(array, memory)
    if tensor.device not in _DEVICES[memory]:
        raise TypeError(f"the array is in memory of DLPack device {tensor.device}; plans of this "
                        f"context take {memory} memory")
    shape = tuple(tensor.shape[:tensor.ndim])
    flat = not tensor.strides or _contiguous(shape, tensor.strides[:tensor.ndim])
    name = _dlpack_name(tensor.code, tensor.bits, tensor.lanes)
    return (tensor.data or 0) + tensor.offset, shape, name, flat, keep


def _read(array, writable, what, memory):
    if isinstance(array, np.ndarray) and memory == "host":
        if writable and not array.flags.writeable:
            raise ValueError(f"{what} is read-only")
        name = name_of(array.dtype)
        return array.ctypes.data, array.shape, name, array.flags.c_contiguous, array
    if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
        return _read_dlpack(array, memory)
    raise TypeError(f"{what} is a {type(array).__name__}; it must " +
                    ("be a numpy array or export DLPack" if memory == "host" else f"export DLPack of {memory} memory"))


def _same_type(given, wanted):
    """Opaque types, and bf16 without a type in numpy, only need the size."""
    if given == wanted:
        return True
    size = lambda name: lib.lierne_dtype_size(dtype_number(name))  # noqa: E731
    loose = given.startswith("bits") or wanted.startswith("bits")
    return loose and size(given) == size(wanted)


def stream_of(stream):
    """The address of a stream: an integer, or what torch's streams (cuda_stream) and cupy's (ptr) have. Theirs
    is 0 for the default stream, which is cudaStreamLegacy, 1. NULL for None."""
    if stream is None:
        return ffi.NULL
    number = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    return ffi.cast("void *", operator.index(number) or 1)


def borrow(array, dtype, shape, writable, what, memory="host"):
    """The memory of an array for one call, as (pointer, what keeps it alive).

    The array must be contiguous, of the plan's dtype, and have as many elements as `shape`, which
    must be its own shape where it has as many axes. None stands for an empty buffer."""
    if array is None and not writable:
        return ffi.NULL, None
    address, own, name, flat, keep = _read(array, writable, what, memory)
    if not _same_type(name, dtype):
        raise TypeError(f"{what} has dtype {name}; the plan's is {dtype}")
    if not flat:
        raise ValueError(f"{what} is not contiguous (row-major)")
    shape = tuple(shape)
    if tuple(own) != shape and (len(own) == len(shape) or math.prod(own) != math.prod(shape)):
        raise ValueError(f"{what} has shape {tuple(own)}; the plan needs {shape} on this rank")
    return ffi.cast("void *", address or NOWHERE), keep

"""The C library: loaded, its statuses as exceptions, its specs filled from keyword arguments.

Structs, enums and functions are those of the generated module _binding; nothing of them is written
here. A spec is filled by the types that its struct declares, so that a new field of a header can be
used without a change of this file."""
import operator
import os
import reprlib

import numpy as np

from lierne import _binding
from lierne._binding import ffi

_FOLDER = os.path.join(os.path.dirname(__file__), "lib")
_NUMBERS = {"int": np.int32, "int32_t": np.int32, "int64_t": np.int64, "uint8_t": np.uint8,
            "double": np.float64}
# Python's own exceptions that a caller of Python code expects to catch.
_BUILTIN = {"INVALID": ValueError, "NO_MEMORY": MemoryError, "OVERFLOW": OverflowError,
            "IO": OSError, "TIMEOUT": TimeoutError, "UNSUPPORTED": NotImplementedError,
            "UNKNOWN_DIM": KeyError, "UNKNOWN_VIEW": KeyError, "INDEX_RANGE": IndexError,
            "PEER_FAILED": ConnectionError}


def load(name):
    """Opens a library of the package, or, where LIERNE_LIBRARY_PATH names a folder, of that one. A
    package without libraries (a distribution's) uses those that the loader finds."""
    folder = os.environ.get("LIERNE_LIBRARY_PATH", _FOLDER)
    return ffi.dlopen(os.path.join(folder, name) if os.path.isdir(folder) else name)


lib = load("liblierne.so.0")


class Error(Exception):
    """An error of lierne: str() is the C message, with the value, the bound and what to do.

    status is the number, name the status ("LIERNE_ERR_INVALID"). Each status has a subclass, as
    lierne.errors.InvalidError, which is also the exception of Python that means the same."""
    status = None
    name = None

    def __str__(self):
        return str(self.args[0]) if self.args else ""


def _error_classes():
    classes = {}
    for number, name in ffi.typeof("lierne_status").elements.items():
        short = name.removeprefix("LIERNE_ERR_")
        if number:
            title = "".join(word.capitalize() for word in short.split("_")) + "Error"
            bases = (Error, _BUILTIN[short]) if short in _BUILTIN else (Error,)
            body = {"status": number, "name": name, "__module__": "lierne.errors",
                    "__doc__": text(lib.lierne_status_text(number))}
            classes[number] = type(title, bases, body)
    return classes


def text(pointer):
    """A C string as str, None for NULL."""
    return ffi.string(pointer).decode() if pointer else None


ERRORS = _error_classes()


def last_error(status):
    """The exception for a status that a call of this thread has just returned."""
    return ERRORS.get(status, Error)(text(lib.lierne_last_error()))


def call(function, *arguments):
    """Calls a function that returns a status; raises on any but OK."""
    status = function(*arguments)
    if status:
        raise last_error(status)


def make(kind, function, *arguments):
    """Calls a function whose first argument receives a new `kind *`, and returns that."""
    out = ffi.new(f"{kind} **")
    call(function, out, *arguments)
    return out[0]


def handle(thing, kind):
    """The C handle of a Context, Grid, Layout or Plan that a caller gave; kind: "context" and so on."""
    found = getattr(thing, "_handle", None)
    if found is None or ffi.typeof(found) is not ffi.typeof(f"lierne_{kind} *"):
        if hasattr(thing, "_handle") and found is None:
            raise ValueError(f"the {kind} is closed")
        raise TypeError(f"{reprlib.repr(thing)} is no {kind} of lierne")
    return found


def not_copied(thing, *_):
    """__reduce_ex__ and __copy__ of what owns a handle: two objects would free it."""
    raise TypeError(f"a {type(thing).__name__} can be neither copied nor pickled: it is of this process")


class Spec:
    """A filled struct; `at` points to it. It keeps alive what its fields point to."""

    def __init__(self, kind, /, **fields):
        self.kept = []
        self.at = ffi.new(f"{kind} *")
        self._fill(self.at, ffi.typeof(kind), fields)

    def _fill(self, struct, kind, fields):
        types = dict(kind.fields)
        if "size" in types:
            struct.size = ffi.sizeof(kind)
        unknown = set(fields) - set(types)
        if unknown:
            raise TypeError(f"{kind.cname} has no field {sorted(unknown)[0]!r}")
        defaults = _binding.DEFAULTS.get(_plain(kind.cname), {})
        given = {name: value for name, value in fields.items() if value is not None}
        for name, value in {**defaults, **given}.items():
            try:
                setattr(struct, name, self._value(types[name].type, name, value))
            except (OverflowError, TypeError) as error:  # cffi and numpy name neither
                raise type(error)(f"{name} is {value!r}: {error}") from error

    def _value(self, kind, name, value):
        if kind.kind != "pointer":
            return operator.index(value) if kind.kind == "primitive" and kind.cname != "double" else value
        item = kind.item
        if isinstance(value, Spec):
            value, keep = value.at, value
        elif isinstance(value, ffi.CData):
            keep = value
        elif isinstance(value, str):
            keep = value = ffi.new("char[]", value.encode())
        elif item.kind == "struct" and isinstance(value, np.ndarray):  # rows of structs of int64_t
            value, keep = numbers("int64_t", name, value)
            value = ffi.cast(f"{_plain(item.cname)} *", value)
        elif item.kind == "struct":
            entries = [e if isinstance(e, dict) else vars(e) for e in value]
            keep = value = ffi.new(f"{item.cname}[]", len(entries))
            for struct, fields in zip(keep, entries):
                self._fill(struct, item, fields)
        elif item.kind == "pointer":
            keep = [self._value(item, name, entry) for entry in value]
            self.kept.append(keep)
            value = keep = ffi.new(f"{_plain(item.cname)}[]", keep)
        else:
            value, keep = numbers(_plain(item.cname), name, value)
        self.kept.append(keep)
        return value


def _plain(cname):
    return cname.replace("const ", "").replace("struct ", "").strip()


def numbers(cname, name, value):
    """A list of numbers as (pointer, what owns it); NULL if it is empty."""
    array = np.asarray(value)
    kind = np.dtype(_NUMBERS[cname])
    if array.size and not np.can_cast(array.dtype, kind, "same_kind"):
        raise TypeError(f"{name} has elements of type {array.dtype}, not {kind}")
    narrow = np.ascontiguousarray(array, dtype=kind).reshape(-1)
    if array.size and (narrow != array.reshape(-1)).any():
        raise OverflowError(f"{name} has a value that does not fit {kind}")
    return (ffi.cast(f"{cname} *", narrow.ctypes.data) if narrow.size else ffi.NULL), narrow


def copied(pointer, count):
    """A copy of a list of int32_t or int64_t of the library."""
    kind = np.int32 if "int32_t" in ffi.typeof(pointer).cname else np.int64
    if not pointer or not count:
        return np.zeros(0, kind)
    return np.frombuffer(ffi.buffer(pointer, count * kind().itemsize), kind).copy()


def arguments(given, *others):
    """The arguments of a function, of its locals() at the begin, to be passed on by name, without `others`."""
    return {name: value for name, value in given.items() if name not in ("self", "__class__", *others)}


def choice(what, name, table):
    """table[name], a number of the library; ValueError for another name."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what} is {name!r}, must be one of {', '.join(table)}")
    return table[name]


def sized(what, values, count):
    """The values, None among them, if they are `count`: the C library reads so many."""
    if values is not None and np.asarray(values).size != count:  # np.size() of a tensor is its method
        raise ValueError(f"{what} has {np.asarray(values).size} entries, must have {count}")
    return values

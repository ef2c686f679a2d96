"""Every function of the headers that returns a handle, a text or a list through a pointer: it is NULL after
every error, whatever was wrong.

The headers say which functions these are, so a new one is tested by itself. Arguments are made from the types:
each takes every value that is known for its type, wrong ones most of all, in every combination.
Usage: outputs.py LIBRARY
"""
import ctypes
import glob
import itertools
import os
import re
import sys

from binding import check, counts, must

POISON, PLACES = 0x5A5A5A5A5A5A5A5A, 64
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
READERS = {"lierne_config_parse", "lierne_config_read"}
SYNTAX, CONFIG = -10, -11  # these two return a configuration


class Memory:
    """A spec of this size, or an array of zeros: fresh for each call, which may write to it."""

    def __init__(self, size=0):
        self.size = size

    def make(self):
        return (ctypes.c_uint64 * 512)(self.size)


def read_functions():
    """(name, [(type, parameter)]) of every function of include/lierne that returns a status."""
    for path in sorted(glob.glob(os.path.join(ROOT, "include", "lierne", "*.h"))):
        text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)
        for name, arguments in re.findall(r"LIERNE_API lierne_status (lierne_\w+)\(([^;]*)\);", text):
            parameters = [re.fullmatch(r"(.*?[\s*])(\w+)", a.strip(), re.S).groups() for a in arguments.split(",")]
            yield name, [(re.sub(r"\s+", "", kind.replace("const ", "const_")), n) for kind, n in parameters]


def is_output(kind):
    """T ** or const T **, and T ***; not T *const *, an array that is read."""
    return kind.endswith("**")


def make_values(library):
    """What is tried for a type: NULL first; of handles, also those of a context that is dead."""
    def made(create, *arguments):
        out = ctypes.c_void_p()
        must(library, create(ctypes.byref(out), *arguments))
        return out

    contexts = [made(library.lierne_context_create_self, None) for _ in range(2)]
    plans = [made(library.lierne_plan_create_barrier, context, Memory(1024).make()) for context in contexts]
    must(library, library.lierne_context_abort(contexts[1], -1, b"the test"))
    specs = [None, Memory(1), Memory(1024), Memory(1 << 20)]
    return {
        "lierne_context*": [None, *contexts], "lierne_plan*": [None, *plans],
        "const_lierne_context*": [None, *contexts], "const_lierne_plan*": [None, *plans],
        "const_char*": [None, b"", b"{}", b"[]"], "size_t": [ctypes.c_size_t(n) for n in (0, 2)],
        "spec": specs, "array": [None, Memory()], "handle": [None],
        "number": [ctypes.c_int64(n) for n in (-1, 0, 7)],
    }


def values_of(kind, values):
    """The values for a type; handles that are opaque and have no value of their own are NULL."""
    if kind in values:
        return values[kind]
    if not kind.endswith("*"):
        return values["number"] if kind != "MPI_Comm" else values["handle"]
    plain = kind.replace("const_", "").rstrip("*")
    if plain.endswith("_spec") and kind.count("*") == 1 or plain == "lierne_hang":
        return values["spec"]
    return values["handle"] if plain.startswith(("lierne_", "struct")) and kind.count("*") == 1 else values["array"]


def show(call):
    return ", ".join("NULL" if a is None else f"spec of size {a.size}" if isinstance(a, Memory) else
                     str(a.value) if hasattr(a, "value") else repr(a) for a in call)


def try_function(function, name, parameters, values):
    """Calls with every combination; counts those that failed."""
    outputs = [i for i, (kind, _) in enumerate(parameters) if is_output(kind)]
    errors = 0
    choices = [[None, "poison"] if is_output(kind) else values_of(kind, values) for kind, _ in parameters]
    for call in itertools.product(*choices):
        out = {i: (ctypes.c_uint64 * PLACES)(*[POISON] * PLACES) for i in outputs if call[i]}
        passed = [out[i] if i in out else a.make() if isinstance(a, Memory) else a for i, a in enumerate(call)]
        status = function(*passed)
        # A function that makes several takes their number last.
        n = call[-1].value if name == "lierne_group_create_all" else 1
        if status < 0 and not (name in READERS and status in (SYNTAX, CONFIG)):
            errors += 1
            kept = [parameters[i][1] for i in out if any(out[i][k] for k in range(n))]
            if kept:
                check(False, f"{name}: {', '.join(kept)} is not NULL after error {status} of ({show(call)})")
                return
    check(errors > 0, f"{name}: no call failed")


def open_libraries(path):
    """The libraries that are built: liblierne, and those of single back ends."""
    found = [ctypes.CDLL(path)]
    for library in ("mpi", "cuda", "nccl"):
        other = path.replace("liblierne.so", f"liblierne_{library}.so")
        if os.path.exists(other):
            found.append(ctypes.CDLL(other))
    return found


def main():
    libraries = open_libraries(sys.argv[1])
    library = libraries[0]
    library.lierne_last_error.restype = ctypes.c_char_p
    values, tried = make_values(library), set()
    for name, parameters in read_functions():
        if name.endswith("_destroy") or not any(is_output(kind) for kind, _ in parameters):
            continue
        homes = [l for l in libraries if hasattr(l, name)]
        if homes:
            try_function(getattr(homes[0], name), name, parameters, values)
            tried.add(name)
    check(len(tried) > 50, f"{len(tried)} functions return something through a pointer")
    print(f"{counts[True]} passed, {counts[False]} failed")
    return counts[False] != 0


if __name__ == "__main__":
    sys.exit(main())

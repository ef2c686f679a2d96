"""A binding of lierne by ctypes alone, made from the headers; a bridge and rows run through it.

A foreign language can call lierne when the headers keep to what every foreign function interface
has: scalars, enums and pointers as parameters; no struct by value, no varargs, no bare callback.
So the declarations are read here by a parser that understands nothing else.
Usage: binding.py LIBRARY PREPROCESSED_HEADER
"""
import ctypes
import re
import sys

SCALARS = {
    "int": ctypes.c_int, "double": ctypes.c_double, "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "_Bool": ctypes.c_bool,
}


class Vec(ctypes.Structure):
    """LIERNE_VEC of any type."""
    _fields_ = [("at", ctypes.c_void_p), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


F64 = 1
counts = {True: 0, False: 0}


def check(ok, what):
    counts[bool(ok)] += 1
    if not ok:
        print("FAIL", what)


def type_of(text, enums, structs=()):
    """The ctypes type of a declaration without its name; None where no binding could have it."""
    words = text.replace("*", " * ").split()
    if "*" in words:
        plain = [word for word in words if word != "const"]
        return ctypes.c_char_p if plain == ["char", "*"] else ctypes.c_void_p
    name = " ".join(word for word in words if word != "const")
    return ctypes.c_int if name in enums else SCALARS.get(name) or dict(structs).get(name)


def split_name(declaration):
    """'const int *ranks' -> ('const int *', 'ranks', 0); the last is the length of an array. A pointer to a function
    is a pointer."""
    function = re.fullmatch(r"[\w\s*]+\(\*(\w+)\)\s*\(.*\)", declaration.strip(), re.S)
    if function:
        return "void *", function[1], 0
    found = re.fullmatch(r"(.*?[\s*])(\w+)\s*(?:\[(\d+)\])?", declaration.strip(), re.S)
    return found[1], found[2], int(found[3] or 0)


def name_vecs(text):
    """A vec is one type, whatever it holds."""
    vec = r"struct\s*\{\s*[\w\s*]+?\*+at;\s*size_t count;\s*size_t capacity;\s*\}"
    text, aliases = re.sub(vec, "Vec", text), {}
    for alias in re.findall(r"typedef Vec (\w+);", text):
        aliases[alias] = Vec
    return re.sub(r"typedef Vec \w+;", "", text), aliases


def read_structs(text, enums):
    text, aliases = name_vecs(text)
    structs = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (lierne_\w+);", text, re.S):
        fields = []
        for line in filter(None, map(str.strip, body.split(";"))):
            kind, field, length = split_name(line)
            kind = type_of(kind, enums, {"Vec": Vec, **aliases, **structs})
            check(kind, f"{name}: a foreign caller cannot fill in '{line}'")
            fields.append((field, kind * length if length else kind))
        structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return structs


def read_functions(text, enums, library):
    found = re.findall(r"(?<=;)([\w\s*]*?[\s*])(lierne_\w+)\s*\(([^;]*)\)\s*(?=;)", text)
    named = re.findall(r"\b(lierne_\w+)\s*\(", text)
    check(sorted(named) == sorted(name for _, name, _ in found), "a declaration was not understood")
    for result, name, arguments in found:
        kinds = [] if arguments.strip() == "void" else [
            None if "(" in argument or "..." in argument
            else type_of(split_name(argument)[0], enums) for argument in arguments.split(",")]
        check(None not in kinds, f"{name}: a foreign caller cannot pass ({arguments})")
        returned = None if result.strip() == "void" else type_of(result, enums)
        check(returned or result.strip() == "void", f"{name}: a foreign caller cannot take {result}")
        check(hasattr(library, name), f"{name} is not in the library")
        if hasattr(library, name) and None not in kinds:
            function = getattr(library, name)
            function.argtypes, function.restype = kinds, returned


def bind(path, header):
    text = re.sub(r"__attribute__\(\(visibility\(\"default\"\)\)\)", "", open(header).read())
    text = text[text.index("typedef enum lierne_status"):]
    enums = set(re.findall(r"typedef enum \w+ \{.*?\} (lierne_\w+);", text, re.S))
    library = ctypes.CDLL(path)
    structs = read_structs(text, enums)
    plain, _ = name_vecs(text)
    read_functions(re.sub(r"\{.*?\}", "", plain, flags=re.S), enums, library)
    return library, structs


def must(library, status):
    if status != 0:
        raise RuntimeError(f"{status}: {library.lierne_last_error().decode()}")


def grid(library, structs, sizes, world=8):
    names = (ctypes.c_char_p * 3)(b"tp", b"cp", b"dp")
    shape = (ctypes.c_int64 * 3)(*sizes)
    spec = structs["lierne_grid_spec"](ndims=3, world_size=world)
    spec.size = ctypes.sizeof(spec)
    spec.names, spec.sizes = ctypes.addressof(names), ctypes.addressof(shape)
    out = ctypes.c_void_p()
    must(library, library.lierne_grid_create(ctypes.byref(out), ctypes.byref(spec)))
    return out


def execute(library, begin, plans, outputs, inputs):
    requests = [ctypes.c_void_p() for _ in plans]
    for request, plan, out, data in zip(requests, plans, outputs, inputs):
        must(library, begin(ctypes.byref(request), plan, out, data, None))
    for request in requests:
        must(library, library.lierne_request_end(request))


def run_bridge(library, structs):
    """tp2 dp4 -> tp2 cp2 dp2, 8 samples of 4 x 2 doubles; the gradient is partial over cp."""
    sim = ctypes.c_void_p()
    must(library, library.lierne_sim_create(ctypes.byref(sim), 8, None))
    encoder, llm = grid(library, structs, (2, 1, 4)), grid(library, structs, (2, 2, 2))
    shape = (ctypes.c_int64 * 3)(8, 4, 2)
    spec = structs["lierne_bridge_spec"](src=encoder, dst=llm, naxes=3, dtype=F64, batch_axis=0,
                                         sequence_axis=1)
    spec.size, spec.shape = ctypes.sizeof(spec), ctypes.addressof(shape)
    plans = [ctypes.c_void_p() for _ in range(8)]
    for rank, plan in enumerate(plans):
        context = library.lierne_sim_get_context(sim, rank)
        must(library, library.lierne_plan_create_bridge(ctypes.byref(plan), context, ctypes.byref(spec)))
    small, large = ctypes.c_double * 16, ctypes.c_double * 32
    x = [small(*(16 * (rank // 2) + i for i in range(16))) for rank in range(8)]
    y, gx = [large() for _ in range(8)], [small() for _ in range(8)]
    execute(library, library.lierne_plan_forward_begin, plans, y, x)
    for rank in range(8):
        check(list(y[rank]) == [32 * (rank // 4) + i for i in range(32)], f"forward, rank {rank}")
    g = [large(*((rank // 2 % 2 + 1) * value for value in y[rank])) for rank in range(8)]
    execute(library, library.lierne_plan_adjoint_begin, plans, gx, g)
    for rank in range(8):
        check(list(gx[rank]) == [3 * value for value in x[rank]], f"adjoint, rank {rank}")
        must(library, library.lierne_plan_destroy(plans[rank]))
    must(library, library.lierne_sim_destroy(sim))
    library.lierne_grid_destroy(encoder)
    library.lierne_grid_destroy(llm)


def run_pairs(library, structs):
    """A world of one: ghosts of rows 2, 0 and 2 of three; two gradients come home to row 2."""
    context, plan = ctypes.c_void_p(), ctypes.c_void_p()
    must(library, library.lierne_context_create_self(ctypes.byref(context), None))
    ranks, rows = (ctypes.c_int32 * 3)(0, 0, 0), (ctypes.c_int64 * 3)(2, 0, 2)
    spec = structs["lierne_references_spec"](nowned=3, nghosts=3, dtype=F64, width=2)
    spec.size = ctypes.sizeof(spec)
    spec.rank, spec.row = ctypes.addressof(ranks), ctypes.addressof(rows)
    must(library, library.lierne_plan_create_references(ctypes.byref(plan), context, ctypes.byref(spec)))
    array = ctypes.c_double * 6
    ghosts, home = array(), array()
    must(library, library.lierne_plan_forward(plan, ghosts, array(1, 2, 3, 4, 5, 6), None))
    check(list(ghosts) == [5, 6, 1, 2, 5, 6], f"rows forward are {list(ghosts)}")
    must(library, library.lierne_plan_adjoint(plan, home, ghosts, None))
    check(list(home) == [1, 2, 0, 0, 10, 12], f"rows home are {list(home)}")
    must(library, library.lierne_plan_destroy(plan))
    must(library, library.lierne_context_destroy(context))


def main():
    library, structs = bind(*sys.argv[1:])
    check(library.lierne_plan_create_bridge.argtypes == [ctypes.c_void_p] * 3, "the parser reads pointers")
    run_bridge(library, structs)
    run_pairs(library, structs)
    try:
        grid(library, structs, (2, 1, 4), world=7)
        check(False, "a grid past the end of the world is taken")
    except RuntimeError as error:
        check(str(error).startswith("-23: lierne_grid_create:"), f"the error is {error}")
    print(f"{counts[True]} passed, {counts[False]} failed")
    return counts[False] != 0


if __name__ == "__main__":
    sys.exit(main())

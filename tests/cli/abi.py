"""Compares the ABI of the headers with the baseline, tests/abi.txt, or writes it.

What programs depend on: prototypes, the size of every public struct, the place of every field and the
value of every constant. These may be added to; a struct may grow at its end if it begins with its size,
as all specs do. Everything else breaks programs that were compiled before. The compiler computes sizes
and places, so that nothing here knows its rules.
Usage: abi.py INCLUDE BASELINE [write]
"""
import os
import re
import subprocess
import sys
import tempfile

HEADERS = ("lierne.h", "lierne/sim.h", "lierne/node.h", "lierne/oob.h", "lierne/mpi.h", "lierne/cuda.h",
           "lierne/nccl.h", "lierne/torch.h")
MPI = "typedef void *MPI_Comm;\n"  # MPI itself has no part in lierne's ABI
COMPILER = os.environ.get("CC", "cc")


def split(text, separator):
    """Parts of a text at separators that stand in no braces and no parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{(") - (c in "})")
        if c == separator and depth == 0:
            parts.append(" ".join(text[start:i].split()))
            start = i + 1
    return parts


def declarations(folder, include):
    source = "".join(f"#include <{name}>\n" for name in HEADERS)
    done = subprocess.run([COMPILER, "-E", "-P", "-I", folder, "-I", include, "-"], input=source,
                          capture_output=True, text=True, check=True)
    text = re.sub(r'__attribute__\(\(.*?"\)\)\)', "", done.stdout)
    return [part for part in split(text, ";") if "lierne_" in part]


def name_of(field):
    """Of 'const int *ranks', 'int64_t start[4]' or 'int (*test)(void *user)'."""
    return (re.search(r"\(\*(\w+)\)", field) or re.search(r"(\w+)(?:\[\w+\])*$", field))[1]


def probes(found):
    """(the line of the baseline without its numbers, C expressions of these), of all declarations."""
    for part in found:
        struct = re.fullmatch(r"typedef struct (?:\w+ )?\{(.*)\} (\w+)", part)
        enum = re.fullmatch(r"typedef enum (?:\w+ )?\{(.*)\} (\w+)", part)
        if struct:
            body, name = struct.groups()
            yield f"struct {name}", [f"sizeof({name})"]
            for field in split(body, ";"):
                at = f"{name}, {name_of(field)}"
                yield f"field {name}: {field}", [f"offsetof({at})", f"sizeof((({name} *)0)->{name_of(field)})"]
        elif enum:
            for constant in split(enum[1] + ",", ","):
                word = re.match(r"\w*", constant)[0]
                if word:
                    yield f"constant {word}", [f"(long long){word}"]
        else:
            yield re.sub(r"^extern ", "", part).replace(" ;", ""), []


def lines_of(include):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "mpi.h"), "w") as file:
            file.write(MPI)
        found = list(probes(declarations(folder, include)))
        program = "#include <stddef.h>\n#include <stdio.h>\n"
        program += "".join(f"#include <{name}>\n" for name in HEADERS) + "int main(void) {\n"
        for _, expressions in found:
            for expression in expressions:
                program += f'printf("%lld ", (long long){expression});\n'
            program += 'puts("");\n'
        binary = os.path.join(folder, "abi")
        subprocess.run([COMPILER, "-I", folder, "-I", include, "-x", "c", "-o", binary, "-"],
                       input=program + "}\n", text=True, check=True)
        numbers = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    return sorted({" ".join([line, *values.split()])
                   for (line, _), values in zip(found, numbers.splitlines())})


def grown(line, current):
    """Whether a struct of the baseline is there and larger, and may be: it begins with its size."""
    found = re.fullmatch(r"(struct (\w+)) (\d+)", line)
    if not found or f"field {found[2]}: size_t size 0 8" not in current:
        return False
    return any(re.fullmatch(re.escape(found[1]) + r" (\d+)", other) and int(other.split()[-1]) > int(found[3])
               for other in current)


def main(include, baseline, *write):
    current = lines_of(include)
    if write:
        with open(baseline, "w") as file:
            file.write("\n".join(current) + "\n")
        return 0
    with open(baseline) as file:
        old = file.read().splitlines()
    broken = [line for line in old if line not in set(current) and not grown(line, current)]
    for line in broken:
        print(f"FAIL the ABI has no longer: {line}")
    print(f"{len(set(current) - set(old))} lines are new (make abi writes them down)")
    print(f"{len(old) - len(broken)} passed, {len(broken)} failed")
    return bool(broken) or not old


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Draws mutants of src by chance and runs the tests that cover their lines: draw.py BUILD SEED COUNT SECONDS [FILE...]

Each mutant changes one place: an arithmetic or comparing operator, a constant by one, a condition, two neighbouring
arguments, or a statement that is dropped. Only lines that a test runs are changed (cover.py); mutants that do not
compile, or compile to the same object, are drawn anew. The object alone is compiled, in front of the library of BUILD,
which "make tests" made. The tests of its line run in the order of their time, for MOST seconds, until one fails or
takes ten times as long as usual. The tree stays as it is. Prints a line per mutant, those that lived with their
change: each needs a verdict, a test or a reason why it changes nothing.

BUILD/cover/drawn.SEED has the results: the next call with the same seed goes on there, until COUNT or for SECONDS.
Last line: N passed, N failed, of all with this seed.
"""
import concurrent.futures
import glob
import hashlib
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

import cover

OPERATORS = [(" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), (" % ", " / "), (" < ", " <= "),
             (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" && ", " || "),
             (" || ", " && "), ("++", "--"), (" += ", " -= "), ("(!", "("), ("true", "false"), ("false", "true")]
STATEMENT = re.compile(r"^    +(?!return|break|continue|goto|case|static|const|int|bool|size_t|char|double|struct|lierne_\w+ \*?\w+ ?[=;])"
                       r"[a-zA-Z_*][^{}]*;$")
MOST = 60  # seconds that the tests of a mutant take with coverage: slower suites are left to who judges it
STRICT = "-Werror=int-conversion -Werror=incompatible-pointer-types"  # what a compiler finds needs no test
CALL = re.compile(r"\b(?!if|for|while|switch|return|sizeof)\w+\(([^()\"]*,[^()\"]*)\)")


def swaps(code):
    """Calls with two neighbouring arguments swapped: (begin, end, new arguments)."""
    for call in CALL.finditer(code):
        arguments = call[1].split(", ")
        for i in range(len(arguments) - 1):
            other = arguments[:i] + [arguments[i + 1], arguments[i]] + arguments[i + 2:]
            yield call.start(1), call.end(1), ", ".join(other)


def mutations(path):
    """(line, old, new) of all that can be changed in a file."""
    comment = False
    for number, line in enumerate(open(path, encoding="utf-8").read().split("\n")):
        code = line.split("/*")[0]
        if comment or line.lstrip().startswith(("#", "*", '"')):
            comment = comment and "*/" not in line
            continue
        comment = "/*" in line and "*/" not in line
        for old, new in OPERATORS:
            for found in re.finditer(re.escape(old), code):
                yield number, line, code[:found.start()] + new + line[found.end():]
        for found in re.finditer(r"(?<![\w.\"])\d+(?![\w.\"])", code):
            yield number, line, code[:found.start()] + str(int(found[0]) + 1) + line[found.end():]
        for start, end, new in swaps(code) if line.startswith(" ") else ():
            yield number, line, code[:start] + new + line[end:]
        if condition := re.match(r"( +(?:\} else )?if )(\(.*\)) \{$", line):
            yield number, line, f"{condition[1]}(!{condition[2]}) {{"
        if STATEMENT.match(line):
            yield number, line, re.match(" *", line)[0] + ";"


def link_all(build, here):
    """Makes a folder like the build folder, with links to its files; test programs are relinked in it."""
    for path in glob.glob(f"{build}/*") + glob.glob(f"{build}/tests/*/*"):
        if os.path.basename(path) == "tests" or path.endswith((".o", ".d")):
            continue
        link = os.path.join(here, os.path.relpath(path, build))
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(os.path.abspath(path), link)


class Builder:
    """Compiles a mutant and links the programs of a test with it, in a folder of a worker."""

    def __init__(self, build, folder, commands):
        self.build, self.folder, self.commands = build, folder, commands
        self.here = os.path.join(folder, "build")
        self.linked = set()
        link_all(build, self.here)

    def compile(self, path, text):
        """A hash of the object, or None. A new object: nothing is linked with it yet."""
        source, out = os.path.join(self.folder, os.path.basename(path)), os.path.join(self.folder, "mutant.o")
        open(source, "w", encoding="utf-8").write(text)
        self.object = f"{self.build}/{path[:-2]}.o"
        command = self.commands[self.object].replace(f"-c -o {self.object} {path}", f"-iquote {os.path.dirname(path)} -c "
                                                     f"-g0 {STRICT} -o {out} {source}")
        command = re.sub(r"-MMD -MP|mkdir -p \S+ &&", "", command)
        if subprocess.run(["sh", "-c", command], stderr=subprocess.DEVNULL).returncode:
            return None
        self.linked = set()
        return hashlib.sha256(open(out, "rb").read()).digest()

    def link(self, program):
        """The program with the mutant, beside links to all others of the build folder."""
        if program in self.linked:
            return
        words = shlex.split(self.commands[f"{self.build}/{program}"])
        words = words[words.index("&&") + 1:] if "&&" in words else words
        target, mutant = os.path.join(self.here, program), os.path.join(self.folder, "mutant.o")
        words[words.index("-o") + 1] = target
        if self.object in words:
            words[words.index(self.object)] = mutant
        else:
            words.insert(words.index("-o") + 2, mutant)
        if os.path.lexists(target):
            os.unlink(target)
        subprocess.run(words, check=True)
        self.linked.add(program)


def fails(test, here):
    """Whether the test fails. A space of processes of its own: a mutant may signal any process."""
    limits = "ulimit -f 4000000 -v 33554432 -c 0; "
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
               limits + test.command.format(build=here)]
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              timeout=20 + 10 * test.seconds).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def judge(builder, covered, path, number, old, new):
    """A line about the mutant; "-" where it does not compile, or cannot be told from the code."""
    lines = open(path, encoding="utf-8").read().split("\n")
    same = builder.compile(path, "\n".join(lines))
    lines[number] = new
    other = builder.compile(path, "\n".join(lines))
    if other is None or other == same:
        return "-"
    place = f"{path}:{number + 1}: {old.strip()}  ->  {new.strip()}"
    spent = 0
    for test in covered.tests(path, number + 1):
        spent += test.seconds
        if spent > MOST:
            break
        for program in test.programs:
            builder.link(program)
        if fails(test, builder.here):
            return f"caught {place}  by {test.name}"
    return f"LIVED  {place}"


def count(done):
    return sum(v.startswith("caught") for v in done.values()), sum(v.startswith("LIVED") for v in done.values())


def read_results(path):
    """{place: verdict} of earlier calls."""
    lines = open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []
    return {int(line.split(" ", 1)[0]): line.split(" ", 1)[1] for line in lines}


def main(build, seed, wanted, seconds, *paths):
    end, results = time.monotonic() + float(seconds), f"{build}/cover/drawn.{seed}"
    covered, commands, done = cover.Covered(build), cover.commands(build), read_results(results)
    places = list(enumerate((path, *m) for path in sorted(glob.glob("src/**/*.c", recursive=True)) for m in mutations(path)))
    chosen = [(n, p) for n, p in places if covered.tests(p[0], p[1] + 1) and (not paths or p[0] in paths)]
    print(f"{len(places)} places to change, {len(chosen)} of them on lines that a test of these files runs", flush=True)
    random.Random(int(seed)).shuffle(places)
    order = {n: i for i, (n, _) in enumerate(places)}
    left = iter(sorted((order[n], p) for n, p in chosen if order[n] not in done))
    with tempfile.TemporaryDirectory() as folder, open(results, "a", encoding="utf-8") as file:
        builders = [Builder(build, os.path.join(folder, str(n)), commands) for n in range(2)]
        with concurrent.futures.ThreadPoolExecutor(len(builders)) as pool:
            while sum(count(done)) < int(wanted) and time.monotonic() < end:
                batch = [(b, *place) for b, place in zip(builders, left)]
                if not batch:
                    break
                for (_, n, p), verdict in zip(batch, pool.map(lambda t: judge(t[0], covered, *t[2]), batch)):
                    done[n] = verdict
                    print(n, verdict, file=file, flush=True)
                    if verdict != "-":
                        print(verdict, flush=True)
    caught, lived = count(done)
    print(f"{caught} passed, {lived} failed")
    return lived != 0


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

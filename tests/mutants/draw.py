"""Draws mutants of src by chance and runs the tests that cover their lines: draw.py BUILD SEED COUNT SECONDS [FILE...]

Each mutant changes one place: an arithmetic or comparing operator, a constant by one, a condition, two neighbouring
arguments, or a statement that is dropped. Only lines that a test runs are changed (cover.py); mutants that do not
compile or link, or compile to the same object, are drawn anew. The object alone is compiled, in front of the library of BUILD,
which "make tests" made. The tests of its line run until one fails or takes four times as long as usual: first those that
cost least per mutant that they can be expected to catch. A mutant that they let pass for MOST seconds is open. Once COUNT
is reached, the open ones have further rounds of MOST seconds with tests that did not run yet, each at least one. What
lived through all tests, or ALL seconds of them, needs a verdict, a test or a reason why it changes nothing. The tree
stays as it is. Prints a line per mutant with its change.

BUILD/cover/drawn.SEED has the results: the next call with the same seed goes on there, until COUNT or for SECONDS.
Last line: N passed, N failed, of all with this seed.
"""
import bisect
import collections
import concurrent.futures
import glob
import hashlib
import itertools
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import cover

OPERATORS = [(" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), (" % ", " / "), (" < ", " <= "),
             (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" && ", " || "),
             (" || ", " && "), ("++", "--"), (" += ", " -= "), ("(!", "("), ("true", "false"), ("false", "true")]
STATEMENT = re.compile(r"^    +(?!return|break|continue|goto|case|static|const|int|bool|size_t|char|double|struct|lierne_\w+ \*?\w+ ?[=;])"
                       r"[a-zA-Z_*][^{}]*;$")
MOST = 6  # seconds that the tests of a mutant take in a round
ALL = 60  # and in all rounds: slower tests are left to who judges it
LINKER = "lld" if shutil.which("ld.lld") else "bfd"
WORKERS = 3  # tests of ranks that wait for each other leave cores idle
LINK = 0.3  # seconds to link and start a test
PASSED = "  passed: "  # in the results of a mutant that lived or is open, before the names of these tests
SHORTEST = 5  # seconds that any test may take
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
    for path in itertools.chain(*(glob.glob(f"{build}/{files}") for files in ("*", "tests/*/*", "emulated/tests/*/*"))):
        if os.path.basename(path) in ("tests", "emulated") or path.endswith((".o", ".d")):
            continue
        link = os.path.join(here, os.path.relpath(path, build))
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(os.path.abspath(path), link)


class Builder:
    """Compiles a mutant and links the programs of a test with it, in a folder of a worker."""

    def __init__(self, build, folder, commands):
        self.build, self.folder, self.commands = build, folder, commands
        self.here = os.path.join(folder, "build")
        self.linked, self.unchanged = set(), {}
        link_all(build, self.here)

    def hash_of(self, path, text):
        """That of the object of the file as it is."""
        if path not in self.unchanged:
            self.unchanged[path] = self.compile(path, text)
        return self.unchanged[path]

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
        words[1:1] = [f"-fuse-ld={LINKER}", "-Wl,-S"]
        if self.object in words:
            words[words.index(self.object)] = mutant
        else:
            words.insert(words.index("-o") + 2, mutant)
        if os.path.lexists(target):
            os.unlink(target)
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        self.linked.add(program)


def passes(test, here):
    """Whether the test passes; None where it takes too long. A space of processes of its own: a mutant may signal any
    process. So numbers of processes repeat, and tests name files and sockets after them: those are its own, too."""
    own = ('tree=$PWD; mount --bind "$tree" /mnt && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && '
           'mkdir -p "$tree" && mount --bind /mnt "$tree" && cd "$tree" && ip link set lo up || exit 0; ')
    limits = "export LIERNE_TEST_FAIL_FAST=1; ulimit -f 4000000; ulimit -c 0; "
    limits += "" if "emulated" in test.name else "ulimit -v 33554432; "  # the emulated device reserves addresses
    command = ["unshare", "--pid", "--net", "--ipc", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
               own + limits + test.command.format(build=here)]
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              timeout=SHORTEST + 4 * test.seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return None


def fails(test, builder, sound):
    """How the test fails, "" where it passes. sound: tests that were seen to pass here without a mutant. Others, and what
    took long, fail only where they pass without it now, and are None where they do not: a test may lack something here,
    and on a busy machine deadlines pass."""
    start = time.monotonic()
    passed = passes(test, builder.here)
    if passed:
        return ""
    late = time.monotonic() - start > 1 + 2 * test.seconds
    if (late or test.name not in sound) and not passes(test, builder.build):
        return None
    sound.add(test.name)
    return test.name if passed is False else test.name + ", which took too long"


class Order:
    """Orders the tests of a file's lines by what they cost per mutant that they can be expected to catch there."""

    def __init__(self, covered):
        self.covered, self.runs, self.caught = covered, collections.Counter(), collections.Counter()
        self.sound = set()

    def add(self, path, test, failed):
        for place in path, os.path.dirname(path):
            self.runs[place, test] += 1
            self.caught[place, test] += failed

    def expected(self, path, test):
        """The share of mutants that the test catches: so far in the file, some in its folder, and where nothing is
        known the share of the file that it runs, more where it has the file's name."""
        folder, named = os.path.dirname(path), set(re.split(r"[ _.]", test)) & set(re.split("[/_.]", path))
        share = (1 + len(named)) * self.covered.share(path, test) + self.caught[path, test] + self.caught[folder, test] / 4
        return (share + 0.02) / (2 + self.runs[path, test] + self.runs[folder, test] / 4)

    def sort(self, path, tests):
        return sorted(tests, key=lambda test: (test.seconds + LINK) / self.expected(path, test.name))


def within(tests, seconds):
    """As many of the tests as take that long together, at least one."""
    spent = list(itertools.accumulate(test.seconds for test in tests))
    return tests[:max(1, bisect.bisect_right(spent, seconds))]


def judge(builder, order, covered, passed, path, number, old, new):
    """(A line about the mutant, the names of tests that it passed): "-" where it does not compile or link, or cannot be
    told from the code."""
    lines = open(path, encoding="utf-8").read().split("\n")
    same = builder.hash_of(path, "\n".join(lines))
    lines[number] = new
    other = builder.compile(path, "\n".join(lines))
    if other is None or other == same:
        return "-", ()
    place = f"{path}:{number + 1}: {old.strip()}  ->  {new.strip()}"
    tests = covered.tests(path, number + 1)
    spent = sum(test.seconds for test in tests if test.name in passed)
    left = within(order.sort(path, [test for test in tests if test.name not in passed]), ALL - spent)
    for test in (tried := within(left, MOST)):
        try:
            for program in test.programs:
                builder.link(program)
        except subprocess.CalledProcessError:
            return "-", ()
        failed = fails(test, builder, order.sound)
        order.add(path, test.name, bool(failed))
        if failed:
            return f"caught {place}  by {failed}", ()
        passed = passed | ({test.name} if failed == "" else set())
    return f"{'LIVED ' if all(test.name in passed for test in left) else 'open  '} {place}", passed


def read_results(path):
    """{place: [verdict, names of tests that passed]} of earlier calls."""
    lines = open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []
    return {int(line.split(" ", 1)[0]): (line.split(" ", 1)[1].split(PASSED) + [""])[:2] for line in lines}


class Campaign:
    """The mutants of a seed, their verdicts, and the workers."""

    def __init__(self, build, seed, wanted, seconds, paths):
        self.end, self.wanted, self.build = time.monotonic() + float(seconds), int(wanted), build
        self.covered, self.commands = cover.Covered(build), cover.commands(build)
        self.results, self.lock = f"{build}/cover/drawn.{seed}", threading.Lock()
        self.done, self.order = read_results(self.results), Order(self.covered)
        places = [(path, *m) for path in sorted(glob.glob("src/**/*.c", recursive=True)) for m in mutations(path)]
        random.Random(int(seed)).shuffle(places)
        self.places = {n: p for n, p in enumerate(places)
                       if self.covered.tests(p[0], p[1] + 1) and (not paths or p[0] in paths)}
        self.learn(places)
        print(f"{len(places)} places to change, {len(self.places)} of them on lines that a test of these files runs", flush=True)

    def learn(self, places):
        """Teaches the order what earlier calls saw."""
        for n, (verdict, passed) in self.done.items():
            for test in passed.split(", ") if passed else ():
                self.order.add(places[n][0], test, False)
            if verdict.startswith("caught"):
                self.order.add(places[n][0], verdict.split("  by ")[-1].split(",")[0], True)

    def count(self, *kinds):
        return sum(verdict.startswith(kinds) for verdict, _ in self.done.values())

    def numbers(self, kind):
        return [n for n, (verdict, _) in self.done.items() if verdict.startswith(kind) and n in self.places]

    def work(self, left, enough):
        """A worker: judges what is left, one after the other."""
        with tempfile.TemporaryDirectory(dir=os.path.abspath(f"{self.build}/cover")) as folder:
            builder = Builder(self.build, folder, self.commands)
            while time.monotonic() < self.end and not enough():
                with self.lock:
                    n = next(left, None)
                if n is None:
                    return
                before = set(filter(None, self.done.get(n, ["", ""])[1].split(", ")))
                verdict, passed = judge(builder, self.order, self.covered, before, *self.places[n])
                with self.lock, open(self.results, "a", encoding="utf-8") as file:
                    self.done[n] = [verdict, ", ".join(sorted(passed))]
                    print(n, PASSED.join(self.done[n]), file=file)
                if verdict != "-":
                    print(verdict, flush=True)

    def run(self, left, enough=lambda: False):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            shared = iter(left)
            for worker in [pool.submit(self.work, shared, enough) for _ in range(WORKERS)]:
                worker.result()


def main(build, seed, wanted, seconds, *paths):
    c = Campaign(build, seed, wanted, seconds, paths)
    judged = "caught", "LIVED", "open"
    c.run([n for n in c.places if n not in c.done], lambda: c.count(*judged) >= c.wanted)
    while time.monotonic() < c.end and c.numbers("open"):
        c.run(c.numbers("open"))
    print(f"{c.count('open')} of {c.count(*judged)} are open")
    print(f"{c.count('caught')} passed, {c.count('LIVED')} failed")
    return c.count("LIVED", "open") != 0


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

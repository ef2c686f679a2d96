"""Draws mutants by chance: draw.py SEED COUNT "TEST COMMAND" FILE...

Each changes one place of a FILE: an arithmetic or comparing operator, a constant by one, a condition, or a
statement that is dropped. It is made in a copy of the tree in a folder of its own, and TEST COMMAND, run there with
sh, must fail within ten minutes: `make -s t T=node/shrink`. Mutants that do not compile, or compile to the same object
(they are equivalent), are drawn anew. Prints a line per mutant, those that lived with their change: each
needs a verdict, a test or a reason why it changes nothing. Last line: N passed, N failed.
"""
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

OPERATORS = [(" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), (" % ", " / "), (" < ", " <= "),
             (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" && ", " || "),
             (" || ", " && "), ("++", "--"), (" += ", " -= "), ("(!", "("), ("true", "false"), ("false", "true")]
STATEMENT = re.compile(r"^    +(?!return|break|continue|goto|case|static|const|int|bool|size_t|char|double|struct|lierne_\w+ \*?\w+ ?[=;])"
                       r"[a-zA-Z_*][^{}]*;$")


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
        if STATEMENT.match(line):
            yield number, line, re.match(" *", line)[0] + ";"


def compiled(tree, path):
    """A hash of the object file, or None."""
    out = os.path.join(tree, "mutant.o")
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Iinclude", "-Isrc", "-c", path, "-o", out, "-w"]
    if subprocess.run(command, cwd=tree, stderr=subprocess.DEVNULL).returncode:
        return None
    return hashlib.sha256(open(out, "rb").read()).digest()


def judge(tree, test):
    """Whether the test fails."""
    try:
        return subprocess.run(["sh", "-c", test], cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=600).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main(seed, count, test, *paths):
    chance, caught, drawn = random.Random(int(seed)), 0, 0
    places = [(path, *m) for path in paths for m in mutations(path)]
    chance.shuffle(places)
    with tempfile.TemporaryDirectory() as folder:
        tree = os.path.join(folder, "tree")
        shutil.copytree(".", tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "venv"))
        if judge(tree, test):
            sys.exit("the test fails without a mutant")
        for path, number, old, new in places:
            whole = open(path, encoding="utf-8").read()
            lines = whole.split("\n")
            lines[number] = new
            target = os.path.join(tree, path)
            before = compiled(tree, path)
            open(target, "w", encoding="utf-8").write("\n".join(lines))
            after = compiled(tree, path)
            if after is not None and after != before:
                drawn += 1
                bad = judge(tree, test)
                caught += bad
                print(f"{'caught' if bad else 'LIVED '} {path}:{number + 1}: {old.strip()}  ->  {new.strip()}", flush=True)
            open(target, "w", encoding="utf-8").write(whole)
            if drawn == int(count):
                break
    print(f"{caught} passed, {drawn - caught} failed")
    return caught != drawn


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

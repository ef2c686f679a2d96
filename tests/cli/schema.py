"""docs/grid.schema.json against the command: what one accepts the other accepts, as far as a schema can.

Files of grids/, and the good ones of them with one value changed. A file that the schema accepts and the
command rejects may have diagnostics only of those codes that docs/grid-format.md lists under "What the
schema cannot see"; each code of that list must have a file that needs it. Last line: N passed, N failed.
Usage: schema.py LIERNE FOLDER_FOR_FILES
"""
import copy
import glob
import json
import os
import random
import re
import subprocess
import sys

import jsonschema

TEXT = {f"LG{n:03}" for n in range(1, 15)}  # what is no JSON, or more than JSON says
VALUES = (0, -1, 1, 2, 3, 8, 8.5, True, None, "", "b", "s", "h", "dp", "base", "zigzag", "rows", "compact", "sharded",
          "collective", "sequence", [], [0, 1], ["b", "h"], ["tp", "dp"], {}, {"shard": "h"}, {"tp": 2, "dp": 4},
          {"owner": "zigzag"}, {"owner": "rows", "rows": [0]}, {"owner": "partial", "storage": "compact"})
counts = {True: 0, False: 0}


def check(ok, what):
    counts[bool(ok)] += 1
    if not ok:
        print("FAIL", what)


def cannot_see():
    """The codes of the list in docs/grid-format.md."""
    text = open("docs/grid-format.md").read()
    part = text[text.index("### What the schema cannot see"):]
    return set(re.findall(r"LG\d\d\d|LIERNE_ERR_\w+", part[:part.index("\n#", 3)]))


def described(schema, found, path=""):
    """Every property has a description, its own or that of what it refers to."""
    for key, value in schema.get("properties", {}).items():
        if isinstance(value, dict) and (value.keys() - {"required", "properties", "not", "const", "maxItems", "enum"}):
            target = found[value["$ref"].rsplit("/", 1)[1]] if "$ref" in value else {}
            check("description" in value or "description" in target, f"{path}/{key} has no description")
            described(value, found, f"{path}/{key}")


def places(value, path=()):
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], path + (key,))


def changed(config, chance):
    """A copy with one value replaced, removed, or added under a key that occurs somewhere."""
    config = copy.deepcopy(config)
    every = [path for path in places(config) if path]
    keys = sorted({key for path in every for key in path if isinstance(key, str)} | {
        "output", "algorithm", "counts", "placements", "sequence", "rows_per_sample", "row_order", "src_view", "heads"})
    path = chance.choice(every)
    holder = config
    for key in path[:-1]:
        holder = holder[key]
    how = chance.random()
    if how < 0.2:
        del holder[path[-1]]
    elif how < 0.5 and isinstance(holder[path[-1]], dict):
        holder[path[-1]][chance.choice(keys)] = chance.choice(VALUES)
    else:
        holder[path[-1]] = chance.choice(VALUES)
    return config


def write_changed(folder):
    chance = random.Random(7)
    good = [json.load(open(path)) for path in sorted(glob.glob("grids/*.json") + glob.glob("grids/bad/warning-*.json"))]
    good = [config for config in good if len(json.dumps(config)) < 2000]
    for i in range(600):
        with open(os.path.join(folder, f"{i}.json"), "w") as file:
            json.dump(changed(chance.choice(good), chance), file)
    return sorted(glob.glob(os.path.join(folder, "*.json")))


def main(lierne, folder):
    schema = json.load(open("docs/grid.schema.json"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    check(schema.get("$id"), "the schema has no $id")
    for definition in [schema, *schema["$defs"].values()]:
        described(definition, schema["$defs"])
    files = sorted(glob.glob("grids/*.json") + glob.glob("grids/bad/*.json")) + write_changed(folder)
    done = subprocess.run([lierne, "check", "--format", "json", *files], capture_output=True, text=True)
    allowed, needed = cannot_see(), set()
    for entry in json.loads(done.stdout)["files"]:
        codes = {f["code"] for f in entry["findings"] if f["severity"] == "error"}
        if codes & TEXT:
            continue
        accepted = validator.is_valid(json.load(open(entry["file"])))
        if entry["valid"]:
            error = None if accepted else next(validator.iter_errors(json.load(open(entry["file"])))).message
            check(accepted, f"the schema rejects {entry['file']}: {error}")
        elif accepted:
            check(codes <= allowed, f"the schema accepts {entry['file']}: {sorted(codes - allowed)}")
            needed |= codes
        else:
            check(True, "")
    check(allowed <= needed, f"no file needs the exception of {sorted(allowed - needed)}")
    print(f"{counts[True]} passed, {counts[False]} failed")
    return counts[False] != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

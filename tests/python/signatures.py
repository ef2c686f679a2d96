"""Every public function of the package, lierne.torch and lierne.megatron included, has a type for each argument
and its result, and no **options; what passes arguments on has the names and defaults of what takes them."""
import ast
import glob
import inspect
import os
import sys
import typing
import unittest

import lierne
from lierne import bridges, schedules
from report import main

PACKAGE = os.path.dirname(lierne.__file__)
SPECIAL = ("__init__", "__call__", "__enter__", "__exit__", "__len__", "__getitem__", "__new__")
# As the original has it, and what __init__ takes.
MAY_TAKE_ANY = {"HyperCommGrid.create_pg", "Run.__new__"}


def is_public(name):
    return name in SPECIAL or not name.startswith("_")


def functions(node, prefix=""):
    """(name, function) of the public functions of a module or class."""
    for entry in node.body:
        if isinstance(entry, ast.ClassDef) and is_public(entry.name):
            yield from functions(entry, f"{prefix}{entry.name}.")
        elif isinstance(entry, ast.FunctionDef) and is_public(entry.name):
            yield prefix + entry.name, entry


def modules():
    """Those that a user imports, and where lierne.torch.context is made."""
    for path in glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True):
        name = os.path.basename(path)
        if name in ("__init__.py", "_context.py") or not name.startswith("_"):
            with open(path) as file:
                yield os.path.relpath(path, PACKAGE), ast.parse(file.read())


def lacking(function):
    """What has no type: names of arguments, and "return"."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = [a.arg for a in every if a is not None and a.annotation is None and a.arg not in ("self", "cls")]
    return names + ["return"] * (function.returns is None)


class Signatures(unittest.TestCase):
    def test_types(self):
        found = [(path, name, lacking(f)) for path, tree in modules() for name, f in functions(tree)]
        self.assertGreater(len(found), 250)
        self.assertEqual([entry for entry in found if entry[2]], [])

    def test_no_options(self):
        self.assertEqual([(path, name) for path, tree in modules() for name, f in functions(tree)
                          if f.args.kwarg is not None and name not in MAY_TAKE_ANY], [])

    def options(self, function):
        return {p.name: p.default for p in inspect.signature(function).parameters.values()
                if p.kind is p.KEYWORD_ONLY}

    def test_passed_on(self):
        whole = self.options(bridges.bridge_spec)
        self.assertEqual(len(whole), 22)
        for kind in (lierne.Bridge, lierne.BridgeRoutes, lierne.Megatron, lierne.Megatron.check):
            self.assertEqual(self.options(kind), whole, kind)
        ways = lierne.Context
        for way in (ways.node, ways.mpi, ways.oob, ways.sim, lierne.World):
            self.assertEqual(self.options(way), self.options(ways.self), way)
        self.assertEqual(self.options(schedules.run), self.options(schedules.Run.once))

    def test_torch_passes_on(self):
        """Read from the source: torch may be missing."""
        trees = dict(modules())
        made = {name: f for file in ("__init__.py", "_context.py", "planners.py")
                for name, f in functions(trees[os.path.join("torch", file)])}
        for kind in (lierne.Bridge, lierne.Redistribute, lierne.TensorSet, lierne.Graph, lierne.References, lierne.Halo):
            given = made[kind.__name__].args
            self.assertEqual([a.arg for a in given.args + given.kwonlyargs],
                             [name for name in inspect.signature(kind).parameters], kind)
        self.assertEqual([a.arg for a in made["context"].args.kwonlyargs], list(self.options(lierne.Context.self)))

    def test_types_exist(self):
        """Names in the annotations of what needs no torch."""
        names = {name: getattr(module, name) for module in
                 (sys.modules[n] for n in list(sys.modules) if n.startswith("lierne")) for name in vars(module)}
        for name in lierne.__all__:
            thing = getattr(lierne, name)
            for function in [thing] if inspect.isfunction(thing) else \
                    [f for f in vars(thing).values() if inspect.isfunction(f)] if inspect.isclass(thing) else []:
                typing.get_type_hints(function, names)


if __name__ == "__main__":
    main()

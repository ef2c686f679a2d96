"""The reference of C and Python on the site, made from the headers and the docstrings, which are the manual:
a page per header, a page per module, and their lines of the navigation. Nothing is imported or compiled.

Doxygen and its like want comments in a form of their own, and headers that programmers read would pay for it;
this needs Python alone. Usage: reference.py PAGES NAVIGATION (folders of the site, a file of mkdocs.yml)
"""
import ast
import glob
import os
import re
import sys

# In the order in which a reader may want them; the first one is the package.
MODULES = ["lierne", "lierne.errors", "lierne.hangs", "lierne.oob", "lierne.schedules", "lierne.torch",
           "lierne.torch.backend", "lierne.torch.checkpoint", "lierne.torch.compat", "lierne.torch.deepmd",
           "lierne.torch.dtensor", "lierne.torch.fairchem", "lierne.torch.fx", "lierne.torch.schedules",
           "lierne.megatron"]
NAME = re.compile(r"\b(lierne_\w+|LIERNE_\w+)\b(?!\.)")


def split(text):
    """(comment, code) of each piece of a header: a comment at the margin, then what follows it."""
    pieces, depth = [["", ""]], 0
    for line in text.split("\n"):
        if depth == 0 and (line.startswith("/*") or (not line and "".join(pieces[-1]).strip())):
            pieces.append(["", ""])
        if line.startswith("/*") and depth == 0:
            depth = -1
        if depth < 0:
            pieces[-1][0] += line + "\n"
            depth = 0 if line.rstrip().endswith("*/") else -1
            continue
        code = re.sub(r"/\*.*?(\*/|$)|\"[^\"]*\"", "", line)
        depth += code.count("{") - code.count("}")
        depth = max(depth, 0)
        pieces[-1][1] += line + "\n"
    return [(comment, code.strip("\n")) for comment, code in pieces]


def names_of(code):
    """What a piece declares."""
    bare = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    functions = re.findall(r"LIERNE_API\b[^;(]*?\b(lierne_\w+)\(", bare)
    types = re.findall(r"\}\s*(lierne_\w+);", bare) + re.findall(r"^typedef [\w ]+ \**(lierne_\w+);", bare, re.M)
    macros = re.findall(r"^#define (LIERNE_\w+)", bare, re.M)
    return list(dict.fromkeys(types + functions + [name for name in macros if name != "LIERNE_API"]))


def paragraphs(comment):
    """The text of a comment: lines behind " * ", the deeper ones as code."""
    lines = [re.sub(r"^ ?\*? ?", "", line) for line in comment.strip()[2:-2].rstrip().split("\n")]
    text, inside = [], False
    for line in lines:
        deeper = line.startswith("  ")
        if deeper != inside:
            text.append("")
        inside = deeper
        text.append("    " + line if deeper else line.strip())
    return "\n".join(text).strip("\n")


def link(text, where):
    """Markdown of prose: names are links to where they are declared, and nothing else is markup."""
    def named(match):
        name = match[1]
        return f"[`{name}`]({where[name]}#{name.lower()})" if name in where else f"`{name}`"

    out = []
    for line in text.split("\n"):
        if not line.startswith("    "):
            line = re.sub(r"([*<\[])", r"\\\1", line)
            line = NAME.sub(named, line)
            line = re.sub(r"\blierne/(\w+)\.h\b", lambda m: f"[lierne/{m[1]}.h]({m[1]}.h.md)", line)
            line = re.sub(r"\bdocs/([\w-]+)\.md\b", r"[\1.md](../docs/\1.md)", line)
            line = re.sub(r"(^|[^`\w])_(?=\w)", r"\1\\_", line)
        out.append(line)
    return "\n".join(out)


def headers():
    """{page: (title, pieces)} of the public headers."""
    found = {}
    for path in ["include/lierne.h", *sorted(glob.glob("include/lierne/*.h"))]:
        text = open(path, encoding="utf-8").read()
        text = re.sub(r"#ifdef __cplusplus\n(?:extern \"C\" \{|\})\n#endif\n", "", text)
        text = re.sub(r"#(?:ifndef|define) LIERNE_\w*H\n|#include .*\n|#endif\n?\Z", "", text)
        found[os.path.basename(path) + ".md"] = (os.path.relpath(path, "include"), split(text))
    return found


def write_c(folder):
    pages = headers()
    where = {name: page for page, (_, pieces) in pages.items() for _, code in pieces for name in names_of(code)}
    for page, (title, pieces) in pages.items():
        with open(os.path.join(folder, page), "w", encoding="utf-8") as file:
            print(f"# {title}\n", file=file)
            for comment, code in pieces:
                names = names_of(code)
                if names:
                    anchors = "".join(f'<a id="{name.lower()}"></a>' for name in names)
                    shown = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
                    print(f"{anchors}\n\n## {shown}\n", file=file)
                if code.strip():
                    print(f"```c\n{code}\n```\n", file=file)
                if comment:
                    print(link(paragraphs(comment), where) + "\n", file=file)
    return [(title, page) for page, (title, _) in pages.items()]


def path_of(module):
    base = os.path.join("src/python", *module.split("."))
    return os.path.join(base, "__init__.py") if os.path.isdir(base) else base + ".py"


def public(tree):
    """The names of a module that programs use: those of __all__, else those without an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            listed = [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
            return listed if len(listed) == len(node.value.elts) else None
    return None


def definitions(module):
    """{name: (where it is defined, its node)} of a module's classes and functions, imported ones too."""
    tree = ast.parse(open(path_of(module), encoding="utf-8").read())
    own = {n.name: (module, n) for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    names = public(tree)
    if names is None:
        return ast.get_docstring(tree), {name: own[name] for name in own if not name.startswith("_")}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lierne"):
            for alias in node.names:
                known = alias.name in names and os.path.exists(path_of(node.module)) and node.module != module
                if known:
                    theirs = ast.parse(open(path_of(node.module), encoding="utf-8").read())
                    own.update({n.name: (node.module, n) for n in theirs.body
                                if getattr(n, "name", None) == alias.name})
    return ast.get_docstring(tree), {name: own[name] for name in names if name in own}


def signature(node, name):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({ast.unparse(node.args)}){returns}"


def write_definition(file, name, node, level):
    decorators = {ast.unparse(d).split("(")[0] for d in node.decorator_list}
    text = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        shown = f"class {name}" + (f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else "")
    else:
        shown = name if "property" in decorators else signature(node, name)
    print(f"{'#' * level} `{name}`\n\n```python\n{shown}\n```\n\n{literal(text)}\n", file=file)
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            wanted = isinstance(member, ast.FunctionDef) and (member.name == "__init__" or member.name[0] != "_")
            if wanted and not any(ast.unparse(d).endswith(".setter") for d in member.decorator_list):
                write_definition(file, member.name, member, level + 1)


def literal(text):
    """Markdown of a docstring: nothing in its prose is markup."""
    return "\n".join(line if line.startswith("    ") else re.sub(r"([*_<\[])", r"\\\1", line)
                     for line in text.split("\n"))


def write_python(folder):
    for module in MODULES:
        text, found = definitions(module)
        with open(os.path.join(folder, module + ".md"), "w", encoding="utf-8") as file:
            print(f"# {module}\n\n{literal(text or '')}\n", file=file)
            for name, (_, node) in sorted(found.items()):
                write_definition(file, name, node, 2)
    return [(module, module + ".md") for module in MODULES]


def main(pages, navigation):
    folder = os.path.join(pages, "reference")
    os.makedirs(folder)
    with open(navigation, "a", encoding="utf-8") as file:
        for title, entries in (("C", write_c(folder)), ("Python API", write_python(folder))):
            print(f"  - {title}:", file=file)
            for name, page in entries:
                print(f"      - {name}: reference/{page}", file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])

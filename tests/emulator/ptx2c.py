"""Translates PTX text, as nvcc writes it, into C: a statement per instruction, whose meaning
instructions.h has under the instruction's own name. So what is not known there does not compile, and
what is not known here ends the translation; nothing is guessed.

usage: ptx2c.py IN.ptx... >OUT.inc
"""
import re
import sys

REGISTER = {"pred": "bool", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t",
            "f32": "uint32_t", "f64": "uint64_t"}
BYTES = {"u8": 1, "b8": 1, "u16": 2, "u32": 4, "b32": 4, "f32": 4, "u64": 8, "b64": 8, "f64": 8}
SPECIAL = {"%tid.x": "t->thread", "%ntid.x": "t->threads", "%ctaid.x": "t->block",
           "%nctaid.x": "t->blocks", "%globaltimer": "emulator_nanoseconds()"}
BARRIER = r"bar\.sync\s+0"  # of all threads of a block
# They have no result; the others have one, or a list of results.
EFFECTS = ("st", "bra", "ret", "exit", "membar", "fence", "nanosleep")


# About how many instructions of a processor one of PTX becomes, by its first name and width; 1 of others, of 64 bits 2.
COST = {("mul", 64): 4, ("mad", 64): 4, ("div", 32): 20, ("rem", 32): 22, ("div", 64): 90, ("rem", 64): 95}


def fail(what, text):
    raise SystemExit(f"ptx2c.py: {what} is not known: {text.strip()!r}")


def split(text):
    """At the commas that are in no braces."""
    return [part.strip() for part in re.split(r",(?![^{]*\})", text)] if text.strip() else []


def cost(op):
    """About how many instructions of a processor an instruction of PTX becomes."""
    width = 64 if op.endswith("64") and ".wide" not in op else 32
    return COST.get((op.split(".")[0], width), 2 if width == 64 and op[:2] not in ("ld", "st") else 1)


def counted(lines):
    """Statements, with a count of instructions where a run of them begins that is executed as a whole. lines: pairs
    of a statement and what it costs."""
    out, run, n = [], [], 0
    for line, instructions in lines:
        label = line.endswith(":;")
        if not label:
            run.append(line)
            n += instructions
        if label or re.search(r"\b(goto|return)\b", line):
            out += [f"t->instructions += {n};"] * (n > 0) + run + [line] * label
            run, n = [], 0
    return out + [f"t->instructions += {n};"] * (n > 0) + run


def joined(statements):
    """Lines of as many statements as fit; a label begins one, a jump ends one."""
    lines, open_line = [], False
    for statement in statements:
        if open_line and not statement.endswith(":;") and len(lines[-1]) + len(statement) < 110:
            lines[-1] += " " + statement
        else:
            lines.append(statement)
        open_line = not re.search(r"\b(goto|return)\b", statement)
    return lines


class Function:
    """An entry: its parameters, and the C statements of its body."""

    def __init__(self, name):
        self.name = name
        self.names = {}  # of parameters and local arrays: the C expression of their addresses
        self.parameters = []  # (offset, bytes)
        self.bytes = 0
        self.local = self.shared = 0  # bytes
        self.barriers = 0
        self.threads = 1024
        self.registers = []  # (type, name)
        self.lines = []  # (statement, what it costs)
        self.meets = False  # at barriers: then its registers outlive a call of the function

    def parameter(self, text):
        array = re.fullmatch(r"\.param\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", text)
        scalar = re.fullmatch(r"\.param\s+\.(\w+)\s+(?:\.ptr\s+(?:\.align\s+\d+\s+)?)?(\w+)", text)
        if array:
            align, name, size = int(array[1]), array[2], int(array[3])
        elif scalar and scalar[1] in BYTES:
            align = size = BYTES[scalar[1]]
            name = scalar[2]
        else:
            fail("a parameter", text)
        at = -(-self.bytes // align) * align
        self.names[name] = f"emulator_parameter(t, {at})"
        self.parameters.append((at, size))
        self.bytes = at + size

    def value(self, text):
        if text in SPECIAL:
            return SPECIAL[text]
        if re.fullmatch(r"%[a-zA-Z]+\d*", text):
            return self.register(text[1:])
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}", text):
            return "0x" + text[2:]
        if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", text):
            return text if abs(int(text, 0)) < 1 << 63 else text + "u"
        return self.names[text] if text in self.names else fail("an operand", text)

    def register(self, name):
        return "r->" + name if self.meets and name not in self.names else name

    def barrier(self, guarded):
        """The function returns, and is called again when all threads have come here."""
        if guarded or self.local:
            fail("a barrier of some threads, or beside local memory", self.name)
        self.barriers += 1
        return f"t->barrier = {self.barriers}; return; barrier_{self.barriers}:;"

    def address(self, text):
        found = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", text)
        if not found:
            fail("an address", text)
        base = self.value(found[1].strip())
        return base if not found[2] else f"{base} + {found[2]}".replace("+ -", "- ")

    def memory(self, op, operands):
        """ld and st: a value, or two or four in braces."""
        loads = op.startswith("ld")
        values, address = operands if loads else operands[::-1]
        values = [self.value(v) for v in split(values.strip("{}"))]
        call = f"{op.replace('.', '_')}(t, {self.address(address)}"
        if not loads:
            return f"{call}, {', '.join(values)});"
        if len(values) == 1:
            return f"{values[0]} = {call});"
        assigned = " ".join(f"{v} = v.at[{i}];" for i, v in enumerate(values))
        return f"{{ const emulator_vector v = {call}); {assigned} }}"

    def instruction(self, text):
        op, _, rest = re.sub(r"\s+", " ", text).partition(" ")
        operands, kind = split(rest), op.split(".")[0]
        name = op.replace(".", "_")
        if kind in ("ld", "st") and len(operands) == 2:
            return self.memory(op, operands)
        if kind == "bra" and len(operands) == 1:
            return f"goto {operands[0].replace('$', '')};"
        if op in ("ret", "exit"):
            return "return;"
        if kind == "mov" and operands[0].startswith("{"):
            parts = [self.value(v) for v in split(operands[0].strip("{}"))]
            pointers = ", ".join("&" + part for part in parts)
            return f"un{name}({self.value(operands[1])}, {pointers});"
        if kind == "mov" and operands[1].startswith("{"):
            return f"{self.value(operands[0])} = pack_{name}" \
                   f"({', '.join(self.value(v) for v in split(operands[1].strip('{}')))});"
        values = [self.value(v) for v in operands]
        if kind in EFFECTS:
            return f"{name}({', '.join(values)});"
        return f"{values[0]} = {name}({', '.join(values[1:])});"

    def statement(self, text):
        register = re.fullmatch(r"\.reg\s+\.(\w+)\s+(%?\w+)(?:<(\d+)>)?", text)
        shared = re.fullmatch(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", text)
        local = re.fullmatch(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", text)
        if register and register[1] in REGISTER:
            self.declare(REGISTER[register[1]], register[2].lstrip("%"), register[3])
        elif local and not self.local:
            self.local = int(local[3])
            self.names[local[2]] = "emulator_local(t)"
        elif shared and not self.shared:
            self.shared = int(shared[3])
            self.names[shared[2]] = "0"
        elif text.startswith(".pragma"):
            pass
        elif text.startswith("."):
            fail("a directive", text)
        else:
            guard = re.match(r"@(!?)%(p\d+)\s+", text)
            condition = f"if ({guard[1]}{self.register(guard[2])}) " if guard else ""
            rest = text[guard.end():] if guard else text
            self.lines.append((self.barrier(guard) if re.fullmatch(BARRIER, rest)
                               else condition + self.instruction(rest), cost(rest.split()[0])))

    def declare(self, kind, name, count):
        """Numbered ones before the body, one of inline assembly, which has no %, in its braces."""
        if count:
            self.registers += [(kind, f"{name}{i}") for i in range(int(count))]
        else:
            self.lines.append((f"{kind} {name} = 0;", 0))
            self.names[name] = name

    def body(self, text):
        """Statements end with semicolons; before them may be labels, and braces of a scope."""
        self.meets = re.search(rf"(?m)^\s*{BARRIER};", text) is not None
        for part in text.split(";"):
            part = part.strip()
            while part:
                label = re.match(r"\$(\w+):\s*", part)
                if label:
                    self.lines.append((f"{label[1]}:;", 0))
                    part = part[label.end():]
                elif part[0] in "{}":
                    self.lines.append((part[0], 0))
                    part = part[1:].strip()
                else:
                    self.statement(part)
                    part = ""

    def declarations(self):
        """Of the registers that are used: compilers leave numbers out."""
        used = set(re.findall(r"\w+", " ".join(line for line, _ in self.lines)))
        zero = "" if self.meets else " = 0"
        for kind in sorted(set(REGISTER.values())):
            names = [name for other, name in self.registers if other == kind and name in used]
            for i in range(0, len(names), 10):
                yield f"{kind} {', '.join(name + zero for name in names[i:i + 10])};"

    def resumption(self):
        """Registers of a thread that meets others at barriers, and where it goes on."""
        cases = "".join(f"case {i + 1}: goto barrier_{i + 1}; " for i in range(self.barriers))
        return ["struct registers {", *self.declarations(), "} *const r = t->registers;",
                f"_Static_assert(sizeof *r <= {self.register_bytes()}, \"registers have space\");",
                "const uint32_t from = t->barrier;", "t->barrier = 0;",
                f"switch (from) {{ {cases}}}"]

    def register_bytes(self):
        return 8 * len(self.registers) if self.meets else 0

    def text(self):
        spans = ", ".join(f"{{{at}, {size}}}" for at, size in self.parameters)
        return "\n".join([f"static void {self.name}(emulator_thread *t) {{",
                          *joined([*(self.resumption() if self.meets else self.declarations()),
                                   *counted(self.lines)]), "}",
                          f"static const emulator_span {self.name}_spans[] = {{{spans}}};", ""])


def functions(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*\.(version|target|address_size)[^\n]*", "", text, flags=re.M)
    entry = re.compile(r"\s*\.visible\s+\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{(.*?)\n\}", re.S)
    at = 0
    while text[at:].strip():
        found = entry.match(text, at)
        if not found:
            fail("a part", text[at:at + 200])
        function = Function(found[1])
        for parameter in split(re.sub(r"\s+", " ", found[2])):
            function.parameter(parameter)
        limit = re.fullmatch(r"\s*(?:\.maxntid\s+(\d+)(?:,\s*1,\s*1)?)?"
                             r"(?:\s*\.minnctapersm\s+\d+)?\s*", found[3])
        function.threads = int((limit or fail("a limit", found[3]))[1] or function.threads)
        function.body(found[4])
        yield function
        at = found.end()


def main():
    print("/* Made by tests/emulator/ptx2c.py. */")
    entries = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        release = re.search(r"release [\d.]+, V[\d.]+", text)
        print(f"/* {release[0] if release else 'no nvcc'}, {re.search(r'sm_[0-9]+', text)[0]} */")
        for f in functions(text):
            print(f.text(), end="")
            entries.append(f'{{"{f.name}", {f.name}, {f.name}_spans, {len(f.parameters)}, {f.bytes}, '
                           f"{f.local}, {f.threads}, {f.shared}, {f.register_bytes()}}},")
    print("const emulator_entry emulator_entries[] = {", *entries, "{0}};", sep="\n")


main()

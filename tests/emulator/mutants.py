"""Breaks translated kernels, one statement at a time, and runs programs on the emulated device until
one fails. A broken kernel that none notices is a missing test.

usage: mutants.py BUILD [NAME...]   Last line: N passed, N failed.
"""
import os
import re
import subprocess
import sys

MEMORY, THREADS, GOLDEN, DELTAS = ["memory"], ["threads"], ["launched/golden"], ["ranks/deltas"]
# name, kernel, what is replaced by what, how often it must be there, the program that must fail
MUTANTS = [
    ("tile_shorter", "copies", r"(min_u64\(r->rd\d+, )16384", r"\g<1>16200", 1, MEMORY),
    ("tile_longer", "copies", r"(min_u64\(r->rd\d+, )16384", r"\g<1>16400", 1, MEMORY),
    ("tile_shorter_in_sums", "f32", r"(min_u64\(r->rd\d+, )16384", r"\g<1>16200", 1, MEMORY),
    ("tile_longer_in_sums", "bf16", r"(min_u64\(r->rd\d+, )16384", r"\g<1>16400", 1, MEMORY),
    ("tile_begin", "copies", r"(shl_b64\(r->rd\d+, )14\)", r"\g<1>13)", 1, MEMORY),
    ("lists_shifted", "copies", r"(emulator_parameter\(t, 0\) \+ 16\))", r"\1 + 8", 1, MEMORY),
    ("blocks_shifted", "i64", r"(emulator_parameter\(t, 0\) \+ 8\))", r"\1 + 56", 1, MEMORY),
    ("threads_twice", "copies", r"t->thread\b", "(t->thread & 254)", None, MEMORY),
    ("barrier_missing", "copies", r"t->barrier = 1; return; (barrier_1:;)", r"\1", 1, MEMORY),
    ("copy_onto_itself", "copies", r"(setp_)eq(_s64\(r->rd\d+, r->rd\d+\))", r"\g<1>gt\2", 5, GOLDEN),
    ("sum_is_difference", "f32", r"\badd_rn_f32", "sub_rn_f32", None, MEMORY),
    ("sum_is_product", "f64", r"\badd_rn_f64", "mul_rn_f64", None, MEMORY),
    ("rounded_up", "bf16", r", 32767\)", ", 32768)", None, MEMORY),
    ("bytes_subtracted", "i8", r"\badd_s16", "sub_s16", None, MEMORY),
    ("integers_lose_a_bit", "i32", r"(r->r\d+) = add_s32\((r->r\d+), (r->r\d+)\);",
     r"\1 = add_s32(\2, \3) & ~1u;", None, MEMORY),
    ("flag_inverted", "step", r"(p\d+ = setp_)eq(_s32\(r\d+, r\d+\);)", r"\1ne\2", 2, THREADS),
    ("flag_of_another_value", "step", r"rd11 \+ 16|(?<=ld_param_u32\(t, rd2 \+ )16", "rd11 + 20", None,
     THREADS),
    ("release_relaxed", "step", r"\bst_release", "st_relaxed", None, THREADS),
    ("acquire_relaxed", "step", r"\bld_acquire", "ld_relaxed", None, THREADS),
    ("deadline_inverted", "step", r"setp_gt_u64", "setp_lt_u64", 1, THREADS),
    ("failure_not_looked_at", "step", r"(ld_relaxed_sys_u64\(t, rd\d+\))", r"\1 + 1", None, THREADS),
    ("changes_not_waited_for", "find_changes", r"t->barrier = 1; return; (barrier_1:;)", r"\1", 1, DELTAS),
    ("changes_listed_twice", "find_changes", r"t->thread\b", "(t->thread & 254)", None, DELTAS),
    ("changes_made_by_half", "make_changes", r"t->thread\b", "(t->thread & 254)", None, DELTAS),
]


def kernel_of(text, name):
    full = name if name == "advance" else "run_" + name
    start = text.index(f"static void lierne_{full}(")
    end = text.index("static void", start + 1) if "static void" in text[start + 1:] else len(text)
    spans = text[start:end].rpartition("};\n")
    entry = re.search(rf'^\{{"lierne_{full}".*$', text, re.M)[0]
    return spans[0] + spans[1], entry


def build(folder, build_folder, text, mutant):
    name, kernel, old, new, times, _ = mutant
    body, entry = kernel_of(text, kernel)
    changed, found = re.subn(old, new, body)
    if found == 0 or (times and found != times):
        return f"its statement is there {found} times"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}.inc", "w", encoding="utf-8") as file:
        file.write(changed.split("const emulator_entry")[0] +
                   "const emulator_entry emulator_entries[] = {\n" + entry + "\n{0}};\n")
    made = subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-w", "-fPIC", "-shared",
                           "-ffp-contract=off", "-fno-strict-aliasing", "-Itests/emulator", "-I.",
                           f'-DKERNELS="{folder}/{name}.inc"', "-o", f"{folder}/{name}.so",
                           "tests/emulator/kernels.c"], capture_output=True, text=True)
    return made.stderr[:300] if made.returncode else None


def run(emulated, program, kernels):
    environment = dict(os.environ, LIERNE_TEST_EXECUTOR="cuda",
                       **({"EMULATOR_KERNELS": kernels} if kernels else {}))
    launcher = [f"{emulated}/../tests/launched/launch", "2"] if "/" in program[0] else []
    try:
        return subprocess.run([*launcher, f"{emulated}/tests/gpu/{program[0]}"], env=environment,
                              capture_output=True, timeout=100).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main():
    build_folder = os.path.abspath(sys.argv[1])
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    emulated = build_folder + "/emulated"
    with open("tests/emulator/sm_100.inc", encoding="utf-8") as file:
        text = file.read()
    failed = 0
    chosen = [m for m in MUTANTS if len(sys.argv) < 3 or m[0] in sys.argv[2:]]
    for mutant in chosen:
        wrong = build(emulated + "/mutants", build_folder, text, mutant)
        if not wrong and not run(emulated, mutant[5], f"{emulated}/mutants/{mutant[0]}.so"):
            wrong = "survived"
        failed += wrong is not None
        print(f"FAIL {mutant[0]}: {wrong}" if wrong else f"{mutant[0]:24} caught by {mutant[5][0]}",
              flush=True)
    for program in (MEMORY, THREADS, GOLDEN, DELTAS):
        if run(emulated, program, None):
            failed += 1
            print(f"FAIL {program[0]} fails without a mutant")
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return failed > 0


sys.exit(main())

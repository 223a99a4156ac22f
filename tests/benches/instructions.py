#!/usr/bin/env python3
"""Counts the instructions of the webhook's cases with callgrind, and compares them with the committed baseline.

usage: tests/benches/instructions.py [--update] [--functions] [CASE…]

A count is what a case costs without the start of the process: the difference of two runs with different numbers of
repetitions. Unlike times, counts hardly differ between runs and machines. The exit status is 1 if a case needs more than
TOLERANCE more or less than the baseline; `--update` writes the baseline instead, `--functions` prints the most expensive
functions of each case.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASELINE = ROOT / "tests/benches/instructions.json"
TOLERANCE = 0.03
# A function is reported if it explains at least this part of a case's difference.
WORTH_REPORTING = 0.1
REPETITIONS = {"large_pod": (1, 3)}


def program():
    """Builds the bench in its own profile, which has symbols, and returns its path."""
    command = ["cargo", "build", "--locked", "--profile", "instructions", "--package", "swansong-webhook"]
    command += ["--bench", "instructions", "--message-format", "json-render-diagnostics"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    messages = (json.loads(line) for line in output.splitlines())
    artifacts = [m for m in messages if m["reason"] == "compiler-artifact" and m["target"]["name"] == "instructions"]
    return artifacts[-1]["executable"]


def count(bench, case, times, folder):
    """The instructions of each function in one run."""
    out = Path(folder) / f"{case}.{times}"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no"]
    command += ["--compress-pos=no", bench, case, str(times)]
    # A fixed environment, since its size moves the stack.
    run = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"valgrind failed on {case}:\n{run.stderr}")
    functions, function, is_call = Counter(), None, False
    for line in out.read_text().splitlines():
        if line.startswith("fn="):
            function = re.sub(r"::h[0-9a-f]{16}$", "", line[3:])
        elif line.startswith("calls="):
            is_call = True
        elif line[:1].isdigit():
            # The line after a call has the cost of what was called, which its own lines have too.
            if not is_call:
                functions[function] += int(line.split()[-1])
            is_call = False
    return functions


def measure(bench, case, folder):
    few, many = REPETITIONS.get(case, (10, 60))
    functions = count(bench, case, many, folder)
    functions.subtract(count(bench, case, few, folder))
    # The C library's copies are left out: callgrind counts each byte of their string instructions.
    costs = {name: cost // (many - few) for name, cost in functions.items() if not name.startswith("__mem")}
    return Counter({name: cost for name, cost in costs.items() if cost})


def growth(functions, baseline):
    """The functions that explain most of a difference."""
    total = functions.total() - sum(baseline["functions"].values())
    rows = [(functions[name] - baseline["functions"].get(name, 0), name) for name in functions]
    rows = sorted((row for row in rows if row[0] > WORTH_REPORTING * abs(total)), reverse=True)
    return [f"    {difference:+9,} {name}" for difference, name in rows[:8]]


def main(arguments):
    flags = {argument for argument in arguments if argument.startswith("--")}
    if flags - {"--update", "--functions"}:
        sys.exit(__doc__)
    bench = program()
    cases = [argument for argument in arguments if argument not in flags]
    cases = cases or subprocess.run([bench], stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            functions = measure(bench, case, folder)
            total = functions.total()
            before = baseline.get(case, {"instructions": total, "functions": {}})
            change = total / before["instructions"] - 1
            print(f"{case:16} {total:12,} instructions, {change:+.1%}", flush=True)
            if "--functions" in flags:
                print("\n".join(f"    {cost:9,} {name}" for name, cost in functions.most_common(25)))
            if "--update" in flags:
                baseline[case] = {"instructions": total, "functions": dict(functions.most_common(60))}
            elif abs(change) > TOLERANCE:
                failed.append(case)
                print("\n".join(growth(functions, before)))
    if "--update" in flags:
        BASELINE.write_text(json.dumps(baseline, indent=1) + "\n")
    elif failed:
        sys.exit(
            f"{', '.join(failed)}: more than {TOLERANCE:.0%} off the baseline. If that is intended, run "
            f"`{Path(__file__).relative_to(ROOT)} --update` and say in the commit why; fewer instructions count too, so that "
            "the next growth is seen"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measures what the launcher hook adds to each start of Python, compiled each time as in a read-only container.

usage: python3 tests/benches/launcher_hook.py
"""

import pathlib
import subprocess
import sys
import tempfile

HOOK = pathlib.Path(__file__).resolve().parents[2] / "webhook/inject/src/launcher_hook/swansong_launcher_hook.py"
RUNS = 50
PROGRAM = """
from time import process_time
start = process_time()
import swansong_launcher_hook
swansong_launcher_hook.install(60)
print(process_time() - start)
"""


def milliseconds(folder):
    """The processor time of loading the hook, in a new process."""
    output = subprocess.check_output([sys.executable, "-S", "-B", "-c", PROGRAM], cwd=folder)
    return 1000 * float(output)


with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, HOOK.name).write_text(HOOK.read_text())
    times = sorted(milliseconds(folder) for _ in range(RUNS))
print("launcher hook, Python %s: median %.2f ms, best %.2f ms" % (sys.version.split()[0], times[RUNS // 2], times[0]))

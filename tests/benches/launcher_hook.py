"""Measures what the launcher hook adds to each start of Python, compiled each time as in a read-only container.

usage: python3 tests/benches/launcher_hook.py
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile

HOOK = pathlib.Path(__file__).resolve().parents[2] / "webhook/inject/src/launcher_hook/swansong_launcher_hook.py"
PTH = HOOK.with_name("swansong-launcher-hook.pth")
RUNS = 100


def start_milliseconds(base):
    """The processor time of a start of Python with the user site directory below `base`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.check_call([sys.executable, "-B", "-c", ""], env={**os.environ, "PYTHONUSERBASE": base})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


with tempfile.TemporaryDirectory() as without, tempfile.TemporaryDirectory() as base:
    for folder in (without, base):
        site = pathlib.Path(folder, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
        site.mkdir(parents=True)
    (site / HOOK.name).write_text(HOOK.read_text())
    (site / PTH.name).write_text(PTH.read_text().replace("LIMIT", "60").replace("PATCH", "False"))
    runs = [(start_milliseconds(without), start_milliseconds(base)) for _ in range(RUNS)]
plain, hooked = (sorted(times)[RUNS // 2] for times in zip(*runs))
print("Python %s starts in %.1f ms, %.1f ms more with the launcher hook" % (sys.version.split()[0], plain, hooked - plain))

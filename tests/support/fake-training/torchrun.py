"""A fake of torchrun and msrun with TaskD's patch: one per Pod; the ranks are its children.

SIGTERM raises an exception in the main thread, as torch's launcher does, upon which the ranks are killed. PID 1 of a
container ignores signals without a handler, so the handler is what makes the Pod end within its grace period.
"""

import os
import pathlib
import signal
import subprocess
import sys

from variables import MINDSPORE, variable

if MINDSPORE:
    from taskd.python.framework.agent.ms_agent.ms_agent import MsAgent as Agent
else:
    from taskd.python.framework.agent.pt_agent.pt_agent import PtAgent as Agent


class SignalException(Exception):
    """What torch's launcher raises on SIGTERM."""


def on_signal(number, frame):
    raise SignalException("received signal %d" % number)


def start_workers():
    node, local_size = int(variable("RANK")), int(variable("LOCAL_WORLD_SIZE"))
    ranks = range(node * local_size, (node + 1) * local_size)
    # Without site-packages, which take most of an interpreter's start.
    program = [sys.executable, "-S", str(pathlib.Path(__file__).with_name("train.py"))]
    return {
        rank: subprocess.Popen(program, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(local_rank)})
        for local_rank, rank in enumerate(ranks)
    }


def stop_workers(workers):
    for worker in workers.values():
        worker.kill()
        worker.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_signal)
    agent = Agent(int(variable("RANK")), start_workers, stop_workers)
    try:
        agent.invoke_run()
    except SignalException as error:
        print("launcher: %s" % error, flush=True)
        stop_workers(agent.workers)
        sys.exit(143)

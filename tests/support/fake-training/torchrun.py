"""A fake of torchrun with TaskD's patch: one per Pod; the ranks are its children.

SIGTERM raises an exception in the main thread, as torch's launcher does, upon which the ranks are killed. PID 1 of a
container ignores signals without a handler, so the handler is what makes the Pod end within its grace period.
"""

import os
import pathlib
import signal
import subprocess
import sys

from taskd.python.framework.agent.pt_agent.pt_agent import PtAgent


class SignalException(Exception):
    """What torch's launcher raises on SIGTERM."""


def on_signal(number, frame):
    raise SignalException("received signal %d" % number)


def start_workers():
    node, local_size = int(os.environ["NODE_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    ranks = range(node * local_size, (node + 1) * local_size)
    program = [sys.executable, str(pathlib.Path(__file__).with_name("train.py"))]
    return {rank: subprocess.Popen(program, env={**os.environ, "RANK": str(rank)}) for rank in ranks}


def stop_workers(workers):
    for worker in workers.values():
        worker.kill()
        worker.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_signal)
    agent = PtAgent(int(os.environ["NODE_RANK"]), start_workers, stop_workers)
    try:
        agent.invoke_run()
    except SignalException as error:
        print("launcher: %s" % error, flush=True)
        stop_workers(agent.workers)
        sys.exit(143)

"""A fake of the part of ClusterD that leads a dump, with the times measured on the real one.

A device fault is followed by `preExitProcess` after a grace of 10 s; only MindIO's report of lost ranks (`process_fault`),
or the call Recover.ReportProcessFault, raises the order `saveAndExit`. The result is written as `ProcessRecoverStatus` to the
PodGroup. A job whose PodGroup is deleted is removed with its results.

usage: python3 clusterd.py ADDRESS

As a program it reads commands from standard input, a line of JSON each, and prints a line for each job and its status.
"""

import json
import sys
import threading
import time

from channel import listen, start
from scale import seconds

GRACE = 10


class Job:
    def __init__(self, name, channel, ranks_per_node):
        self.name = name
        self.channel = channel
        self.ranks_per_node = ranks_per_node
        self.status = None
        self.is_ordered = False
        self.fault_nodes = []

    def nodes(self, ranks):
        return sorted({rank // self.ranks_per_node for rank in ranks})


class ClusterD:
    def __init__(self, notify=lambda **fields: None):
        """`notify` is called with each job that registers, and with its status."""
        self.notify = notify
        self.jobs = {}
        self.ordered_at = {}
        self.lock = threading.Lock()
        self.available = threading.Event()
        self.available.set()

    def serve(self, address="127.0.0.1"):
        return listen(address, 0, self.handle_manager)

    def handle_manager(self, channel):
        registration = channel.receive()
        name = registration["register"]
        job = Job(name, channel, registration["ranks_per_node"])
        with self.lock:
            self.jobs[name] = job
        self.notify(job=name)
        for message in channel.messages():
            self.available.wait()
            with self.lock:
                if name not in self.jobs or time.monotonic() > message.get("until", float("inf")):
                    continue
                if "process_fault" in message:
                    self.order_dump(job, message["process_fault"])
                elif "recover_status" in message:
                    job.status = "dump-success" if message["recover_status"] else "dump-failed"
                    self.notify(job=name, status=job.status)
                    job.channel.send(signal="exit", nodes=job.fault_nodes)

    def order_dump(self, job, ranks):
        if job.is_ordered:
            return
        job.is_ordered = True
        self.ordered_at[job.name] = time.monotonic()
        job.fault_nodes = job.nodes(ranks)
        job.channel.send(signal="saveAndExit", nodes=job.fault_nodes)

    def device_fault(self, name, ranks):
        """A fault of the devices of `ranks` was accepted."""
        start(self.kill_after_grace, name, ranks)

    def kill_after_grace(self, name, ranks):
        time.sleep(seconds(GRACE))
        with self.lock:
            job = self.jobs.get(name)
        if job:
            job.channel.send(signal="preExitProcess", nodes=job.nodes(ranks), ranks=ranks)

    def report_process_fault(self, name, ranks):
        """The call Recover.ReportProcessFault: the order follows at once, before MindIO has missed a heartbeat."""
        with self.lock:
            self.order_dump(self.jobs[name], ranks)

    def delete_pod_group(self, name):
        """Removes the job; returns the status that its PodGroup had."""
        with self.lock:
            job = self.jobs.pop(name, None)
            return job and job.status

    def execute(self, command):
        """Executes a command that a program reads from its standard input."""
        if "device_fault" in command:
            self.device_fault(command["device_fault"], command["ranks"])
        elif "delete_pod_group" in command:
            self.delete_pod_group(command["delete_pod_group"])


def print_line(**fields):
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    clusterd = ClusterD(print_line)
    print_line(port=clusterd.serve(sys.argv[1]))
    for line in sys.stdin:
        clusterd.execute(json.loads(line))

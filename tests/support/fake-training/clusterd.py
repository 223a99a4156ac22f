"""A fake of the part of ClusterD that leads a dump, with the times measured on the real one.

A device fault is followed by `preExitProcess` after a grace of 10 s; only MindIO's report of lost ranks (`process_fault`)
raises the order `saveAndExit`. The result is written as `ProcessRecoverStatus` to the PodGroup. A job whose PodGroup is
deleted is forgotten, and its results with it.
"""

import threading
import time

from channel import listen, start
from scale import seconds

GRACE = 10


class Job:
    def __init__(self, channel):
        self.channel = channel
        self.status = None
        self.ordered_at = None
        self.fault_nodes = []


class ClusterD:
    def __init__(self, ranks_per_node):
        self.ranks_per_node = ranks_per_node
        self.jobs = {}
        self.changed = threading.Condition()

    def serve(self, address="127.0.0.1"):
        return listen(address, 0, self.handle_manager)

    def handle_manager(self, channel):
        name = channel.receive()["register"]
        job = Job(channel)
        with self.changed:
            self.jobs[name] = job
            self.changed.notify_all()
        for message in channel.messages():
            with self.changed:
                if name not in self.jobs:
                    continue
                if "process_fault" in message:
                    self.order_dump(job, message["process_fault"])
                elif "recover_status" in message:
                    job.status = "dump-success" if message["recover_status"] else "dump-failed"
                    job.channel.send(signal="exit", nodes=job.fault_nodes)
                self.changed.notify_all()

    def order_dump(self, job, ranks):
        if job.ordered_at is not None:
            return
        job.ordered_at = time.monotonic()
        job.fault_nodes = sorted({rank // self.ranks_per_node for rank in ranks})
        job.channel.send(signal="saveAndExit", nodes=job.fault_nodes)

    def device_fault(self, name, ranks):
        """A fault of the devices of `ranks` was accepted."""
        start(self.kill_after_grace, name, ranks)

    def kill_after_grace(self, name, ranks):
        time.sleep(seconds(GRACE))
        with self.changed:
            job = self.jobs.get(name)
        if job:
            nodes = sorted({rank // self.ranks_per_node for rank in ranks})
            job.channel.send(signal="preExitProcess", nodes=nodes, ranks=ranks)

    def delete_pod_group(self, name):
        """Forgets the job; returns the status that its PodGroup had."""
        with self.changed:
            job = self.jobs.pop(name, None)
            self.changed.notify_all()
            return job and job.status

    def wait_for(self, condition, timeout):
        """Waits until `condition`, a function of this, is true; returns its value."""
        with self.changed:
            self.changed.wait_for(lambda: condition(self), timeout)
            return condition(self)

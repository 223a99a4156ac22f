"""A fake of the part of ClusterD that leads a dump, with the times measured on the real one.

A device fault is followed by `preExitProcess` after a grace of 10 s; only MindIO's report of lost ranks (`process_fault`),
or the call Recover.ReportProcessFault, raises the order `saveAndExit`. The result is written as `ProcessRecoverStatus` to the
PodGroup. A job whose PodGroup is deleted is removed with its results.
"""

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
    def __init__(self):
        self.jobs = {}
        self.ordered_at = {}
        self.changed = threading.Condition()
        self.available = threading.Event()
        self.available.set()

    def serve(self, address="127.0.0.1"):
        return listen(address, 0, self.handle_manager)

    def handle_manager(self, channel):
        registration = channel.receive()
        name = registration["register"]
        job = Job(name, channel, registration["ranks_per_node"])
        with self.changed:
            self.jobs[name] = job
            self.changed.notify_all()
        for message in channel.messages():
            self.available.wait()
            with self.changed:
                if name not in self.jobs or time.monotonic() > message.get("until", float("inf")):
                    continue
                if "process_fault" in message:
                    self.order_dump(job, message["process_fault"])
                elif "recover_status" in message:
                    job.status = "dump-success" if message["recover_status"] else "dump-failed"
                    job.channel.send(signal="exit", nodes=job.fault_nodes)
                self.changed.notify_all()

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
        with self.changed:
            job = self.jobs.get(name)
        if job:
            job.channel.send(signal="preExitProcess", nodes=job.nodes(ranks), ranks=ranks)

    def report_process_fault(self, name, ranks):
        """The call Recover.ReportProcessFault: the order follows at once, before MindIO has missed a heartbeat."""
        with self.changed:
            self.order_dump(self.jobs[name], ranks)

    def delete_pod_group(self, name):
        """Removes the job; returns the status that its PodGroup had."""
        with self.changed:
            job = self.jobs.pop(name, None)
            self.changed.notify_all()
            return job and job.status

"""A fake of MindIO's controller and processors (mindio_ttp), with the times and rules measured on the real ones.

Heartbeats every 2 s; a rank is lost without one for 8 s, checked every 2 s and confirmed 2 s later. The controller
reports lost ranks once, waits 30 s for an order, chooses for each shard of a data-parallel group the first rank in rank
order that it believes to be alive, and has the files renamed only when all chosen ranks saved within
TTP_NORMAL_ACTION_TIME_LIMIT (default 180 s). 30 s after a dump it orders all processors to exit.
"""

import os
import pathlib
import signal
import sys
import threading
import time

from channel import connect, listen, start
from scale import seconds
from variables import MINDSPORE

HEARTBEAT = 2
LOST_AFTER = 8
ORDER_TIMEOUT = 30
EXIT_AFTER_DUMP = 30
RECONNECT = 1
# Built into MindSpeed-LLM: TTP_PORT does not change it.
MINDSPEED_PORT = 8000


class Controller:
    """Runs in the TaskD Manager's process and is driven by it: it never dumps without an order."""

    def __init__(self, groups, report_lost, report_result):
        """`groups` are lists of ranks with the same parameters, with `replicas` copies of the optimizer's state each."""
        self.groups = groups
        self.report_lost = report_lost
        self.report_result = report_result
        self.processors = {}
        self.heartbeats = {}
        self.lost = set()
        self.suspected = set()
        self.replies = {}
        self.changed = threading.Condition()
        self.state = "training"
        self.limit = min(max(int(os.environ.get("TTP_NORMAL_ACTION_TIME_LIMIT", "180")), 30), 1800)

    def serve(self, address, port):
        listen(address, port, self.handle)
        start(self.watch_heartbeats)

    def handle(self, channel):
        rank = channel.receive()["register"]
        with self.changed:
            self.processors[rank] = channel
            self.heartbeats[rank] = time.monotonic()
            if len(self.processors) == sum(len(group["ranks"]) for group in self.groups):
                log("all processors registered")
        for message in channel.messages():
            with self.changed:
                if self.processors.get(rank) is not channel:
                    return
                self.heartbeats[rank] = time.monotonic()
                if "reply" in message:
                    self.replies[rank] = message["reply"]
                    self.changed.notify_all()

    def watch_heartbeats(self):
        while True:
            time.sleep(seconds(HEARTBEAT))
            with self.changed:
                silent = self.silent_ranks()
                confirmed = (silent & self.suspected) - self.lost
                self.suspected = silent
                self.lost |= confirmed
                first_report = confirmed and self.state == "training"
                if first_report:
                    self.state = "reported"
            if first_report:
                start(self.report_and_wait, sorted(confirmed))

    def silent_ranks(self):
        now = time.monotonic()
        return {rank for rank, at in self.heartbeats.items() if now - at >= seconds(LOST_AFTER)}

    def report_and_wait(self, ranks):
        log("ranks %s reported as lost" % ranks)
        # The lines of the real controller, by which `swansong doctor --last-fault` knows the course.
        log("selected error ranks: %s, step: 1" % ranks)
        log("wait Mindx notify stop train...")
        self.report_lost(ranks)
        with self.changed:
            ordered = self.changed.wait_for(lambda: self.state == "dumping", seconds(ORDER_TIMEOUT))
            if not ordered:
                self.state = "ended"
                log("no order within %d s: ended without a dump" % ORDER_TIMEOUT)
                log("wait mindx wake up action ret:110")

    def save_and_exit(self):
        """The order to dump. Runs the whole dump and reports its result."""
        with self.changed:
            if self.state not in ("training", "reported"):
                return
            self.state = "dumping"
            self.changed.notify_all()
        log("mindx calling notify to dump!")
        result = self.dump()
        self.report_result(result)
        time.sleep(seconds(EXIT_AFTER_DUMP))
        with self.changed:
            processors = list(self.processors.values()) if self.state == "dumping" else []
        for channel in processors:
            channel.send(order="exit")

    def restart(self):
        """Replaces this controller by a new one: those that are connected are disconnected, others may connect."""
        with self.changed:
            processors, self.processors, self.heartbeats = self.processors, {}, {}
            self.lost, self.suspected, self.state = set(), set(), "training"
        log("new controller")
        for channel in processors.values():
            channel.close()

    def dump(self):
        savers = self.choose_savers()
        if savers is None:
            return False
        deadline = time.monotonic() + seconds(self.limit)
        if not self.ask(savers, "save", deadline):
            return False
        return self.ask(savers[:1], "rename", deadline + seconds(30))

    def choose_savers(self):
        with self.changed:
            unfit = self.lost | self.silent_ranks()
            savers = []
            for group in self.groups:
                ranks, replicas = group["ranks"], group["replicas"]
                shards = len(ranks) // replicas
                copies = [[rank for index, rank in enumerate(ranks) if index % shards == shard] for shard in range(shards)]
                for shard in copies:
                    alive = [rank for rank in shard if rank in self.processors and rank not in unfit]
                    if not alive:
                        return None
                    savers.append(alive[0])
            return sorted(set(savers))

    def ask(self, ranks, order, deadline):
        """Sends an order to `ranks`; True when all of them replied with success before the deadline."""
        log("%s by ranks %s" % (order, ranks))
        with self.changed:
            for rank in ranks:
                self.replies.pop(rank, None)
            channels = [self.processors[rank] for rank in ranks]
        for channel in channels:
            channel.send(order=order)
        with self.changed:
            self.changed.wait_for(
                lambda: all(rank in self.replies for rank in ranks) or False in self.replies.values(),
                max(0, deadline - time.monotonic()),
            )
            result = all(self.replies.get(rank) is True for rank in ranks)
        log("%s: %s" % (order, "done" if result else "failed"))
        return result


class Processor:
    """Runs in a training process. SIGTERM and SIGINT are ignored by a process that has one, as by the real one."""

    @classmethod
    def from_environment(cls):
        environment = os.environ
        if MINDSPORE:
            # Without a port there is no default: int(None) raises, as in MindSpore.
            address = (environment.get("MS_TFT_IP"), int(environment.get("MS_TFT_PORT")))
        else:
            names = ("PROCESSOR_ADDR", "TTP_ADDR")
            host = next((environment[name] for name in names if environment.get(name)), "127.0.0.1")
            address = (host, MINDSPEED_PORT)
        return cls(int(environment["RANK"]), address)

    def __init__(self, rank, address):
        self.rank = rank
        self.folder = pathlib.Path(os.environ["FAKE_CHECKPOINT_DIR"])
        self.save_seconds = float(os.environ["FAKE_SAVE_SECONDS"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        attempts = int(os.environ.get("TTP_RETRY_TIMES", "10"))
        self.address = address
        self.has_saved = False
        self.channel = connect(*address, attempts, seconds(7.5))

    def run(self):
        """Trains until it is ordered to exit, which ends the process before its last step."""
        self.train()
        # A rank that was restarted after a dump may have met the controller that ends, and connects to the next one.
        while not self.has_saved:
            time.sleep(seconds(RECONNECT))
            try:
                self.channel = connect(*self.address, 1, 0)
            except OSError:
                break
            self.train()
        # A training process whose controller is gone keeps training until it is killed.
        signal.pause()

    def train(self):
        """Executes orders until the controller is gone."""
        self.channel.send(register=self.rank)
        start(self.send_heartbeats, self.channel)
        for message in self.channel.messages():
            order = message["order"]
            if order == "exit":
                sys.exit(1)
            start(self.execute, order)

    def send_heartbeats(self, channel):
        while channel.send(heartbeat=self.rank):
            time.sleep(seconds(HEARTBEAT))

    def execute(self, order):
        self.channel.send(reply=getattr(self, order)())

    def has_device(self):
        """False after a device fault: the process continues, but can't copy its state from the device."""
        return not (self.folder / ("lost-device-%d" % self.rank)).exists()

    def save(self):
        if not self.has_device():
            return False
        self.has_saved = True
        temporary = self.folder / "tmp_iter"
        temporary.mkdir(parents=True, exist_ok=True)
        time.sleep(seconds(self.save_seconds))
        (temporary / ("rank-%d" % self.rank)).write_text("state of rank %d\n" % self.rank)
        return True

    def rename(self):
        (self.folder / "tmp_iter").rename(self.folder / "iter_0000001")
        return True


def log(message):
    print("mindio: %s" % message, flush=True)

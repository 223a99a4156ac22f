"""What TaskD's agents for PyTorch and MindSpore share: the loop that executes the Manager's commands."""

import queue
import time

from channel import connect, start
from scale import seconds
from variables import variable

TASKD_PORT = 9601
MONITOR_INTERVAL = 5


class BaseAgent:
    """Starts and watches the ranks of one node, and executes the Manager's commands in the thread of its loop."""

    def __init__(self, node_rank, start_workers, stop_workers):
        self.node_rank = node_rank
        self.start_workers = start_workers
        self.stop_workers = stop_workers
        self.commands = queue.Queue()
        self.command_map = {}
        self.workers = {}

    def invoke_run(self):
        manager = connect(variable("MASTER_ADDR"), TASKD_PORT, 30, seconds(1))
        manager.send(launcher=self.node_rank)
        start(self.receive_commands, manager)
        self.workers = self.start_workers()
        while True:
            self.handle_message()
            time.sleep(seconds(MONITOR_INTERVAL))
            if self.workers and all(worker.poll() == 0 for worker in self.workers.values()):
                return

    def receive_commands(self, manager):
        for message in manager.messages():
            self.commands.put(message)

    def handle_message(self):
        while not self.commands.empty():
            message = self.commands.get_nowait()
            self.command_map[message["code"]](message)

    def restart_workers(self, msg):
        self.stop_workers(self.workers)
        self.workers = self.start_workers()

    def grace_exit(self, msg):
        for rank in msg["message"]:
            if rank in self.workers:
                self.workers[rank].kill()

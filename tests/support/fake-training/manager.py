"""A fake of the TaskD Manager with MindIO's controller inside, as MindCluster's manager.py starts it beside rank 0.

It passes ClusterD's signals on: `preExitProcess` to the launcher of the fault's node as command 213, `saveAndExit` to
MindIO, and to the launchers of all nodes with a lost rank as command 203. A report that ClusterD doesn't take within 20 s is
not repeated. After the dump it orders the launchers of the other nodes to restart their ranks, and makes a new controller.
Nothing ends a Manager.
"""

import json
import os
import signal
import threading
import time

from channel import connect, listen
from mindio import Controller
from scale import seconds
from variables import variable

TASKD_PORT = 9601
EXIT, RESTART, GRACE_EXIT = 203, 208, 213
REPORT_TIMEOUT = 20
# From the signal `exit` to the end of the controller.
CONTROLLER_EXIT = 4


class Manager:
    def __init__(self):
        environment = os.environ
        self.launchers = {}
        self.lock = threading.Lock()
        self.clusterd = connect(environment["FAKE_CLUSTERD_ADDR"], int(environment["FAKE_CLUSTERD_PORT"]), 10, seconds(1))
        groups = json.loads(environment["FAKE_GROUPS"])
        self.controller = Controller(groups, self.report_lost, self.report_result)

    def run(self):
        address = os.environ["POD_IP"]
        self.controller.serve(address, int(os.environ["TTP_PORT"]))
        listen(address, TASKD_PORT, self.handle_launcher)
        self.clusterd.send(register=os.environ["MINDX_TASK_ID"], ranks_per_node=int(variable("LOCAL_WORLD_SIZE")))
        for message in self.clusterd.messages():
            self.handle_signal(message)
        signal.pause()

    def handle_launcher(self, channel):
        node = channel.receive()["launcher"]
        with self.lock:
            self.launchers[node] = channel
        for _ in channel.messages():
            pass

    def handle_signal(self, message):
        if message["signal"] == "preExitProcess":
            self.command(message["nodes"], GRACE_EXIT, message["ranks"])
        elif message["signal"] == "saveAndExit":
            threading.Thread(target=self.controller.save_and_exit, daemon=True).start()
            self.command(message["nodes"], EXIT, None)
        elif message["signal"] == "exit":
            self.command([node for node in self.launchers if node not in message["nodes"]], RESTART, None)
            time.sleep(seconds(CONTROLLER_EXIT))
            self.controller.restart()

    def command(self, nodes, code, message):
        with self.lock:
            channels = [self.launchers[node] for node in nodes if node in self.launchers]
        for channel in channels:
            channel.send(code=code, message=message)

    def report_lost(self, ranks):
        self.clusterd.send(process_fault=ranks, until=time.monotonic() + seconds(REPORT_TIMEOUT))

    def report_result(self, success):
        self.clusterd.send(recover_status=success)


if __name__ == "__main__":
    Manager().run()

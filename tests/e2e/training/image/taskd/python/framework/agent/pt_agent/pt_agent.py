"""A fake of TaskD's agent for torch, of the same shape as the real class: command table, loop, calls of torch's agent.

In place of the Manager's message, the file FAKE_ORDER makes the order 203.
"""

import os
import time


class PtAgent:
    def __init__(self, elastic_agent):
        self.elastic_agent = elastic_agent
        self.command_map = {203: self.exit_agent}

    def invoke_run(self, role):
        workers = self.elastic_agent._worker_group
        self.elastic_agent._initialize_workers(workers)
        while True:
            time.sleep(0.05)
            if os.path.exists(os.environ["FAKE_ORDER"]):
                self.command_map[203]("203")

    def exit_agent(self, msg):
        print("exit_agent stops the ranks", flush=True)
        self.elastic_agent._stop_workers(self.elastic_agent._worker_group)
        raise SystemExit(1)

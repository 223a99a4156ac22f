"""TaskD's agent in MindSpore's launcher, of the same shape as the real class: a command table that binds the methods."""

import sys

from taskd.python.framework.agent.base_agent.base_agent import BaseAgent


class MsAgent(BaseAgent):
    def __init__(self, node_rank, start_workers, stop_workers):
        super().__init__(node_rank, start_workers, stop_workers)
        self.command_map = {203: self.exit_agent, 208: self.restart_workers, 213: self.grace_exit}

    def exit_agent(self, msg):
        self.stop_workers(self.workers)
        sys.exit(1)

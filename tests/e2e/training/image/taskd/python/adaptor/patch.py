"""A fake of TaskD's patch of torchrun: the loop of torch's agent is replaced by that of TaskD's agent."""

import os

from torch.distributed.elastic.agent.server.api import SimpleElasticAgent


def invoke_run(elastic_agent, role):
    from taskd.python.framework.agent.pt_agent.pt_agent import PtAgent

    return PtAgent(elastic_agent).invoke_run(role)


print("patched by process %d" % os.getpid(), flush=True)
SimpleElasticAgent._invoke_run = invoke_run

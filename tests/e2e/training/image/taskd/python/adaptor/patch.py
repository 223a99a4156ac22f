"""A fake of TaskD's patch of torchrun: the loop of torch's agent is replaced by that of TaskD's agent."""

import os

from torch.distributed.elastic.agent.server.api import SimpleElasticAgent


def invoke_run(elastic_agent, role):
    from taskd.python.framework.agent.pt_agent.pt_agent import PtAgent

    spec = elastic_agent._worker_group.spec
    print("max_restarts %d, monitor_interval %d" % (spec.max_restarts, spec.monitor_interval), flush=True)
    return PtAgent(elastic_agent).invoke_run(role)


print("patched by process %d" % os.getpid(), flush=True)
SimpleElasticAgent._invoke_run = invoke_run

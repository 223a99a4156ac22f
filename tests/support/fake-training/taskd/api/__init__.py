"""A fake of TaskD's interface for a manager.py."""

import os


def init_taskd_manager(config):
    print("TaskD Manager of job %(job_id)s: %(node_nums)d x %(proc_per_node)d" % config, flush=True)
    return config["job_id"] == os.environ["MINDX_TASK_ID"]


def start_taskd_manager():
    from manager import Manager

    Manager().run()

"""Environment variables whose names differ between PyTorch and MindSpore, as ascend-operator sets them."""

import os

MINDSPORE = os.environ.get("MINDIO_FOR_MINDSPORE") == "1"
NAMES = {
    "RANK": "MS_NODE_RANK",
    "WORLD_SIZE": "MS_WORKER_NUM",
    "LOCAL_WORLD_SIZE": "MS_LOCAL_WORKER",
    "MASTER_ADDR": "MS_SCHED_HOST",
}


def variable(name):
    """The value of a variable by its name in a PyTorch job."""
    return os.environ[NAMES[name] if MINDSPORE else name]

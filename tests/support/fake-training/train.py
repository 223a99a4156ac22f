"""A fake of a training process with a MindIO processor, which saves to a folder when ordered."""

import os

from mindio import Processor


def open_device():
    """Opens the file of the rank's device where the Pod has devices, as the driver's library does."""
    devices = os.environ.get("ASCEND_VISIBLE_DEVICES")
    if devices:
        number = devices.split(",")[int(os.environ["LOCAL_RANK"])].rpartition("-")[2]
        os.open("/dev/davinci" + number, os.O_RDONLY)


if __name__ == "__main__":
    open_device()
    Processor.from_environment().run()

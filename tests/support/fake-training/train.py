"""A fake of a training process with MindSpeed's adaptor: a MindIO processor that saves to a folder when ordered."""

import os

from mindio import Processor

if __name__ == "__main__":
    environment = os.environ
    Processor(int(environment["RANK"]), environment["FAKE_CHECKPOINT_DIR"], float(environment["FAKE_SAVE_SECONDS"])).run()

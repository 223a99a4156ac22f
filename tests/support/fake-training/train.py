"""A fake of a training process with a MindIO processor, which saves to a folder when ordered."""

import sys

from mindio import Processor

if __name__ == "__main__":
    Processor.from_environment().run()
    # The order to exit ends training before its last step.
    sys.exit(1)

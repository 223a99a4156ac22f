"""The one factor by which all times of the stand-ins are scaled: 1 is what was measured on the real programs."""

import os

FACTOR = float(os.environ.get("FAKE_TIME_FACTOR", "1"))


def seconds(measured):
    """The duration that stands for `measured` seconds of the real programs."""
    return measured * FACTOR

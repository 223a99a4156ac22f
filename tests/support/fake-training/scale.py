"""The one factor by which all times of the fakes are scaled: 1 is what was measured on the real programs."""

import os

FACTOR = float(os.environ.get("FAKE_TIME_FACTOR", "1"))


def seconds(measured):
    """Scales a duration that was measured on the real programs."""
    return measured * FACTOR

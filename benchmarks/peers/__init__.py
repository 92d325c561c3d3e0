"""Other projects' kernels: imported where present, left out with the reason where not.

Each module offers `load()`, which returns a function from a problem to a launch that takes no
arguments and gives the output, or raises Absent. Preparation (padding of heads, conversion of index
lists) happens in that function and is not timed.
"""


class Absent(Exception):
    """A peer cannot be measured here; the message tells why."""

"""What went wrong, told in one line: what, on what, why, and what to do."""


class Problem(Exception):
    """Ends tools/lab with this one line and the exit code LAB_FAILED."""

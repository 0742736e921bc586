"""How the audit names operations: by id, or by the name behind the family where any family of that name is meant.

A test-only operation with the old behaviour (``leaky_draws.draw_rows``) is so attacked by the same attack as the
shipped one (``core.draw_rows``).
"""

from __future__ import annotations


def matches(spec: str, operation: str) -> bool:
    """Whether the operation with this id is meant by ``spec``.

    >>> matches("class_sums", "f_test.class_sums")
    True
    >>> matches("hyfdca.score_rows", "network.score_rows")
    False
    """
    if "." in spec:
        return spec == operation
    return spec == operation.split(".")[1]

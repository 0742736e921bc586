"""Inner products of two parties' columns that only the coordinator reads, and of which it reads nothing else.

Left party L holds X (rows x a), right party R holds Y (rows x b); both share a secret seed that the coordinator does
not have. From it both draw the same one-time masks A (rows x a), B (rows x b), C (a x b), uniform in Z_2^64, and send

    L: U = X + A,   left  = X'B + C            R: V = Y + B,   right = A'(Y + B) - C

The coordinator computes U'V - left - right = X'Y, exactly, in the ring.

Why it is secure (semi-honest, the coordinator colludes with neither): given X'Y, the coordinator's view can be made up
without the data: U, V and left are uniform and independent (masked by A, B and C, each used once), and right is then
fixed by the result. So it learns X'Y and nothing about a single row. L and R receive nothing at all. U may serve many
Y's, as long as B and C are fresh for each: U is still uniform, and the argument is the same for every one of them.
The coordinator together with L can read Y, and together with R can read X: the masks are theirs.

The masks are streams under a key derived for one seed, one purpose and one number (``ring.py``): never used twice.
"""

from __future__ import annotations

from fedsift.mpc.ring import Ring, product, stream


def hide_left(x: Ring, seed: bytes, number: int) -> Ring:
    """U: what the left party sends once for all products with this ``x`` under this ``number``."""
    return x + stream(seed, "left mask", number, x.shape)


def left_share(x: Ring, seed: bytes, number: int, width: int) -> Ring:
    """What the left party sends for product ``number`` with a right side of ``width`` columns."""
    mask = stream(seed, "right mask", number, (x.shape[0], width))
    return product(x.T, mask) + stream(seed, "product mask", number, (x.shape[1], width))


def right_message(y: Ring, seed: bytes, left_number: int, number: int, left_width: int) -> tuple[Ring, Ring]:
    """V and the right share, for product ``number`` with the left side that was hidden under ``left_number``."""
    hidden = y + stream(seed, "right mask", number, y.shape)
    left_mask = stream(seed, "left mask", left_number, (y.shape[0], left_width))
    return hidden, product(left_mask.T, hidden) - stream(seed, "product mask", number, (left_width, y.shape[1]))


def open_product(hidden_left: Ring, share_left: Ring, hidden_right: Ring, share_right: Ring) -> Ring:
    """The coordinator's step: X'Y in the ring."""
    return product(hidden_left.T, hidden_right) - share_left - share_right

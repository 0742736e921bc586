"""Which form the layer between embeddings and top model takes: a word of the user's -> the conversation.

``False`` plain (research); ``"shares"`` (what ``True`` means) secret shares, the coordinator helps and must not
collude; ``"lattice"`` lattice ciphertexts and ``"additive"`` Okamoto-Uchiyama or Paillier ciphertexts, between the two
parties alone.
"""

from __future__ import annotations

from typing import Any

from fedsift.errors import ParameterError
from fedsift.models.splitnn import training
from fedsift.models.splitnn.layers import ciphertext, lattice, shared
from fedsift.models.splitnn.layers.ciphertext import SecureRun
from fedsift.models.splitnn.layers.lattice import LatticeRun
from fedsift.models.splitnn.layers.shared import SharedRun
from fedsift.models.splitnn.training import SplitRun

RUNS: dict[Any, type[SplitRun]] = {
    False: SplitRun,
    True: SharedRun,
    "shares": SharedRun,
    "lattice": LatticeRun,
    "additive": SecureRun,
}
#: Forms in which several networks train side by side in one conversation.
STACKABLE = (SplitRun, SharedRun)


def run_class(secure: Any) -> type[SplitRun]:
    if not isinstance(secure, (bool, str)) or secure not in RUNS:
        raise ParameterError(f"secure must be False, True, 'shares', 'lattice' or 'additive'; got {secure!r}")
    return RUNS[secure]


#: Of all forms: which one a job takes is a parameter of it.
TRAINING = (
    *training.TRAINING,
    *training.SCORING,
    *ciphertext.TRAINING,
    *lattice.TRAINING,
    *shared.TRAINING,
)
PREDICTION = (*training.PREDICTION, *ciphertext.PREDICTION, *lattice.PREDICTION, *shared.PREDICTION)

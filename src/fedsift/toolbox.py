"""What authors of methods build on, beside ``fedsift`` itself: columns as numbers, sums and gradients under masks.

Everything here keeps to the rule that a number over rows is opened by the coordinator, which holds none:

- ``SecureSum`` with ``@summed``: the total of the parties' vectors (parties with other rows);
- ``SharedDescent`` with ``Columns``: sums of every party's columns times residuals (parties with other columns);
- ``Predicted`` and ``@model_part``: what a model's label holder keeps for its score, and a part that can be saved;
- ``meet_all`` and ``Pairs``: masks and sealed boxes between two parties, to build another protocol on.
"""

from fedsift.core.checks import check_choice, check_number, check_scores
from fedsift.core.scaling import clipped, standardised
from fedsift.models.parts import model_part
from fedsift.models.predicted import Predicted
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.secure_sum import SecureSum, summed
from fedsift.mpc.shared_descent import OPERATIONS as DESCENT_OPERATIONS
from fedsift.mpc.shared_descent import Columns, SharedDescent

__all__ = [
    "DESCENT_OPERATIONS",
    "Columns",
    "Pairs",
    "Predicted",
    "SecureSum",
    "SharedDescent",
    "check_choice",
    "check_number",
    "check_scores",
    "clipped",
    "meet_all",
    "model_part",
    "standardised",
    "summed",
]

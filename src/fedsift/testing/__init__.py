"""The contract suite, for authors of plug-ins: ``check_selector(MySelector())``, ``check_model(MyModel())``.

Every rule is a function of its own (``SELECTOR_CHECKS``, ``MODEL_CHECKS``), so that a test suite can name each one:

    @pytest.mark.parametrize("check", SELECTOR_CHECKS)
    def test_my_selector(check):
        check(SelectorCase(MySelector(n_features=3)))
"""

from fedsift.testing.doubles import Faulty, Recording, Serial
from fedsift.testing.models import MODEL_CHECKS, ModelCase, check_model
from fedsift.testing.selectors import SELECTOR_CHECKS, SelectorCase, check_selector
from fedsift.testing.tables import federation, mixed_table, record

__all__ = [
    "MODEL_CHECKS",
    "SELECTOR_CHECKS",
    "Faulty",
    "ModelCase",
    "Recording",
    "SelectorCase",
    "Serial",
    "check_model",
    "check_selector",
    "federation",
    "mixed_table",
    "record",
]

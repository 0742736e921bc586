"""One gate without initialisation, on the columns only, starting at 0.5 (Yamada et al. 2020 over parties)."""

from __future__ import annotations

from fedsift.models.splitnn.model import SplitNN
from fedsift.select.fedsdg import gate_training, shared_training
from fedsift.select.fedsdg.selector import FedSDG


class StochasticGate(FedSDG):
    """One stochastic gate a column, no initialisation, no embedding gates: the paper's original-Gate.

    Parameters
    ----------
    penalty, penalties, sigma, epochs, refit_epochs, refit_decay, batch_size, learning_rate, validation, protection,
    width, label_epsilon, label_range : as in FedSDG.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.StochasticGate(penalty=0.1, epochs=2, refit_epochs=1).fit(fed).selected_
    >>> sorted(kept)
    ['bank', 'shop']
    """

    name = "stochastic_gate"
    paper = "Yamada et al. 2020 (stochastic gates); baseline of FedSDG-FS"
    leaks = FedSDG.leaks.replace("sizes and label counts of shuffled, unnamed bins, the gate", "the gate")
    operations = tuple(dict.fromkeys((*SplitNN.operations, *shared_training.OPERATIONS, *gate_training.OPERATIONS)))
    cell_parameters = ()

    def __init__(
        self,
        *,
        penalty: float | str = "auto",
        penalties: tuple[float, ...] | None = None,
        sigma: float = 0.5,
        epochs: int | str = "auto",
        refit_epochs: int | None = None,
        refit_decay: float = 1e-3,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation: float = 0.2,
        protection: str = "shares",
        width: int = 16,
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        super().__init__(
            penalty=penalty, penalties=penalties, gates="input", init="half", sigma=sigma, epochs=epochs,
            refit_epochs=refit_epochs, refit_decay=refit_decay, batch_size=batch_size, learning_rate=learning_rate,
            validation=validation, protection=protection, width=width, label_epsilon=label_epsilon,
            label_range=label_range, random_state=random_state,
        )  # fmt: skip

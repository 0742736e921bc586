"""What a job says of its noise: whether all that somebody reads has some, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedsift.core.job import Job, other_form
from fedsift.core.operation import Operation
from fedsift.crypto.dp import LEAST_DELTA, MOST_DELTA, epsilon_to_rho
from fedsift.errors import OperationRefused
from fedsift.evaluate.announced import Announced, find_job, listed

#: What somebody can read.
READABLE = ("pseudonymous", "aggregate", "plain")


def is_noisy(job: Job) -> bool:
    """Whether all that somebody reads of a job has noise: then a row more or less makes no difference that counts."""
    if spent(job)[1] <= 0:
        return False
    steps = [each for each in listed(job.method, job.purpose) if not other_form(each, job)]
    readable = [each for each in steps if each.opened_form in READABLE]
    return all(each.epsilon for each in readable)


def check_noise(party: str, known: Announced, told: Mapping[str, object]) -> None:
    """Refuse an epsilon or a delta that is no plain number of a sensible size: what a party adds noise by must be what
    is charged here, and what its policy judges."""
    for name in known.epsilon_parameters:
        value = told[name]
        if value is not None and not (type(value) in (int, float) and 0 < value < math.inf):  # type: ignore[operator]
            raise OperationRefused(party, "begin_job", f"the job's {name} is no number above 0")
    noisy = any(told[name] is not None for name in known.epsilon_parameters)
    delta = told.get("delta", LEAST_DELTA)
    if noisy and not (type(delta) is float and LEAST_DELTA <= delta <= MOST_DELTA):
        raise OperationRefused(
            party, "begin_job",
            f"the job's delta is no number from {LEAST_DELTA:g} to {MOST_DELTA:g}: beside a larger one an epsilon says "
            "little",
        )  # fmt: skip


def carries_none(marked: Operation) -> bool:
    """Whether a step tells something readable without noise: it is exact in a job with noise as well."""
    return marked.opened_form in READABLE and not marked.epsilon


def spent(job: Job) -> tuple[float, float]:
    """The epsilon of a job and what it costs in rho; zeros where it has no noise.

    A method with ``delta`` counts in rho itself (Gaussian noise); pure epsilon costs epsilon^2 / 2 (Bun, Steinke 2016).
    """
    known = find_job(job.method)
    names = known.epsilon_parameters if known is not None else ()
    epsilon = job.parameters.get(names[0]) if names else None
    if not isinstance(epsilon, (int, float)) or isinstance(epsilon, bool) or not 0 < epsilon < math.inf:
        return 0.0, 0.0
    delta = job.parameters.get("delta")
    if isinstance(delta, float) and 0 < delta < 1:
        return float(epsilon), epsilon_to_rho(float(epsilon), delta)
    return float(epsilon), epsilon**2 / 2

"""How the audit names operations: the one place to change when operations get stable ids.

Today an operation travels as ``fedsift.select.sffs:class_sums``. The audit binds by the function's name
(``"class_sums"``), or, where two modules use one name, by the last part of the module and the qualified name
(``"hyfdca_party:score_rows"``, ``"rows:target_sums.masked"``). So an operation of a test-only module that has the old
behaviour is attacked by the same attack as the shipped one.
"""

from __future__ import annotations


def matches(spec: str, wire_name: str) -> bool:
    """Whether the operation that travels under ``wire_name`` is meant by ``spec``.

    >>> matches("class_sums", "fedsift.select.sffs:class_sums")
    True
    >>> matches("hyfdca_party:score_rows", "fedsift.protocols.split_training:score_rows")
    False
    """
    module, _, qualified = wire_name.partition(":")
    if ":" in spec:
        return spec == f"{module.rpartition('.')[2]}:{qualified}"
    return spec == qualified.partition(".")[0]

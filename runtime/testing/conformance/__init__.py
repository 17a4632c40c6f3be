"""The conformance kit: the same certifications for every adapter, ours or a third party's, real CLI included. Public.

A :class:`Subject` is an adapter and the CLI to certify it on. ``certify(subject)`` gives a :class:`Report`; ``lastword
certify`` prints it; the pytest plugin makes a test of each certification:
``pytest --pyargs lastword.runtime.testing.conformance --lastword-subject package.module:SUBJECT``.
"""

from __future__ import annotations

from lastword.runtime.testing.conformance._bench import GATE_S, Bench
from lastword.runtime.testing.conformance._certifications import CERTIFICATIONS, FLOORS, PROOFS, Certification
from lastword.runtime.testing.conformance._run import (
    Report,
    Result,
    certify,
    claims_without_proof,
    due,
    probe,
    probes,
    proofs_without_claim,
    run_one,
    table,
)
from lastword.runtime.testing.conformance._subject import Subject, Words, load

__all__ = [
    "CERTIFICATIONS",
    "FLOORS",
    "GATE_S",
    "PROOFS",
    "Bench",
    "Certification",
    "Report",
    "Result",
    "Subject",
    "Words",
    "certify",
    "claims_without_proof",
    "due",
    "load",
    "probe",
    "probes",
    "proofs_without_claim",
    "run_one",
    "table",
]

"""Writes the bill of materials of the package, CycloneDX 1.6 in JSON: the program and each library in it.

sbom.py VERSION SITE-PACKAGES WHEELS

Of each library its name, version, licence as it states it, and the SHA-256 of the wheel that it comes from.
SOURCE_DATE_EPOCH is the time that the document states.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

OURS = "hybrisfs"


def normalised(name: str) -> str:
    """A name as package URLs and wheels compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes(wheels: Path) -> Mapping[str, str]:
    """The SHA-256 of each wheel by the name of its library."""
    return {
        normalised(wheel.name.partition("-")[0]): hashlib.sha256(wheel.read_bytes()).hexdigest()
        for wheel in wheels.glob("*.whl")
    }


def licence(library: Distribution) -> list[dict[str, Any]]:
    """What a library says about its licence: an SPDX expression, or the words of its classifiers or field."""
    if expressions := library.metadata.get_all("License-Expression"):
        return [{"expression": expressions[0]}]
    told = [text for text in library.metadata.get_all("Classifier", ()) if text.startswith("License ::")]
    names = [text.rpartition(" :: ")[2] for text in told if text.count(" :: ") > 1]
    if not names:
        names = [
            text.strip().splitlines()[0] for text in library.metadata.get_all("License", ()) if text.strip()
        ]
    return [{"license": {"name": name}} for name in sorted(set(names))]


def component(library: Distribution, digests: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a library."""
    name = normalised(library.name)
    url = f"pkg:pypi/{name}@{library.version}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": library.version,
        "licenses": licence(library),
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": digests[name]}],
    }


version, site, wheels = sys.argv[1:]
digests = hashes(Path(wheels))
found = {normalised(library.name): library for library in distributions(path=[site])}
time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "version": 1,
    "metadata": {
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "component": {
            "type": "application",
            "bom-ref": OURS,
            "name": OURS,
            "version": version,
            "licenses": licence(found[OURS]),
        },
    },
    "components": [component(found[name], digests) for name in sorted(found) if name != OURS],
}
print(json.dumps(document, indent=1))

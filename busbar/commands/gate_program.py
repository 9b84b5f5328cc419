# SPDX-License-Identifier: MIT
"""The gate as one file, which a node runs with a Python that has nothing else installed."""

from __future__ import annotations

import io
import py_compile
from modulefinder import ModuleFinder
from pathlib import Path
from tempfile import NamedTemporaryFile
from zipfile import ZIP_DEFLATED, ZipFile

_MAIN = """\
# busbar gate compile wrote this file, and the site beside it. Run it with python3 -I.
import os, sys
if sys.version_info < (3, 11):
    sys.exit("busbar-gate: needs Python 3.11 or newer, this is " + sys.version.split()[0])
from busbar.gate.command import main
named = any(word.startswith("--site") for word in sys.argv[1:])
site = [] if named else ["--site", os.path.splitext(os.path.abspath(sys.argv[0]))[0] + ".json"]
sys.exit(main(site + sys.argv[1:]))
"""


def gate_program() -> bytes:
    """Return a zip file of the modules of the gate, as Python runs it.

    Each is there as source, and compiled for the Python that runs this, which starts it faster.
    """
    root = Path(__file__).parents[2]
    finder = ModuleFinder(path=[str(root)])
    finder.run_script(str(root / "busbar" / "gate" / "command.py"))
    files = {Path(file) for m in finder.modules.values() if (file := getattr(m, "__file__", ""))}
    data = io.BytesIO()
    with ZipFile(data, "w", ZIP_DEFLATED) as archive, NamedTemporaryFile(suffix=".pyc") as made:
        archive.writestr("__main__.py", _MAIN)
        for file in sorted(files):
            name = str(file.relative_to(root))
            py_compile.compile(
                *(str(file), made.name, name),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            archive.write(file, name)
            archive.write(made.name, f"{name}c")
        for file in (root / "busbar" / "redact.toml", *(root / "busbar" / "gate").glob("*.json")):
            archive.write(file, str(file.relative_to(root)))
    return data.getvalue()

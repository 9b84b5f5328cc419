# SPDX-License-Identifier: MIT
"""Print `pip NAME VERSION LICENCE` for each wheel here and in the directories that are given."""

from __future__ import annotations

import sys
from importlib.metadata import distributions

_LONGEST = 60
"""Characters; some wheels have the text of the licence in the field."""


def main() -> None:
    for each in distributions(path=[*sys.path, *sys.argv[1:]]):
        field = each.metadata.get("License") or ""
        stated = [
            each.metadata.get("License-Expression"),
            field if "\n" not in field and len(field) < _LONGEST else "",
            *(
                line.rpartition(":: ")[2]
                for line in each.metadata.get_all("Classifier") or ()
                if line.startswith("License ::")
            ),
        ]
        licence = next(filter(None, stated), "unknown")
        sys.stdout.write(f"pip {each.name} {each.version} {licence}\n")


if __name__ == "__main__":
    main()

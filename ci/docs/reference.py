# SPDX-License-Identifier: MIT
"""Write docs/reference/ and docs/pictures/ from the code: ``python -m ci.docs.reference``.

It ends with an error if the code holds something that no page describes, such as an environment
variable without an entry in variables.yaml.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.text import Text

from busbar import cli
from busbar.parse.tables import beside

from . import pages
from .schemas import documents, json_page

# ---- Draw what a command prints of a recorded run, as the pictures of the README
PICTURES: dict[str, str] = beside(__file__)
"""File in ``docs/pictures`` -> command, run in the checkout."""
_WIDTH = 110


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def picture(command: str) -> str:
    """Return an SVG of a terminal in which the command has run."""
    shown = _Tty()
    surroundings = {"COLUMNS": str(_WIDTH), "TERM": "xterm-256color"}
    with redirect_stdout(shown), mock.patch.dict(os.environ, surroundings):
        os.environ.pop("NO_COLOR", None)
        cli.main(shlex.split(command)[1:])
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), color_system="truecolor")
    console.print(f"$ {command}", style="bold", highlight=False)
    for line in Text.from_ansi(shown.getvalue()).split():
        line.truncate(_WIDTH, overflow="ellipsis")
        console.print(line)
    return console.export_svg(title="busbar", unique_id="busbar")


# ---- All pages
_PAGES = ("causes", "checks", "cli", "environment", "gate", "licenses", "sites")
PAGES: dict[str, Callable[[], Iterable[str]]] = {
    **{f"{name}.md": getattr(pages, f"{name}_page") for name in _PAGES},
    "json.md": json_page,
    "site-yaml.md": pages.keys_page,
}
_HEAD = "<!-- `make docs` writes this page; do not edit it. -->"
_INTROS = Path(__file__).with_name("intro")


def main() -> None:
    """Write every page, every schema and every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("docs/reference"))
    directory: Path = parser.parse_args().directory
    (directory / "schemas").mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        intro = (_INTROS / name).read_text(encoding="utf-8")
        text = "\n".join([_HEAD, intro, *page()]).rstrip() + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    for document in documents():
        text = json.dumps(document.schema(), indent=2) + "\n"
        (directory / "schemas" / document.file).write_text(text, encoding="utf-8")
    pictures = directory.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    for name, command in PICTURES.items():
        (pictures / name).write_text(picture(command), encoding="utf-8")


if __name__ == "__main__":
    main()

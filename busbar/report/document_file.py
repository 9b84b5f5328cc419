# SPDX-License-Identifier: MIT
"""Read a JSON document from a file that anybody can have written."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.text_file import read_text

_MOST_BYTES = 2**28


class _Document(Protocol):
    @property
    def schema(self) -> str: ...


_D = TypeVar("_D", bound=_Document)


def read_document(path: Path, adapter: TypeAdapter[_D], schemas: Collection[str], hint: str) -> _D:
    """Return the document of a file.

    Raises ``BusbarError`` with ``hint`` if it cannot be read or has none of the schemas.
    """
    try:
        document = adapter.validate_python(numbers.load_json(read_text(path, _MOST_BYTES)))
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise BusbarError(what, where=str(path), hint=hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise BusbarError(f"{place}: {first['msg']}", where=str(path), hint=hint) from error
    except ValueError as error:
        raise BusbarError(str(error), where=str(path), hint=hint) from error
    if document.schema not in schemas:
        what = f"has the schema {document.schema!r}, not {' or '.join(schemas)}"
        raise BusbarError(what, where=str(path), hint=hint)
    return document

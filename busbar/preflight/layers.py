# SPDX-License-Identifier: MIT
"""Compare two deliveries layer by layer: their libraries, UCX modules and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from busbar.preflight.files import TABLES, Directory
from busbar.preflight.lines import loaded, modules, origins
from busbar.preflight.loader import View
from busbar.preflight.model import Origin

_SETTING = re.compile(r"(?:UCX|OMPI|PRTE|MPICH|MPIR|NCCL|RCCL|FI|HSA|CUDA|ROCR|HIP)_")
# Settings of locations, permissions and logs do not change the path of data.
_HARMLESS = re.compile(r"(?:CUDA_(?:HOME|PATH|VERSION)|OMPI_ALLOW_\w+|UCX_LOG_\w+)$")


@dataclass(frozen=True)
class LayerDifference:
    """One difference between the image and the bare installation."""

    layer: str
    text: str


def bare_origins(program: Path, library_path: str) -> list[Origin]:
    """Return the libraries and UCX modules of a program on this host."""
    directories = [part for part in library_path.split(":") if part.startswith("/")]
    files = Directory(Path("/"))
    view = View(files, files, (), directories)
    found = view.find(PurePosixPath(program))
    libraries = loaded(view, found) if found else {}
    return [*origins(libraries), *modules(view, libraries)]


def differences(
    bare: Sequence[Origin],
    image: Sequence[Origin],
    bare_settings: Mapping[str, str],
    image_settings: Mapping[str, str],
) -> list[LayerDifference]:
    """Return the differing settings, then the differing libraries in the order of the layers."""
    return [*_settings(bare_settings, image_settings), *_libraries(bare, image)]


def _settings(bare: Mapping[str, str], image: Mapping[str, str]) -> Iterator[LayerDifference]:
    for name in sorted({*bare, *image}):
        one, other = bare.get(name), image.get(name)
        if one != other and _SETTING.match(name) and not _HARMLESS.match(name):
            inside, outside = (f"is {v}" if v else "is not set" for v in (other, one))
            yield LayerDifference(
                "settings", f"{name} {inside} in the image and {outside} outside"
            )


def _libraries(bare: Sequence[Origin], image: Sequence[Origin]) -> Iterator[LayerDifference]:
    sides = [{origin.name: origin for origin in side} for side in (bare, image)]
    for layer, pattern in TABLES["layers"].items():
        for name in sorted({*sides[0], *sides[1]}):
            if not re.match(pattern, name):
                continue
            one, other = (side.get(name) for side in sides)
            if one and other and one.sha256 == other.sha256:
                continue
            yield LayerDifference(
                layer, f"{name}: {_place(other)} in the image, {_place(one)} outside"
            )


def _place(origin: Origin | None) -> str:
    if origin is None or not origin.path:
        return "none"
    return f"{origin.path} ({origin.origin}, sha256 {origin.sha256[:8]})"

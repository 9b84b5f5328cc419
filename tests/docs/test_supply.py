# SPDX-License-Identifier: MIT
"""What SECURITY.md says of packages: by hash, or in its table; each with a licence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ci import sbom
from ci.docs import pages

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
UNPINNED = PAGE.split("## What is not pinned")[1]
PIP = re.compile(r"-m pip (?:install|download)|\"pip\", \"(?:install|download)|^ *pip_install ")
OTHERS = re.compile(
    r"^(?!.*#.*apt).*(?:apt-get\b.*\b(?:install|source)|mmdebstrap --quiet)|uv pip"
)
# The one that git fetches is by commit, which test_spack_scripts shows.
NETWORK = re.compile(r"\b(?:curl|wget) -|git clone|(?:docker|podman|buildah) pull|npm install")


def scripts() -> dict[str, list[str]]:
    """The lines of every script by its name; a line that ends with a backslash has the next."""
    words = ["git", "ls-files", ".ci", "ci", "containers", "Makefile", "tests/*.py"]
    names = subprocess.check_output(words, cwd=ROOT, text=True).splitlines()
    texts = {n: (ROOT / n).read_text() for n in names if not n.endswith((".yaml", ".json"))}
    return {n: text.replace("\\\n", " ").splitlines() for n, text in texts.items()}


def test_pip_installs_by_hash_or_this_checkout() -> None:
    wrong = [
        (name, line)
        for name, lines in scripts().items()
        if not name.startswith("tests/")
        for line in lines
        if PIP.search(line) and "--require-hashes" not in line
        # In setup.sh, the function that adds what all have, and the one of this checkout.
        if "--no-build-isolation --editable ." not in line and '--no-deps "$@"' not in line
    ]
    assert wrong == []


def test_what_is_not_pinned_is_in_the_table() -> None:
    found = {
        name
        for name, lines in scripts().items()
        if not name.startswith(("tests/", "containers/"))
        for line in lines
        if OTHERS.search(line)
    }
    assert found, "no script installs by apt"
    missing = [name for name in found if f"`{name}`" not in UNPINNED and name != "Makefile"]
    assert missing == []
    assert "`make lock`" in UNPINNED
    places = re.findall(r"`((?:\.?[\w-]+/)[\w./-]+)`", UNPINNED)
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_nothing_else_is_fetched() -> None:
    fetches = [
        (name, line)
        for name, lines in scripts().items()
        if not name.startswith("tests/")
        for line in lines
        if NETWORK.search(line)
    ]
    assert fetches == []


def test_ci_prints_the_version_of_what_it_installs() -> None:
    for name, lines in scripts().items():
        text = "\n".join(lines)
        if name in (".ci/run", ".ci/nightly", "ci/lab/install.sh", "containers/apt.sh"):
            (installed,) = set(
                re.findall(r'install -y.* ("\$\S+?")(?=;|$| >)', text, re.MULTILINE)
            )
            assert f"dpkg-query -W {installed}" in text, name


def test_each_locked_package_has_a_licence_on_record() -> None:
    again = "run make licenses"
    recorded = sbom.recorded()
    locked = {
        ("pip" if each.purl.type == "pypi" else "spack", each.name, each.version)
        for pattern in pages.LOCKS.values()
        for path in pages.locks(pattern)
        for each in sbom.parts(path)
        if each.purl is not None and each.version is not None
    }
    # The lock has other versions for other systems and Pythons.
    lock = (ROOT / "locks" / "dev.txt").read_text()
    missing = [each for each in locked - recorded.keys() if f"{each[1]}=={each[2]} ;" not in lock]
    assert missing == [], again
    gone = {name for _, name, _ in recorded.keys() - locked}
    assert gone <= {"busbar", "pip", "gcc", "gcc-runtime", "glibc"}, again

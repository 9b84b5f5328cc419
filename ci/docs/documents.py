# SPDX-License-Identifier: MIT
"""The page of the JSON documents, and their schemas."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ConfigDict

from busbar.certify.contract import Contract
from busbar.certify.record import AcceptanceRecord
from busbar.certify.verify import Verification
from busbar.check.calibrate import CalibrationResult
from busbar.check.listing import Match
from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.commands.site import ListedSite
from busbar.detect.compare import SiteDifference
from busbar.document import ErrorDocument
from busbar.engine.check_document import CheckDocument
from busbar.expect.lint import LintFinding
from busbar.expect.show import ExpectDocument, MatrixDocument
from busbar.explain.model import Explanation
from busbar.gate.findings import GateDocument
from busbar.gate.output import NodeVerdictDocument
from busbar.history.compare import Comparison
from busbar.history.events import Changes
from busbar.history.importing import Imports
from busbar.history.model import HistoryShow
from busbar.history.store import HistoryList, Pruned
from busbar.job.judge import JobAnswer
from busbar.preflight.model import PreflightReport
from busbar.site.family import LaunchRule, OperatorStep
from busbar.site.model import Site

from .markdown import table
from .schemas import schema_of, schema_tables, type_text


class ShownSite(Site):
    """One system, with what its family says about operators and launches."""

    model_config = ConfigDict(title="Site")

    operator_steps: tuple[OperatorStep, ...] = ()
    launch_rules: tuple[LaunchRule, ...] = ()


class JsonDocument(NamedTuple):
    """A JSON document that a command prints."""

    name: str
    command: str
    kind: object
    mode: str = "serialization"

    @property
    def file(self) -> str:
        """The file of its schema."""
        return f"{self.name.replace('/', '-')}.json"

    def schema(self) -> dict[str, Any]:
        """Its JSON schema; each object may get more keys in a later release."""
        head = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{self.name.replace('/', ':')}",
            "title": self.command,
        }
        return head | schema_of(self.kind, self.mode)


DOCUMENTS = (
    JsonDocument("busbar-check/1", "busbar check --json", CheckDocument),
    JsonDocument("busbar-check-list/1", "busbar check --list --json", list[Match]),
    JsonDocument("busbar-explain/1", "busbar explain --json", Explanation | list[Explanation]),
    JsonDocument("busbar-expect/1", "busbar expect --json", ExpectDocument | MatrixDocument),
    JsonDocument("busbar-preflight/1", "busbar preflight --json", PreflightReport),
    JsonDocument("busbar-gate/1", "busbar gate --json", GateDocument),
    JsonDocument("busbar-nightly/1", "busbar nightly --json", NightlyDocument),
    JsonDocument("busbar-nodeverdict/1", "busbar gate --nodeverdict", NodeVerdictDocument),
    JsonDocument("busbar-job/1", "busbar job --json", JobAnswer),
    JsonDocument("busbar-site-list/1", "busbar site list --json", list[ListedSite]),
    JsonDocument("busbar-site/1", "busbar site show --json", ShownSite, mode="validation"),
    JsonDocument("busbar-calibration/1", "busbar site calibrate --json", CalibrationResult),
    JsonDocument("busbar-site-env/1", "busbar site env --json", dict[str, str]),
    JsonDocument("busbar-site-lint/1", "busbar site lint --json", list[LintFinding]),
    JsonDocument(
        "busbar-site-compare/1", "busbar site detect --compare --json", list[SiteDifference]
    ),
    JsonDocument("busbar-changes/1", "busbar history changes --json", Changes),
    JsonDocument("busbar-history-list/1", "busbar history list --json", HistoryList),
    JsonDocument("busbar-history-show/1", "busbar history show --json", HistoryShow),
    JsonDocument("busbar-history-compare/1", "busbar history compare --json", Comparison),
    JsonDocument("busbar-history-import/1", "busbar history import --json", Imports),
    JsonDocument("busbar-history-prune/1", "busbar history prune --json", Pruned),
    JsonDocument("busbar-sweep/1", "busbar sweep analyse --json", Analysis),
    JsonDocument("busbar-error/1", "every command with --json and exit status 2", ErrorDocument),
    JsonDocument("busbar-sweep-run/1", "busbar sweep run --json", SweepRun),
    JsonDocument("busbar-contract/1", "contract.yaml of busbar certify", Contract, "validation"),
    JsonDocument("busbar-acceptance/1", "record.json of busbar certify run", AcceptanceRecord),
    JsonDocument("busbar-certify-verify/1", "busbar certify verify --json", Verification),
)
JSON_INTRO = """\
# JSON documents

Keys and their meaning are stable. A release may add keys and cause ids; ignore those that you do
not know. If a key is removed or changes its meaning, the number in the name of the schema rises.

The documents of `check`, `explain`, `expect`, `gate`, `history`, `job` and `preflight` name their
schema in the key `schema`; the others are lists or maps and have no such key. `busbar check` also
writes its document to `results.json` below `--output`. `busbar site detect --json` prints the
document of `busbar site show --json`. The schemas are JSON Schema, draft 2020-12.
"""


def json_page() -> str:
    """Every document with its schema and the keys of its objects."""
    rows, types, done = [], [], set[str]()
    for document in DOCUMENTS:
        schema = document.schema()
        name = getattr(document.kind, "__name__", "")
        link = f"[`{document.name}`](schemas/{document.file})"
        if document.kind is ShownSite:
            rows.append((f"`{document.command}`", link, "[Site](site-yaml.md#site)"))
            continue
        top = f"[{name}](#{name.lower()})" if "properties" in schema else type_text(schema)
        rows.append((f"`{document.command}`", link, top))
        types += list(schema_tables(schema, name, done))
    head = table(("command", "schema", "form"), rows)
    return "\n".join([JSON_INTRO, *head, "## Objects", "", *types])

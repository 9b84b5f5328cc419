# SPDX-License-Identifier: MIT
"""``busbar certify``: measure, sign and verify an acceptance record."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.boundary import output_directory, refuse_foreign_code, regular, replace_file
from busbar.certify import contract as contracts, record as records
from busbar.certify.execute import Executor
from busbar.certify.ledger import Ledger
from busbar.certify.plan import planned
from busbar.certify.verify import Verification, verify
from busbar.check.processes import Interruption
from busbar.check.surroundings import own, refuse_without_space
from busbar.cluster.nightly.night import Night
from busbar.cluster.nightly.process import GRACE_S
from busbar.cluster.nightly.stages import NightJob
from busbar.commands.declare import choice_of, command, group, show, tell, wish_of
from busbar.document import to_json
from busbar.errors import BusbarError, file_error, require_known
from busbar.slurm.client import scheduler_of
from busbar.slurm.hostlist import expand
from busbar.slurm.options import granted, partition_of
from busbar.terminal import stdout

_SERIALS = "BUSBAR_SERIALS"
"""Makes provenance.sh print serial numbers of devices."""
EXIT_REFUSED, EXIT_UNCHECKED = 1, 3


def add_parser(subparsers: Any) -> None:
    """Add ``busbar certify`` and its actions."""
    actions = group(subparsers, "certify", "Measure the clauses of a contract; keep a record.")
    command(actions, init)
    command(actions, run)
    command(actions, countersign, name="sign")
    command(actions, check, name="verify")


def init(args: argparse.Namespace) -> int:
    """Write a draft contract for a site.

    The draft has clauses for the gate, the sweep, pairs, collectives, a soak, and identical
    software on all nodes. Limits and typical values are given as comments. Agree on the figures
    and edit them.

    Exit status: 0 written, 2 invalid input, or the file exists.

    Examples:

        busbar certify init --site dgx-h100
        busbar certify init --site alpha --partition gpu --output gpu.yaml
    """
    site = sites.load(args.site)
    partition = partition_of(site, "", args.partition)
    if args.output.exists():
        raise BusbarError("already exists", where=str(args.output), hint="choose --output")
    with file_error("cannot be written", args.output, "choose another --output"):
        replace_file(args.output, contracts.first(site, partition.name, partition.nodes))
    stdout().line(f"contract: {args.output}; agree on its figures, then run busbar certify run")
    return 0


def run(args: argparse.Namespace) -> int:
    """Measure the requirements of a contract, and write the record.

    Runs the gate, sweeps, checks and the soak that the clauses require, as Slurm jobs or on this
    machine. Nodes with a fault are excluded. After an interruption, the same command continues.
    After a repair, --repaired repeats the clauses that involve the node. Every call rewrites the
    record.

    Exit status: 0 accepted, 1 a clause is not met, 2 invalid input, 3 a clause was not measured.
    128 + N after signal N.

    Examples:

        busbar certify run --contract contract.yaml --plan
        busbar certify run --contract contract.yaml --output /shared/acceptance --key ~/.ssh/center
        busbar certify run --contract contract.yaml --output /shared/acceptance --repaired n17
    """
    contract, site = contracts.load(args.contract)
    args.partition = args.partition or contract.partition or ""
    wish, choice = wish_of(args), choice_of(args)
    if args.plan:
        for line in planned(contract, partition_of(site, "", args.partition).nodes):
            stdout().line(line)
        return 0
    grant = granted(site, wish, one=True) if scheduler_of(site.scheduler).has_nodes else None
    nodes = grant.usable if grant else (socket.gethostname().partition(".")[0],)
    for line in planned(contract, len(nodes)):
        tell(line)
    if args.key:
        with file_error("cannot be read", args.key, "pass an OpenSSH private key"):
            open(args.key, "rb", opener=regular).close()
    interruption: Interruption = args.interruption
    interruption.grace = GRACE_S
    directory = output_directory(args.output, "--output").resolve()
    with own(directory):
        refuse_without_space(directory)
        named = (Path(clause.file) for clause in contract.clauses if clause.file)
        files = [refuse_foreign_code(file) for file in named]
        records.begin(directory, args.contract, site, [*args.attach, *files])
        ledger = Ledger.load(directory, contract, clean=True)
        if not ledger.kept:
            who = f"{getpass.getuser()} on {socket.gethostname()}"
            ledger.note("begun", nodes, grant.unusable if grant else (), who)
        if args.repaired:
            ledger.note("repaired", _repaired(args.repaired, ledger))
        name = str(site.directory or site.name)
        job = NightJob(Night(directory), name, grant, wish, choice) if grant else None
        os.environ.update({} if args.redact else {_SERIALS: "1"})
        with interruption.held():
            Executor(contract, name, job, interruption, tell, args.redact).run(ledger)
            if interruption.name:
                interruption.finish()
            found = records.acceptance(contract, site.name, ledger)
            if len(records.signatures(directory)) > bool(args.key):
                tell("the record was rewritten without signatures; next, run: busbar certify sign")
            record = records.write(directory, found)
            if args.key and not interruption.name:
                records.sign(directory, args.key)
            _print(args, directory, record)
        return interruption.status if interruption.name else _status(found)


def _repaired(text: str, ledger: Ledger) -> list[str]:
    """Return the named nodes; raise ``BusbarError`` for a node that is not in the record."""
    names = expand(text, "--repaired")
    known = {*ledger.nodes, *ledger.missing}
    for name in names:
        require_known("the record has no node", name, known, "--repaired")
    return names


def _status(found: records.Acceptance) -> int:
    states = {each.state for each in found.clauses}
    return EXIT_REFUSED if "not met" in states else EXIT_UNCHECKED * ("not measured" in states)


def _print(args: argparse.Namespace, directory: Path, record: records.AcceptanceRecord) -> None:
    if args.json:
        stdout().document(to_json(record))
        return
    found = record.predicate
    stdout().line(found.sentence)
    for each in found.clauses:
        stdout().line(f"  {each.state}: {each.clause}" + (f": {each.why}" if each.why else ""))
    for event in found.account:
        end = f"repaired {event.repaired}" if event.repaired else "excluded; --repaired repeats it"
        stdout().line(f"  {event.node}: {event.fault}; {end}")
    stdout().line(f"record: {directory / records.RECORD}")


def countersign(args: argparse.Namespace) -> int:
    """Sign a record as another party.

    Verifies the record first, then signs it with ssh-keygen -Y sign.

    Exit status: 0 signed, 1 the record does not support its verdict, 2 invalid input.

    Examples:

        busbar certify sign acceptance --key ~/.ssh/vendor
        busbar certify sign /shared/acceptance --key /etc/busbar/center
    """
    found = verify(args.directory)
    if not found.supported:
        _print_verification(found)
        return EXIT_REFUSED
    stdout().line(f"signature: {records.sign(args.directory, args.key)}")
    return 0


def check(args: argparse.Namespace) -> int:
    """Verify offline whether a record supports its verdict.

    Compares every file with its checksum, checks the signatures with ssh-keygen, reads the logs
    again, and judges each clause again.

    Exit status: 0 verified, 1 refused, 2 invalid input, 3 verified, but no signature was checked.

    Examples:

        busbar certify verify acceptance
        busbar certify verify acceptance --signers allowed_signers --json
    """
    found = verify(args.directory, args.signers)
    show(args, found, _print_verification)
    return EXIT_REFUSED if not found.supported else EXIT_UNCHECKED * bool(found.unchecked)


def _print_verification(found: Verification) -> None:
    stdout().line(found.sentence)
    for text in (*found.problems[1:], *found.signed_by, *filter(None, [found.unchecked])):
        stdout().line(f"  {text}")

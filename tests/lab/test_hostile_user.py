# SPDX-License-Identifier: MIT
"""A second user of the cluster against what root runs: gate, health check, nights, reports.

Each attempt is a script that the other user runs; what root runs next must end as it does without
it. SECURITY.md states who may write what.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.cases import some
from tests.said import ran

from .common import LAB, ROOT
from .test_gate import CONF, SITE

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
USER = "games"
"""An account that every Debian has."""
PYTHON = sys.executable
ALONE = os.environ.get("BUSBAR_LAB") == "all"
"""Whether all tests are asked for, as every night: each attempt alone, in every way."""


@dataclass
class Cluster:
    """Two nodes, hooks and a site of root, and a directory of the other user."""

    lab: Path
    root: Path
    theirs: Path
    secret: Path
    """A file of root that nothing may change."""

    def as_user(self, script: str, node: str = "head") -> subprocess.CompletedProcess[str]:
        """Run a script of the other user, which may fail."""
        words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        values = {"theirs": self.theirs, "root": self.root, "secret": self.secret}
        for name, value in values.items():
            script = script.replace(f"@{name}@", str(value))
        return self.on(node, *words, "sh", "-c", f"cd {self.theirs}; {script}")

    def on(self, node: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of root in a directory of the other user."""
        where = () if node == "head" else ("-n", node)
        environment = os.environ | {"BUSBAR_SITE_PATH": str(self.root / "sites")}
        environment |= {"BUSBAR_HISTORY": str(self.root / "history")} | more
        return ran(
            LAB / "run", *where, self.lab, *words, timeout=240, cwd=self.theirs, env=environment
        )

    def busbar(self, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of root, as its shell would find it."""
        return self.on("head", PYTHON, "-P", "-m", "busbar", *words, **more)

    def state(self) -> str:
        return self.on("head", "sinfo", "-h", "-N", "-o", "%N %T %E").stdout

    def health(self) -> str:
        """Run root's health check on a node; return what it says and the state of the nodes."""
        done = self.on("n1", self.root / "busbar" / "healthcheck")
        return done.stdout + done.stderr + self.state()

    def clear(self) -> None:
        self.on("head", "pkill", "-9", "-u", USER)  # may still exchange names
        shutil.rmtree(self.theirs)
        self.theirs.mkdir()
        shutil.chown(self.theirs, USER, USER)
        self.on("head", "scancel", "-u", USER)
        self.secret.write_text("untouched\n")


@pytest.fixture(scope="module")
def cluster(installed: None) -> Iterator[Cluster]:
    # pytest's own directories are closed to other users, who then cannot even try.
    directory = Path(tempfile.mkdtemp(prefix="busbar-lab-", dir="/var/tmp"))
    directory.chmod(0o755)
    found = Cluster(
        *(directory / "cluster", directory / "root", directory / "theirs"),
        secret=directory / "root" / "secret",
    )
    found.root.mkdir()
    found.theirs.mkdir()
    shutil.copytree(ROOT / "ci" / "slurm", found.root / "busbar")
    site = found.root / "sites" / "gated"
    site.mkdir(parents=True)
    (site / "site.yaml").write_text(SITE)
    shutil.copy(ROOT / "site/local/reframe.py", site)
    subprocess.run([LAB / "up", "-n", "2", "-g", "0", found.lab], check=True, capture_output=True)
    for node in ("n1", "n2"):
        found.on(node, "mount", "-t", "sysfs", "sysfs", "/sys")
        found.on(node, *["ip", "link", "add", "port0", "type", "veth", "peer", "name", "far0"])
        found.on(node, *["ip", "link", "set", "far0", "up"])
        found.on(node, *["ip", "link", "set", "port0", "up"])
    busbar = Path(PYTHON).with_name("busbar")
    conf = CONF.format(busbar=busbar, site=site, slurm=found.lab / "slurm.conf", more="")
    (found.root / "busbar" / "gate.conf").write_text(conf)
    found.secret.write_text("untouched\n")
    found.secret.chmod(0o600)
    found.clear()
    yield found
    subprocess.run([LAB / "down", found.lab], check=True)
    shutil.rmtree(directory)


def together(attempts: Iterable[str]) -> list[tuple[str, ...]]:
    """All attempts at once, or each one alone."""
    return [(each,) for each in attempts] if ALONE else [tuple(attempts)]


NAMES = [
    "NVRM: Xid (0) 7",
    "NVRM: Xid (PCI:",
    "amdgpu 0: x",
    "amdgpu 0000:c1:",
    "nvidia-nvswitch",
    "mlx5_core 0000:",
    "mce: [Hardware ",
    "EDAC MC0: 1 UE ",
    "pcieport 0000:0",
    "Out of memory: ",
    "drain: gpu_xid ",
]
CRASH = (
    "cp \"$(readlink -f /usr/bin/python3)\" '{file}'; ./'{file}' -I -c"
    " 'import ctypes; ctypes.CDLL(None).prctl(15, b\"{name}\"); ctypes.string_at(8)'"
)
DRAIN = {
    **{
        f"a process named {name!r} dies": CRASH.format(name=name, file="GPU recovery failed")
        for name in NAMES
    },
    "an Xid in /dev/kmsg": "echo '<3>NVRM: Xid (PCI:0000:01:00): 79, GPU' >/dev/kmsg",
    "an Xid in syslog": "logger -p kern.err -t kernel 'NVRM: Xid (PCI:0000:01:00): 79, GPU'",
    "an Xid by printf on the console": "echo 'NVRM: Xid (PCI:0000:01:00): 79' >/dev/console",
    "scontrol drains": "scontrol update NodeName=n1 State=DRAIN Reason=x",
    "scontrol sets the gate's reason": (
        "scontrol update NodeName=n1 State=DRAIN Reason='[node_problem] x (busbar)'"
    ),
    "a port goes down": "ip link set port0 down",
    "a mount goes away": "umount /dev/shm; umount -l /dev/shm",
    "a mount of ones own": "unshare -Urm mount -t tmpfs none /sys",
    "/dev/shm is full": "dd if=/dev/zero of=/dev/shm/full bs=1M count=64; sleep 0",
    "the health check of ones own": "@root@/busbar/healthcheck",
    "gate.conf is replaced": "printf 'BUSBAR=/bin/false' >@root@/busbar/gate.conf",
    "the hook is replaced": "cp /bin/false @root@/busbar/run_gate",
    "programs of the same name": (
        "for p in nvidia-smi scontrol dmesg timeout sed logger python3;"
        " do printf '#!/bin/sh\\ntouch @secret@ @root@/F; echo drain: x; exit 1\\n' >$p;"
        " chmod +x $p; cp $p /tmp; done"
    ),
    "an environment for the prolog": (
        "srun -w n1 --export=ALL,BUSBAR=/bin/false,GATE_OPTIONS=--sight,PATH=@theirs@,"
        "PYTHONPATH=@theirs@,LD_PRELOAD=@theirs@/x.so,BASH_ENV=@theirs@/x,ENV=@theirs@/x true"
    ),
    "a job name of two lines": "srun -w n1 -J 'x\ndrain: gpu_xid' true",
    "a job that names GPUs": "SLURM_JOB_GPUS=0,1 CUDA_VISIBLE_DEVICES=9 srun -w n1 true",
    "a module for the prolog by sbatch": (
        "sbatch -w n1 -W -o /dev/null --export=ALL,PYTHONSTARTUP=@theirs@/x,PYTHONHOME=@theirs@,"
        "SLURM_CONF=@theirs@/x,BUSBAR_SITE_PATH=@theirs@ --wrap=true"
    ),
    "a comment and features that drain": (
        "sbatch -w n1 -W -o /dev/null --comment='drain: gpu_xid (busbar)' --constraint='x|drain'"
        " --wrap=true; sbatch -w n1 -W -o /dev/null --comment='drain: x' --wrap=true"
    ),
    "a reason on another user's node": "scontrol update NodeName=n1 State=DOWN Reason='drain: x'",
    "a node that is made idle": "scontrol update NodeName=n2 State=RESUME; scontrol reconfigure",
    "extra and comment of a node": (
        "scontrol update NodeName=n1 Extra='drain: x' Comment='[node_problem] x (busbar)'"
    ),
    "a file of 4 GiB and 2000 names": (
        "truncate -s 4G huge; cp --sparse=always huge /dev/shm/huge; for i in $(seq 2000); do"
        " : >/dev/shm/$i; done"
    ),
    "hundreds of processes": (
        "for i in $(seq 300); do timeout 15 sleep 15 >/dev/null 2>&1 & done; wait -n"
    ),
    "a process name with the gate's line": (
        'timeout 15 sh -c \'exec -a "$(printf "x\\ndrain: gpu_xid")" sleep 15\' >/dev/null 2>&1 &'
    ),
    "netfilter writes an Xid": (
        "unshare -Urn sh -c 'ip link set lo up; iptables -A OUTPUT -j LOG --log-prefix"
        ' "NVRM: Xid (PCI:0000:01:00): 79,"; ping -c1 127.0.0.1\''
    ),
    "an event with a mount of ones own": (
        "unshare -Urmpf --mount-proc sh -c 'for d in /dev/shm /tmp; do mount -t tmpfs x $d; done'"
    ),
    "processes that never rest": (
        "for i in $(seq 16); do timeout 20 sh -c 'while :; do :; done' >/dev/null 2>&1 & done"
    ),
    "the highest priority": (
        "timeout 15 nice -n -20 sh -c 'while :; do :; done' >/dev/null 2>&1 &"
        " timeout 15 chrt -f 99 sh -c 'while :; do :; done' >/dev/null 2>&1 &"
    ),
    "the gate is stopped": (
        "timeout 15 sh -c 'while :; do pkill -STOP -f gate; pkill -STOP -f run_gate; done'"
        " >/dev/null 2>&1 &"
    ),
    "the kernel log is cleared": "dmesg -C; dmesg -n 1; sysctl -w kernel.dmesg_restrict=1",
    "an Xid by the socket of syslog": (
        "logger -u /dev/log -p kern.emerg 'NVRM: Xid (PCI:0000:01:00): 79, GPU'"
    ),
    "a port of the same name": (
        "timeout 15 unshare -Urn sh -c 'ip link add port0 type dummy; sleep 15' >/dev/null 2>&1 &"
    ),
    "names of the gate in shared directories": (
        "for d in /tmp /var/tmp /dev/shm; do ln -s @secret@ $d/gate.json; mkfifo $d/busbar;"
        " mkdir -p $d/.busbar; ln -s @secret@ $d/busbar-gate; done"
    ),
    "a reboot and a reservation": (
        "scontrol reboot ASAP n1; scontrol create reservation user=games flags=maint,ignore_jobs"
        " starttime=now duration=9 nodes=n1"
    ),
    "features and gres of a node": (
        "scontrol update NodeName=n1 AvailableFeatures=drain Gres=gpu:0 Weight=9 CpuBind=none"
    ),
    "a locale and a clock for the prolog": (
        "srun -w n1 --export=ALL,TZ=:@secret@,LC_ALL=tr_TR.UTF-8,LANGUAGE=x,PYTHONUTF8=0,"
        "PYTHONHASHSEED=x,PYTHONMALLOC=debug,SOURCE_DATE_EPOCH=0,MALLOC_PERTURB_=255 true"
    ),
    "a prolog of ones own": "srun -w n1 --task-prolog=@theirs@/x --prolog=@theirs@/x true",
    "a node list of ones own": (
        "srun --export=ALL,SLURMD_NODENAME=n2,SLURM_SCRIPT_CONTEXT=prolog_slurmd,"
        "SLURM_JOB_GPUS=99999999999999999999,SLURM_NODE_IS_HEALTHY=NO -w n1 @root@/busbar/run_gate"
        " --drain"
    ),
    "open files and locks": (
        "timeout 15 python3 -c 'import fcntl, glob, time\n"
        'for f in glob.glob("@root@/busbar/*"):\n'
        "    h = open(f); fcntl.flock(h, fcntl.LOCK_EX); globals()[f] = h\n"
        "time.sleep(15)' >/dev/null 2>&1 &"
    ),
    "a process with the name of the gate": (
        "timeout 20 sh -c 'exec -a \"busbar gate\" sleep 20' >/dev/null 2>&1 &"
    ),
    "variables of the loader, the shell and Python": (
        "srun -w n1 --export=ALL,LD_AUDIT=@theirs@/x.so,GLIBC_TUNABLES=glibc.malloc.check=3,"
        "GCONV_PATH=@theirs@,LOCPATH=@theirs@,TMPDIR=@theirs@,PS4=x,SHELLOPTS=xtrace,IFS=/,"
        "CDPATH=@theirs@,HOME=@theirs@,XDG_CACHE_HOME=@theirs@,PYTHONUSERBASE=@theirs@,"
        "PYTHONPLATLIBDIR=@theirs@,PYTHONPYCACHEPREFIX=@theirs@,PYTHONWARNINGS=error true"
    ),
    "variables of SPANK": (
        "SPANK_PATH=@theirs@ SPANK_LD_PRELOAD=@theirs@/x.so _SLURM_SPANK_OPTION_x_y=1"
        " SLURM_SPANK_X=1 sbatch -w n1 -W -o /dev/null --wrap=true"
    ),
    "directives of a burst buffer": (
        "printf '#!/bin/sh\\n#DW jobdw $(touch @secret@)\\n#BB x\\ntrue\\n' >bb.sh;"
        " sbatch -w n1 -W -o /dev/null --bb='capacity=1G`touch @secret@`' bb.sh"
    ),
    "strings that steer a terminal or a template": (
        "sbatch -w n1 -W -o /dev/null -J \"$(printf '\\033]0;x\\007{{7*7}}$(touch @secret@)')\""
        " --comment=\"$(printf 'x\\nState=DRAIN Reason=x')\" --mail-user='`touch @secret@`'"
        " --wckey='x$(id)' --wrap=true; sbatch -w n1 -W -o /dev/null -J '-x --drain' --wrap=true"
    ),
    "comments of administrators": (
        "j=$(sbatch --parsable -w n1 --hold -o /dev/null --wrap=true);"
        " scontrol update JobId=$j AdminComment='drain: x'; scontrol update JobId=$j Extra='x';"
        " scontrol update JobId=$j Comment='[node_problem] gpu_xid (busbar)'; scontrol release $j"
    ),
    "output into files of root": (
        "sbatch -w n1 -W -o @secret@ --open-mode=truncate --wrap='echo x'; srun -w n1 -D"
        " @root@/busbar sh -c 'echo BUSBAR=x >gate.conf'; srun -w n1 --bcast=@secret@ -f true;"
        " sbatch -w n1 -W -o @root@/busbar/gate.conf --wrap='echo BUSBAR=x'"
    ),
    "limits of the user": (
        "prlimit --nofile=9 --pid 1; ulimit -v 400000; ulimit -f 0; srun --propagate -w n1 true"
    ),
    "capabilities and setuid": (
        "cp /bin/sleep s; setcap cap_sys_admin+ep s; chmod 6755 s; install -o root /bin/sh sh"
    ),
    "an ACL": (
        "python3 -I -c 'import os, struct; entries = ((1, 7, -1), (2, 7, 5), (4, 5, -1),"
        ' (16, 7, -1), (32, 5, -1)); acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi",'
        ' *each) for each in entries); os.setxattr(".", "system.posix_acl_default", acl);'
        ' os.setxattr("@root@/busbar", "system.posix_acl_access", acl)\''
    ),
    "sparse files of 1 TB": "truncate -s 1T big; truncate -s 1T /dev/shm/sparse",
    "an Xid by write and syslog": (
        'python3 -I -c \'import os; os.write(os.open("/dev/kmsg", 1), b"<3>NVRM: Xid")\';'
        " python3 -I -c 'import ctypes; ctypes.CDLL(None).klogctl(5, None, 0)'"
    ),
    "tags of the gate and of slurmd in syslog": (
        "logger -t busbar-gate -p daemon.err -- 'drain: gpu_xid'; systemd-cat echo 'drain: x';"
        " logger -t slurmd 'error: Prolog error'"
    ),
    "a process with the name of Slurm's": (
        "cp /bin/sleep slurmstepd; timeout 15 ./slurmstepd 15 >/dev/null 2>&1 &"
    ),
    "a core pattern": (
        "echo '|@theirs@/x' >/proc/sys/kernel/core_pattern; ulimit -c unlimited;"
        " ln -s @secret@ core; sh -c 'kill -SEGV $$'"
    ),
    "names of MPI in /dev/shm": (
        "for n in sem.busbar vader_segment.n1.0.1 ucx_shm_posix_0 psm3 nccl-x ompi.n1.0; do"
        " ln -s @secret@ /dev/shm/$n; done"
    ),
    "a mount over the hooks": (
        "unshare -Urm sh -c 'mount -t tmpfs x /etc; mount --bind @theirs@ @root@/busbar;"
        " mount --make-rshared /'"
    ),
    "a command line of several lines": (
        'timeout 15 bash -c \'exec -a "$(printf "x) R 1 (\\nstatus 1\\ndrain: x")" sleep 15\''
        " >/dev/null 2>&1 &"
    ),
    "a reboot by a job": "srun --reboot -w n1 true; sbatch --reboot -w n1 --wrap=true",
    "strings of gres, licenses and reservations": (
        "srun --gres='gpu:`id`:1' -w n1 true; srun -L 'x\nDRAIN' -w n1 true;"
        " srun --reservation='`id`' -w n1 true; srun --dependency='expand:$(id)' -w n1 true"
    ),
}


@pytest.mark.parametrize("attempts", together(DRAIN))
def test_nobody_else_drains_a_node(cluster: Cluster, attempts: tuple[str, ...]) -> None:
    cluster.clear()
    for attempt in attempts:
        cluster.as_user(DRAIN[attempt], "n1")
    said = cluster.health()
    assert "drain" not in said, said
    assert "pass" in said, said
    assert cluster.secret.read_text() == "untouched\n"


LOCK = "sbatch -p lab -J busbar-night --begin=now+900 -t1 -o /dev/null --wrap=:"
NIGHT = {
    "a job that is a lock": f"{LOCK}",
    "a lock of another process": f"{LOCK} --comment='process 1 on head in @root@/nights 1'",
    "many locks": f"for i in $(seq 30); do {LOCK} >/dev/null & done; wait",
    "a lock with a name of two lines": (
        "sbatch -p lab -J 'x\nbusbar-night' --begin=now+900 -o /dev/null --wrap=:"
    ),
    "a lock with a comment of many columns": f"{LOCK} --comment='{'0 ' * 200}'",
    "a lock on a reservation": f"{LOCK} --reservation=busbar",
    "the lock of the directory": (
        "for f in $(find @root@/nights -name '.lock'); do flock -n $f sleep 30 & done; sleep 0.3"
    ),
    "the lock of the directory, to read": (
        "for f in $(find @root@/nights -name .lock); do flock -n -s $f sleep 30 & done; sleep 0.3"
    ),
    "a hold on root's jobs": "scontrol hold $(squeue -h -u root -o %i) 1; scontrol suspend 1",
    "a job on every node": "sbatch -p lab -N2 --exclusive -t1 -o /dev/null --wrap=:",
    "hard links to the lock": "ln @root@/nights/.lock lock; ln @root@/secret secret",
    "a default ACL and setgid": "chmod 2777 .; setfacl -d -m u:games:rwx @root@/nights",
    "a FIFO for the night": "mkfifo @root@/nights/night.json nights; ln -s nights @root@/last",
    "a directory in its place": "mkdir -p @root@/nights/x; rm -rf @root@/nights",
    "signals": "pkill -9 busbar; pkill -9 python; pkill -9 slurmd; pkill -9 slurmctld",
    "a lock that outranks": f"{LOCK} --priority=TOP --nice=-2147483645 --qos=root",
    "a lock with the id of root": f"{LOCK} --uid=root --gid=0",
    "a lock by many tasks": f"{LOCK} --array=0-99 : -J busbar-night",
    "a reservation of all nodes": (
        "scontrol create reservation user=games flags=maint starttime=now duration=9 nodes=ALL"
    ),
    "root's jobs are changed": (
        "for j in $(squeue -h -u root -o %i) 1 2; do scontrol update JobId=$j Comment=x Name=y;"
        " scontrol requeue $j; scontrol top $j; done; scontrol shutdown; scontrol reconfigure"
    ),
    "a partition that is down": "scontrol update PartitionName=lab State=DOWN AllowGroups=games",
    "root's jobs are cancelled": "scancel -u root; scancel -n busbar-night",
}


@pytest.mark.parametrize("attempts", together(NIGHT))
def test_nobody_else_prevents_a_night(cluster: Cluster, attempts: tuple[str, ...]) -> None:
    cluster.clear()
    nights = cluster.root / "nights"
    if not nights.exists():
        nights.mkdir()
        (nights / ".lock").touch(0o600)
    for attempt in attempts:
        cluster.as_user(NIGHT[attempt])
    words = ("nightly", "--json", "--site", "gated", "--stages=gate", "--output", nights)
    done = cluster.busbar(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] in ("pass", "unjudged")


NAMES_OF_JOBS = ("x NodeList=n2 JobState=PENDING", "x\nJobId=9 JobState=RUNNING", "\033]0;x\007")


@pytest.mark.parametrize("name", NAMES_OF_JOBS)
def test_no_name_of_a_job_hides_it(cluster: Cluster, name: str) -> None:
    cluster.clear()
    job = ("sbatch", "--parsable", "-w", "n1", "-o", "/dev/null", "--comment=NodeList=n2")
    number = cluster.on("head", *job, "-J", name, "--wrap=sleep 60").stdout.strip()
    cluster.on("head", "sh", "-c", f"until squeue -h -t R -j {number} | grep -q .; do :; done")
    done = cluster.busbar("job", "--json", "--seconds", "1", number)
    cluster.on("head", "scancel", number)
    assert json.loads(done.stdout)["nodes"] == ["n1"], done


COPY = "tests/data/h200x4/nccl_healthy_a.log"
WRITES: dict[str, tuple[str, ...]] = {
    "check --output": ("check", "--list", "--site", "gated", "--output", "out"),
    "check -n": ("check", "-n", "none", "--site", "gated", "--output", "out"),
    "nightly --output": ("nightly", "--site", "gated", "--stages=gate", "--output", "out"),
    "sweep run --output": ("sweep", "run", "--site", "gated", "--output", "out"),
    "report --output": ("report", "@root@/results.json", "--output", "out"),
    "report --prometheus": ("report", "@root@/results.json", "--prometheus", "out/a.prom"),
    "gate --prometheus": ("gate", "--passive", "--site", "gated", "--prometheus", "out/a.prom"),
    "gate compile": ("gate", "compile", "--site", "gated", "--output", "out"),
    "site detect --output": ("site", "detect", "--output", "out"),
    "site detect --like": ("site", "detect", "--like", "local", "--output", "out/mine"),
    "history import": ("history", "import", str(ROOT / COPY), "--site", "h200x4"),
    "certify init": ("certify", "init", "--site", "gated", "--output", "out/contract.yaml"),
    "certify run": ("certify", "run", "--contract", "@root@/contract.yaml", "--output", "out"),
    "node --add": (
        *("node", "--add", "@root@/results.json", "--site", "gated", "--output", "out"),
    ),
    "node --took": ("node", "n1", "--took", "reset", "--site", "gated", "--output", "out"),
    "job --prometheus": ("job", "1", "--seconds", "1", "--prometheus", "out/a.prom"),
}
PLANTS = {
    "links": (
        "mkdir -p out/mine; for f in results.json report.html index.html .lock night.json"
        " results.jsonl reframe.log a.prom a.json site.yaml reframe.py mine/site.yaml"
        " mine/reframe.py configuration.py busbar.db results.db contract.yaml nodes.json"
        " record.json run.json; do ln -s @secret@ out/$f; done"
    ),
    "a link for the directory": "ln -s @root@ out",
    "a directory that is exchanged with a link": (
        "mkdir -p out/mine; ln -s @root@ evil; timeout 15 python3 -I -c 'import ctypes\n"
        'while True: ctypes.CDLL(None).renameat2(-100, b"out", -100, b"evil", 2)\''
        " >/dev/null 2>&1 &"
    ),
}


@pytest.mark.parametrize(("attempt", "plant"), some(product(WRITES, PLANTS), 7))
def test_nobody_else_leads_root_to_another_file(
    cluster: Cluster, attempt: str, plant: str
) -> None:
    cluster.clear()
    (cluster.root / "results.json").write_text(RESULTS)
    contract = cluster.root / "contract.yaml"
    if "certify" in attempt and not contract.exists():
        made = cluster.busbar("certify", "init", "--site", "gated", "--output", contract)
        assert made.returncode == 0, made.stderr
    before = {path for path in cluster.root.rglob("*") if "nights" not in path.parts}
    cluster.as_user(PLANTS[plant])
    words = [word.replace("@root@", str(cluster.root)) for word in WRITES[attempt]]
    more = {"BUSBAR_HISTORY": str(cluster.theirs / "out")} if "history" in attempt else {}
    done = cluster.busbar(*words, **more)
    assert cluster.secret.read_text() == "untouched\n", done
    after = {path for path in cluster.root.rglob("*") if "nights" not in path.parts}
    own = {cluster.root / "history", cluster.root / "history" / ".db.lock"}
    assert after - before <= own, (done.stdout, done.stderr)


RESULTS = json.dumps(
    {
        "schema": "busbar-check/1",
        "site": "gated",
        "time": "2026-11-01T00:00:00+00:00",
        "delivery": "wheels",
        "lane": "ucx-1.14",
        "verdict": "failed",
        "versions": {},
        "coverage": "",
        "results": [],
        "skipped": [],
    }
)
MARK = "open('@F@', 'w').write('ran')"
MODULE = f'printf "%s\\n" "{MARK}"'
HOME = "mkdir -p .local/lib/python3.11/site-packages && cd .local/lib/python3.11/site-packages"
RUN = {
    "modules of a home directory": (
        f"{HOME}; {MODULE} >usercustomize.py; cp usercustomize.py sitecustomize.py;"
        " printf 'import os; os.mkdir(\"@F@\")\\n' >x.pth"
    ),
    "settings of git": (
        "printf '[core]\\nfsmonitor = touch @F@; false\\n[safe]\\ndirectory = *\\n' >.gitconfig"
    ),
    "a package busbar": (
        f"mkdir busbar; {MODULE} >busbar/__init__.py; cp busbar/__init__.py busbar/__main__.py"
    ),
    "modules of the standard library": (
        f"for m in json re os site argparse ctypes; do {MODULE} >$m.py; done"
    ),
    "modules of packages": (
        f"for m in rich yaml numpy pydantic reframe jinja2; do {MODULE} >$m.py; done"
    ),
    "sitecustomize": f"{MODULE} >sitecustomize.py; {MODULE} >usercustomize.py",
    "a .pth": "printf 'import os; os.mkdir(\"@F@\")\\n' >x.pth",
    "reframe.py": f"{MODULE} >reframe.py; mkdir gated; {MODULE} >gated/reframe.py",
    "a site of ones own": (
        "mkdir other; sed 's/name: gated/name: other/' @root@/sites/gated/site.yaml"
        f" >other/site.yaml; {MODULE} >other/reframe.py"
    ),
    "a site that holds commands": (
        "mkdir another; sed 's/name: gated/name: another/' @root@/sites/gated/site.yaml"
        " >another/site.yaml; cp @root@/sites/gated/reframe.py another;"
        " printf 'tuning: {NCCL_X: \"$(touch @F@)\"}\\n' >>another/site.yaml"
    ),
    "programs": (
        "for p in git ssh srun sbatch squeue mpirun c++ make; do"
        " printf '#!/bin/sh\\ntouch @F@\\n' >$p; chmod +x $p; done"
    ),
    "settings": "printf '[tool.reframe]\\n' >pyproject.toml; printf 'x=$(touch @F@)' >.env",
}
COMMANDS = (
    ("check", "--list", "--site", "gated", "--output", "@root@/out"),
    ("check", "--list", "--site", "other", "--output", "@root@/out"),
    ("check", "--list", "--site", "another", "--output", "@root@/out"),
    ("gate", "--passive", "--site", "gated"),
    ("explain", str(ROOT / COPY)),
    ("report", "@root@/results.json", "--output", "@root@/report"),
    ("certify", "init", "--site", "gated", "--output", "@root@/first.yaml"),
    ("certify", "run", "--plan", "--contract", "@root@/first.yaml"),
    ("node", "n1", "--took", "reset", "--site", "gated", "--output", "@root@/nights"),
    ("node", "--add", "@root@/results.json", "--site", "other", "--output", "@root@/nights"),
    ("job", "--seconds", "1", "1"),
)


def test_root_runs_nothing_of_others(cluster: Cluster) -> None:
    """All are planted at once: each would leave a file of its own."""
    cluster.clear()
    (cluster.root / "results.json").write_text(RESULTS)
    left = {attempt: cluster.theirs / f"F{number}" for number, attempt in enumerate(RUN)}
    for attempt, script in RUN.items():
        made = cluster.as_user(script.replace("@F@", str(left[attempt])))
        assert made.returncode == 0, made.stderr
    busbar = Path(PYTHON).with_name("busbar")
    for command in some(COMMANDS, 3):
        words = [word.replace("@root@", str(cluster.root)) for word in command]
        cluster.on("head", busbar, *words, HOME=str(cluster.theirs))
    night = ("nightly", "--site", "gated", "--stages=gate", "--output", cluster.root / "nights")
    cluster.on("head", busbar, *night)
    cluster.on("n1", cluster.root / "busbar" / "healthcheck")
    assert [attempt for attempt, file in left.items() if file.exists()] == []
    cluster.on("head", PYTHON, "-c", "import json")  # what was planted does run where it is let
    assert left["modules of the standard library"].exists()


@pytest.mark.long
def test_a_closed_umask_keeps_all_from_readers(cluster: Cluster) -> None:
    """Also temporary files: nothing that root writes is readable, but for metrics."""
    cluster.clear()
    (cluster.root / "results.json").write_text(RESULTS)
    output = cluster.root / "closed"
    output.mkdir()
    for words in (
        ("check", "-n", "none", "--site", "gated", "--output", output / "check"),
        ("nightly", "--site", "gated", "--stages=gate", "--output", output / "nights"),
        ("report", cluster.root / "results.json", "--output", output / "report"),
        ("history", "import", ROOT / COPY, "--site", "h200x4"),
    ):
        line = " ".join(map(str, (PYTHON, "-P", "-m", "busbar", *words)))
        more = {"BUSBAR_HISTORY": str(output / "history")}
        cluster.on("head", "sh", "-c", f"umask 077; exec {line}", **more)
    files = [path for path in output.rglob("*") if path.is_file()]
    assert len(files) >= 5
    readable = cluster.as_user(f"find {output} -mindepth 1 -readable").stdout.splitlines()
    assert not readable

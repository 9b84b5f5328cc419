#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# install.sh: installs the missing tools of the lab: Slurm and image tools by apt, Apptainer into $APPTAINER_PREFIX.
# Debian 12 has no Apptainer. The package of Debian unstable runs on it, together with the C library of unstable.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=${APPTAINER_PREFIX:-$PWD/build/apptainer}
tools=(slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge ip:iproute2 patchelf:patchelf
    unsquashfs:squashfs-tools buildah:buildah podman:podman dockerd:docker.io fakeroot:fakeroot newuidmap:uidmap mmdebstrap:mmdebstrap fuse-overlayfs:fuse-overlayfs sshd:openssh-server fi_pingpong:libfabric-bin)
[[ -z ${CENTER:-} ]] || tools+=(mariadbd:mariadb-server-core slurmdbd:slurmdbd)
library=/usr/lib/$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu) # the default without a compiler

die() {
    printf 'lab: %s\n' "$1" >&2
    exit 1
}

export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive
missing=()
for tool in "${tools[@]}"; do
    command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
done
[[ -e $library/slurm-wlm/mpi_pmix.so ]] || missing+=(slurm-wlm-basic-plugins)
# Slurm opens libpmix.so without a version, which only the development package contains.
[[ -e $library/pmix2/lib/libpmix.so || -e $library/libpmix.so ]] || missing+=(libpmix-dev)
compgen -G "$library/libpmi2.so.0*" >/dev/null || missing+=(libpmi2-0)
[[ -z ${CENTER:-} || -e $library/slurm-wlm/accounting_storage_mysql.so ]] || missing+=(slurm-wlm-mysql-plugin)
# The names of the capabilities are read from this header.
[[ -e /usr/include/linux/capability.h ]] || missing+=(linux-libc-dev)
log=$(mktemp)
trap 'rm -rf "$log" "${work:-}"' EXIT
if ((${#missing[@]})); then
    command -v apt-get >/dev/null || die "no apt-get found; install ${missing[*]} manually"
    printf 'lab: installing %s\n' "${missing[*]}" >&2
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
        die "apt-get failed: $(grep -m1 '^E:' "$log")"
    dpkg-query -W "${missing[@]}" >&2
fi
# `apptainer build --fakeroot` needs a range of ids, even for root.
for file in /etc/subuid /etc/subgid; do
    grep -qs '^root:' "$file" || echo root:1000000:65536 >>"$file"
done

# unstable MODE PACKAGE...: downloads packages of the unstable suite of this machine's archive, and unpacks them below $work/root.
# MODE is `download`, for these only, or `install`, also for what they need.
unstable() {
    local mode=("$1") uri
    shift
    [[ ${mode[0]} == download ]] || mode=(install -y --download-only --no-install-recommends)
    # shellcheck disable=SC2016 # variables of apt-get
    uri=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | sed -n 's/ bookworm$//p' | head -n 1)
    [[ -n $uri ]] || die "apt has no Debian 12 archive configured; install $1 manually"
    work=$(mktemp -d)
    mkdir -p "$work"/{state/lists/partial,cache/archives/partial,etc/preferences.d,etc/sources.list.d,root}
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s sid main\n' "$uri" >"$work/etc/sources.list"
    # The index of a slow mirror may have expired; signatures and checksums are still verified.
    cat >"$work/apt.conf" <<CONF
Dir::Etc "$work/etc"; Dir::Etc::sourcelist "$work/etc/sources.list"; Dir::Etc::sourceparts "$work/etc/sources.list.d";
Dir::Etc::preferencesparts "$work/etc/preferences.d"; Dir::State "$work/state"; Dir::State::status "$work/state/status";
Dir::Cache "$work/cache"; APT::Sandbox::User "root"; Acquire::Languages "none";
Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false";
CONF
    : >"$work/state/status"
    (cd "$work/cache/archives" && export APT_CONFIG=$work/apt.conf && apt-get update && apt-get "${mode[@]}" "$@") >"$log" 2>&1 ||
        die "apt-get could not download $1: $(grep -m1 '^E:' "$log")"
    for package in "$work"/cache/archives/*.deb; do
        dpkg-deb -W "$package" >&2
        dpkg -x "$package" "$work/root"
    done
}

# ---- Slurm from unstable, with its C library, for `up -u`
if [[ -n ${UNSTABLE:-} && ! -e $UNSTABLE/bin/srun ]]; then
    printf 'lab: installing Slurm of Debian unstable into %s\n' "$UNSTABLE" >&2
    unstable install slurmctld slurmd slurm-client
    mkdir -p "$UNSTABLE.new"/{bin,lib}
    from=$work/root/usr/lib/${library##*/}
    cp -a "$from"/*.so* "$from/slurm-wlm" "$UNSTABLE.new/lib/"
    loader=$(cd "$from" && echo ld-linux-*)
    for program in "$work"/root/usr/sbin/slurm{ctld,d,stepd}-wlm "$work"/root/usr/bin/{srun,sbatch,salloc,sinfo,squeue,scancel,scontrol,sacct,scrontab}; do
        name=$(basename "$program" -wlm)
        cp -L "$program" "$UNSTABLE.new/bin/$name"
        patchelf --force-rpath --set-interpreter "$UNSTABLE/lib/$loader" --set-rpath "$UNSTABLE/lib:$UNSTABLE/lib/slurm-wlm" "$UNSTABLE.new/bin/$name"
    done
    rm -rf "$UNSTABLE" "$work"
    mv "$UNSTABLE.new" "$UNSTABLE"
fi
if command -v apptainer >/dev/null || [[ -x $prefix/bin/apptainer ]]; then
    exit 0
fi

# ---- Apptainer from unstable
printf 'lab: installing Apptainer into %s\n' "$prefix" >&2
unstable download apptainer libc6 libseccomp2 libsqlite3-0

from=$work/root/usr/lib/${library##*/}
into=$work/prefix
mkdir -p "$into"/{bin,libc,"lib/${library##*/}",var/lib/apptainer/mnt/session}
cp -a "$work/root/usr/bin/apptainer" "$into/bin/"
cp -a "$from/apptainer" "$into/lib/${library##*/}/"
cp -a "$work/root/etc" "$into/"
cp -aL "$from"/{ld-linux-*.so.?,libc.so.6,libm.so.6,libresolv.so.2,libnss_files.so.2,libnss_dns.so.2,libpthread.so.0,libdl.so.2,libseccomp.so.2,libsqlite3.so.0} "$into/libc/"
# The prefix is PREFIX/lib for the starter, and PREFIX for the command.
ln -s ../etc ../var "$into/lib/"
loader=$(basename "$into"/libc/ld-linux-*)
for program in "$into/bin/apptainer" "$into/lib/${library##*/}/apptainer/bin/starter"; do
    # DT_RPATH, because with DT_RUNPATH indirect libraries would come from the host.
    patchelf --force-rpath --set-interpreter "$prefix/libc/$loader" --set-rpath "$prefix/libc" "$program"
done
# Root in a container or a virtual machine may lack capabilities; Apptainer's default "full" requires all of them.
python3 - "$into/etc/apptainer" <<'PY'
import json, pathlib, re, sys
etc = pathlib.Path(sys.argv[1])
held = int(re.search(r"CapPrm:\s*(\w+)", pathlib.Path("/proc/self/status").read_text())[1], 16)
names = re.findall(r"#define\s+(CAP_[A-Z_]+)\s+(\d+)", pathlib.Path("/usr/include/linux/capability.h").read_text())
caps = [name for name, bit in names if name != "CAP_LAST_CAP" and held >> int(bit) & 1]
(etc / "capability.json").write_text(json.dumps({"users": {"root": caps}}, indent=1))
conf = etc / "apptainer.conf"
conf.write_text(re.sub(r"(?m)^root default capabilities = .*", "root default capabilities = file", conf.read_text()))
PY
mkdir -p "$(dirname "$prefix")"
rm -rf "$prefix"
mv "$into" "$prefix"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# unbundle.sh verify FILE [SIGNERS] | install FILE DIR [SIGNERS]: checks every byte of a bundle of ci/bundle.sh, and unpacks it into the
# new directory DIR. SIGNERS is a file of allowed signers (ssh-keygen(1)); without it the signature is not checked. Needs bash, GNU tar,
# coreutils and, for signatures, ssh-keygen. Exit status: 0, 1 for a bundle that cannot be trusted, 2 for wrong arguments.
set -euo pipefail
export LC_ALL=C
action=${1:-} file=${2:-}
if [[ $action == install ]]; then dir=${3:-} signers=${4:-}; else dir='' signers=${3:-}; fi
members=(content.tar content.sha256)

die() { # [STATUS] TEXT
    local status=1
    [[ $1 != 2 ]] || { status=2 && shift; }
    printf 'bundle: %s: %s\n' "$file" "$1" >&2
    exit "$status"
}

# DIR: a directory above it, or itself, that another user than root can change. Whoever renames it lets root write elsewhere.
foreign() {
    local place=$1
    while [[ $place != / ]]; do
        find "$place" -maxdepth 0 \( ! -user root -o -perm /022 ! -perm -1000 \) 2>/dev/null
        place=$(dirname "$place")
    done
}

canonical() { # TAR DIR MEMBER...: writes these files as the only archive that they have in a bundle
    tar --create --file "$1" --directory "$2" --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r --no-recursion "${@:3}"
}

plain() { # TAR: whether it has regular files below its top only
    local kind name
    while IFS=$'\t' read -r kind name; do
        [[ $kind == - && $name =~ ^[A-Za-z0-9_+~@=-][A-Za-z0-9._/+~@:=-]*$ && /$name/ != */../* ]] || die "'$name' is not a regular file below the bundle"
    done < <(tar --list --verbose --numeric-owner --quoting-style=escape --file "$1" 2>/dev/null | sed -E 's/^(.)[^ ]* +[^ ]+ +[0-9,]+ +[^ ]+ +[^ ]+ /\1\t/')
}

[[ $action == verify || ($action == install && -n $dir) ]] && [[ -n $file ]] || die 2 "usage: unbundle.sh verify FILE [SIGNERS] | install FILE DIR [SIGNERS]"
[[ -r $file ]] || die 2 "cannot be read"
[[ -z $dir || ! -e $dir ]] || die 2 "$dir exists; name a new directory"
[[ -z $signers || -r $signers ]] || die 2 "$signers cannot be read"
place=$(dirname "$(realpath -m "${dir:-$file}")")
# In a user namespace root owns nothing of the host, and can change nothing of it.
if [[ $EUID == 0 && $(</proc/self/uid_map) =~ ^\ *0\ +0\ +4294967295$ && -n $(foreign "$place") ]]; then
    die 2 "another user can change $(foreign "$place" | head -n 1); use a directory that only root can change"
fi
mkdir -p "$place"
work=$(mktemp -d "$place/.bundle.XXXXXX") || die 2 "$place cannot be written to"
trap 'rm -rf "$work"' EXIT

# The outer archive must be what these members give, byte by byte.
names=$(tar --list --file "$file" 2>/dev/null) || die "is damaged or not a bundle"
[[ $'\n'$names != *content.sha256.sig* ]] || members+=(content.sha256.sig)
plain "$file"
tar --extract --file "$file" --directory "$work" --no-same-owner "${members[@]}" 2>/dev/null || die "is damaged or not a bundle"
canonical - "$work" "${members[@]}" | cmp --quiet - "$file" || die "was changed"
(cd "$work" && sha256sum --check --strict --quiet content.sha256 >/dev/null 2>&1) || die "its content was changed"
if [[ -n $signers ]]; then
    [[ -e $work/content.sha256.sig ]] || die "is not signed"
    who=$(ssh-keygen -Y find-principals -f "$signers" -s "$work/content.sha256.sig" 2>/dev/null | head -n 1) || true
    [[ -n $who ]] || die "its key is not in $signers"
    ssh-keygen -Y verify -f "$signers" -I "$who" -n busbar-bundle -s "$work/content.sha256.sig" <"$work/content.sha256" >/dev/null 2>&1 ||
        die "its signature is wrong"
fi
plain "$work/content.tar"
mkdir "$work/content"
wanted=()
[[ -n $dir ]] || wanted=(ABOUT MISSING)
tar --extract --file "$work/content.tar" --directory "$work/content" --no-same-owner "${wanted[@]}"
cat "$work/content/ABOUT"
sed 's/^/missing: /' "$work/content/MISSING"
[[ -n $signers ]] || printf 'The signature was not checked: name a file of allowed signers.\n'
[[ -n $dir ]] || exit 0

# The names of the checkout are checked, too, which has links.
! tar --list --file "$work/content/busbar.tar" | grep -qv '^busbar/' || die "busbar.tar has files outside of busbar"
tar --extract --file "$work/content/busbar.tar" --directory "$work/content" --no-same-owner
dir=$(realpath -m "$dir")
cat >"$work/content/env.sh" <<END
# Source it: pip, git and Spack then use this bundle instead of a network.
export PIP_NO_INDEX=1 PIP_FIND_LINKS='file://$dir/wheels' MIRROR='file://$dir/spack/sources'
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0='url.file://$dir/spack/git/.insteadOf' GIT_CONFIG_VALUE_0=https://github.com/
[[ -d '$dir/spack/sources' ]] || unset MIRROR
END
mv -T "$work/content" "$dir"
printf 'installed; next: . %s/env.sh && cd %s/busbar && make check\n' "$dir" "$dir"

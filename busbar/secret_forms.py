# SPDX-License-Identifier: MIT
"""Secrets that the text around them shows: known formats, users of URLs, passwords of programs.

`busbar.redact` finds those that follow a name, and random words. Here as there, every step takes
time in proportion to the text.
"""

from __future__ import annotations

import re

REPLACEMENT = "[redacted]"

# Formats that are secrets wherever they are.
_KNOWN = re.compile(
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"  # AWS access keys
    r"|gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+"
    r"|gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-[\w-]{16,}+"
    r"|hf_[A-Za-z0-9]{20,}+|(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}+"
    r"|(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{8,}+|xox[a-z]-[\w-]{8,}+|xapp-[\w-]{8,}+"
    r"|npm_[A-Za-z0-9]{30,}+|nvapi-[\w-]{20,}+|wandb_v\d_\w{20,}+|pypi-[\w-]{20,}+"
    r"|(?<![\w.])(?:hv[sbr]\.[\w-]{8,}+|s\.(?=[a-zA-Z]*+\d)[A-Za-z0-9]{24}(?!\w))|AIza[\w-]{35}|ya29\.[\w-]{10,}+|dckr_[po]at_[\w-]{10,}+"
    r"|(?<!\d)\d{8,10}:AA[\w-]{30,}+"  # Telegram
    r"|LTAI[A-Za-z0-9]{12,}+|(?<!\w)\w{3}\dQ~[\w.~-]{20,}+"  # Alibaba, Azure
    r"|(?<![\w.])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}+"  # Discord
    r"|\$(?:apr1|[1256y7]|2[abxy]?|gy|sha1|argon2\w++|pbkdf2[\w-]*+)\$[^\s:;\"'<>]{8,}+"  # crypt
    r"|\{(?:S?SHA\d{0,3}|S?MD5|CRYPT|PBKDF2[\w-]*+)\}[\w+/=.$]{8,}+"  # LDAP
    r"|SG\.[\w-]{10,}+\.[\w-]{10,}+|AGE-SECRET-KEY-1\w{10,}+|MUNGE:[A-Za-z0-9+/=]{4,}+:?"
    r"|(?<![\w-])eyJ[\w-]{8,}+(?:\.[\w-]++){1,4}"  # JSON web tokens
    r"|(?<![\w+/])(?:b3BlbnNzaC1rZXk|MII[A-Za-z])[\w+/]{20,}+={0,2}"  # bodies of keys
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?(?:-----END [A-Z ]*-----|\Z))"
)
_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*+)://(?P<rest>[^\s\"'<>]++)"
)
_CONDA = re.compile(r"(?<=/t/)(?=[^/]*\d)[^/\s]{8,}+(?=/)")
_PORT = re.compile(r"\d{1,5}(?=\D|$)")
_WEB = ("http", "https", "ftp", "ftps", "git+https", "oci", "docker")
_WORD_OR_QUOTED = r"(?:\"[^\"\n]*+\"|'[^'\n]*+'|[^\s|\"']++)"
_LOGIN = re.compile(
    r"(?<![\w-])(?:(?P<p>login|sshpass|mysql\w*+|mariadb\w*+|mongo\w*+|7z[ar]?+|(?:un)?+rar"
    r"|ipmi(?!tool)[\w-]++|bmc-\w++|racadm|redfish\w*+)|(?P<w>ldap\w++|kadmin)|(?P<u>lftp)"
    r"|(?P<P>(?:un)?+zip|sqlcmd|bcp|ipmitool)|(?P<a>redis-cli|https?(?=\s))|(?P<c>snmp\w++)"
    r"|(?P<b>curl)|(?P<N>ssh-keygen)|(?P<k>openssl\s++enc)"
    r"|(?P<last>htpasswd(?=\s++-\w*?b)|(?:openssl\s++passwd|mkpasswd|wpa_passphrase)(?=\s)"
    r"|net\s++user?+(?=\s++\S++\s++\S++\s++/|\s++\S:))"
    r"|(?P<store>(?:vault|secrets?)\s++(?:kv\s++)?+(?:put|patch|write|set|create)\b"
    r"|put-parameter))(?![\w-])"
)
"""Programs, by the letter of the option that takes the password, or by the word that is one."""
_PASSWORD_OPTION = {
    letter: re.compile(
        rf"(?P<option>(?<!\S)-{letter}(?:\s++|=)?+)(?:\"[^\"]*+\"?|'[^']*+'?|[^\s\"']++)"
    )
    for letter in _LOGIN.groupindex
} | {
    "last": re.compile(
        r"(?P<option>\s)(?![-/\\])(?:\"[^\"]*+\"|'[^']*+'|[^\s|;&<>\"']++)"
        r"(?=\s*+(?:$|[|;&<>]|/\w))"
    ),
    "store": re.compile(
        rf"(?P<option>\s(?:--(?:value|body|data)[=\s]|[\w.][\w.-]*+=)){_WORD_OR_QUOTED}"
    ),
}
_ASKS = (
    r"(?:\S*/)?+(?:sudo\s++-S|kinit|chpasswd|passwd|su|gpg|cryptsetup"
    r"|[\w-]++\s++(?:\w++\s++)?login)\b"
)
_INTRODUCED = tuple(
    re.compile(expression, re.MULTILINE)
    for expression in (
        r"(?P<before>(?:hooks\.slack\.com|discord(?:app)?\.com/api|webhook\.office\.com)/)[^\s\"'<>]++",
        r"(?<!\w)(?P<before>(?i:Bearer)\s++|(?i:Basic)\s++(?=[a-z]*+[\d+/=A-Z]))[\w.~+/-]{8,}+={0,2}",
        # curl -u user:password, smbclient -U user%password, openssl -passin pass:password
        r"(?P<before>(?<!\S)(?:-u|-U|--user|--proxy-user)(?:\s++|=)?+[\"']?+)"
        r"[^\s:\"'=-][^\s:\"']*+:[^\s\"']++",
        r"(?P<before>(?<!\S)-[Ua]\s*+[^\s%:]++%)\S++",
        r"(?P<before>(?:\bsqlplus\s++(?:-\w++\s++)*+|\bjdbc:oracle:\w++:)[^\s/@]++/)[^\s@]++",
        r"(?P<before>(?<!\S)/p(?:w|ass\w*+)?+:)\S++",
        r"(?P<before>(?<!\S)-pass(?:in|out)?+\s++pass:|(?<!\S)--from-literal[= ][\w.-]++=)\S++",
        # echo password | kinit, kinit <<< password, and the question for it
        rf"(?P<before>(?<!\S)(?:echo|printf)\s++(?:-\w++\s++)*+){_WORD_OR_QUOTED}(?=\s*+\|\s*+{_ASKS})",
        rf"(?P<before>(?<!\S)(?:kinit|chpasswd|sudo|gpg)\b[^\n<]*+<<<\s*+){_WORD_OR_QUOTED}",
        r"(?P<before>(?i:password|passphrase) for (?:'[^'\n]*+'|[^:'\n]++)++:[ \t]++)\S[^\n]*+",
        r"(?P<before>\b(?i:(?:api|access|secret|private|account|signing|encryption)[ -]key"
        r"|(?:verification|security|recovery) code)(?::| is)\s++)(?!0x|\d{1,5}\b)\S++",
        # expect, SQL, switches
        r"(?P<before>(?<!\S)send\s++(?:--\s++)?+)\"[^\"\n]*\\[rn]\"",
        rf"(?P<before>(?i:\bidentified by|snmp-server community|(?<!\S)r[ow]community6?)\s++)"
        rf"{_WORD_OR_QUOTED}",
        # .netrc, .pgpass and configurations
        r"(?P<before>(?<!\S)(?:login|user(?:name)?+)\s++\S++\s++(?:password|passwd|secret)\s++"
        r"(?:\d\s++)?+|^[\w.*-]++:(?:5432|\*):[\w*-]++:[\w.*-]++:"
        r"|^[ \t]*+(?:password|passwd|(?:require|master|root|bind|user|db|admin)_?+p(?:ass|w))"
        r"[ \t]++(?=\S++[ \t]*+$))\S++",
    )
)
"""What follows ``before`` is a secret."""


def without_forms(text: str) -> str:
    """Replace what is a secret by its own form, or by the command or words before it."""
    text = _URL.sub(_redact_url, _KNOWN.sub(REPLACEMENT, text))
    for introduced in _INTRODUCED:
        text = introduced.sub(rf"\g<before>{REPLACEMENT}", text)
    if _LOGIN.search(text):
        text = "\n".join(map(_redact_login, text.split("\n")))
    return text


def _redact_url(match: re.Match[str]) -> str:
    """Redact user and password. A password can contain ``/`` and ``@``, unescaped."""
    scheme, rest = match["scheme"], match["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, after = authority.partition(":")
    if colon and "@" not in user and (authority.count("@") or not _PORT.match(after)):
        at = rest.rfind("@")
    elif scheme.lower() in _WEB and user != "git":
        at = authority.rfind("@")
    else:
        at = -1
    rest = _CONDA.sub(REPLACEMENT, rest if at < 0 else f"{REPLACEMENT}{rest[at:]}")
    return f"{scheme}://{rest}"


def _redact_login(line: str) -> str:
    begins: dict[str, int] = {}
    for login in _LOGIN.finditer(line):
        begins.setdefault(login.lastgroup or "p", login.end())
    for kind, at in reversed(begins.items()):
        option = _PASSWORD_OPTION[kind]
        words = option.sub(rf"\g<option>{REPLACEMENT}", line[at:], count=int(kind == "last"))
        line = line[:at] + words
    return line

//! Contents that `cobgen` and `cobd` accept, and contents that they refuse.

use serde_json::Value;

/// A kind, contents that are accepted, and contents that are refused.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

const TABLE: &[Row] = &[
    (
        "package",
        &[
            r#"{"name": "nginx"}"#,
            r#"{"name": "nginx", "version": "1.22*", "hold": true, "override_hold": true, "purge": true}"#,
            r#"{"name": "nginx", "repository": "/srv/repo", "trusted": true, "root": "/srv/host"}"#,
            r#"{"name": "nginx", "repository": "http://h/debian bookworm main", "signed_by": "/k.gpg", "lock_timeout": "30s"}"#,
            r#"{"name": "exim4:i386", "may_remove": ["postfix"], "may_downgrade": ["libc6:i386"]}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"name": ""}"#,
            r#"{"name": "Nginx!"}"#,
            r#"{"name": "-o"}"#,
            r#"{"name": "nginx", "version": 1}"#,
            r#"{"name": "nginx", "hold": "yes"}"#,
            r#"{"name": "nginx", "root": "srv"}"#,
            r#"{"name": "nginx", "may_remove": "apache2"}"#,
            r#"{"name": "nginx", "may_remove": ["-y"]}"#,
            r#"{"name": "nginx", "repository": "http://h/x#y"}"#,
            r#"{"name": "nginx", "more": 1}"#,
        ],
    ),
    (
        "exec",
        &[
            r#"{"command": "true"}"#,
            r#"{"command": ["touch", "/x"], "creates": "/x", "undo": "rm /x", "user": "app", "group": "app"}"#,
            r#"{"command": "x", "removes": "/x", "unless": "y", "only_if": ["z"], "dir": "/srv", "env": {"A": "1"}}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"command": ""}"#,
            r#"{"command": []}"#,
            r#"{"command": "x", "undo": " "}"#,
            r#"{"command": "x", "creates": "x"}"#,
            r#"{"command": "x", "creates": "/x", "removes": "/x"}"#,
            r#"{"command": "x", "dir": "srv"}"#,
            r#"{"command": "x", "group": "app"}"#,
            r#"{"command": "x", "user": "-app"}"#,
            r#"{"command": "x", "env": {"COB_ID": "1"}}"#,
            r#"{"command": "x", "cwd": "/srv"}"#,
        ],
    ),
    (
        "line",
        &[
            r#"{"path": "/etc/x", "line": "a"}"#,
            r#"{"path": "/etc/x", "line": "Port 22", "match": "^#?Port ", "after": "^# ports", "create": true}"#,
            r#"{"path": "/etc/x", "match": "^#", "absent": true, "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"path": "/etc/x"}"#,
            r#"{"path": "x", "line": "a"}"#,
            r#"{"path": "/etc/", "line": "a"}"#,
            r#"{"path": "/etc/../x", "line": "a"}"#,
            r#"{"path": "/etc/x", "line": "a\nb"}"#,
            r#"{"path": "/etc/x", "line": "a", "match": "("}"#,
            r#"{"path": "/etc/x", "line": "a", "match": "b"}"#,
            r#"{"path": "/etc/x", "match": "b"}"#,
            r#"{"path": "/etc/x", "line": "a", "after": "b", "before": "c"}"#,
            r#"{"path": "/etc/x", "line": "a", "absent": true, "after": "b"}"#,
        ],
    ),
    (
        "block",
        &[
            r#"{"path": "/etc/x", "block": "a\nb"}"#,
            r#"{"path": "/etc/x", "block": "", "comment": "//", "before": "^end", "create": true, "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"path": "/etc/x"}"#,
            r#"{"path": "x", "block": "a"}"#,
            r#"{"path": "/etc/x", "block": "a", "comment": " "}"#,
            r#"{"path": "/etc/x", "block": "a", "after": "("}"#,
            r#"{"path": "/etc/x", "block": "a", "marker": "x"}"#,
        ],
    ),
    (
        "config-keys",
        &[
            r#"{"path": "/etc/x", "format": "ini", "set": {"a.b": "1", "c": ["", 2], "a.\"x.y\"": true}}"#,
            r#"{"path": "/etc/x", "format": "json", "set": {"a.b": {"c": null}}, "absent": ["d"], "create": true}"#,
            r#"{"path": "/etc/x", "format": "toml", "set": {"a": [1.5]}, "root": "/srv/host"}"#,
            r#"{"path": "/etc/x", "format": "properties", "set": {"a.b..c": "x\ny"}}"#,
            r#"{"path": "/etc/x", "format": "env", "absent": ["A_1"]}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"path": "/etc/x", "format": "ini"}"#,
            r#"{"path": "/etc/x", "set": {"a": 1}}"#,
            r#"{"path": "/etc/x", "format": "yaml", "set": {"a": 1}}"#,
            r#"{"path": "etc/x", "format": "ini", "set": {"a": 1}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a.b.c": 1}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a..c": 1}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a.b=c": 1}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": null}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": 1.5}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": []}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": [[1]]}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": {"b": 1}}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": " b"}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a": "b\nc"}}"#,
            r#"{"path": "/etc/x", "format": "ini", "set": {"a.b": 1}, "absent": ["a.\"b\""]}"#,
            r#"{"path": "/etc/x", "format": "json", "set": {"a.b": 1, "a": 1}}"#,
            r#"{"path": "/etc/x", "format": "toml", "set": {"a": {"b": null}}}"#,
            r#"{"path": "/etc/x", "format": "env", "set": {"a-b": 1}}"#,
            r#"{"path": "/etc/x", "format": "properties", "set": {"a": [1]}}"#,
        ],
    ),
    (
        "attributes",
        &[
            r#"{"path": "/srv/x", "mode": "0640"}"#,
            r#"{"path": "/srv/x", "owner": "app", "group": "7", "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"path": "/srv/x"}"#,
            r#"{"path": "srv/x", "mode": "0640"}"#,
            r#"{"path": "/srv/x", "mode": "rw"}"#,
            r#"{"path": "/srv/x", "mode": "64"}"#,
            r#"{"path": "/srv/x", "owner": "a b"}"#,
            r#"{"path": "/srv/x", "mode": "0640", "recurse": true}"#,
        ],
    ),
    (
        "absent",
        &[r#"{"path": "/etc/motd.d/ads"}"#, r#"{"path": "/srv/old/", "root": "/srv/host"}"#],
        &[
            "null",
            "{}",
            r#"{"path": "etc/x"}"#,
            r#"{"path": "/"}"#,
            r#"{"path": "/etc"}"#,
            r#"{"path": "/etc/../x"}"#,
            r#"{"path": "/etc/x", "root": "srv"}"#,
            r#"{"path": "/etc/x", "state": "absent"}"#,
        ],
    ),
    (
        "sysctl",
        &[
            r#"{"key": "net.ipv4.ip_forward", "value": 1}"#,
            r#"{"key": "net.ipv4.conf.eth0/100.forwarding", "value": "1", "persist": false, "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"key": "net.ipv4.ip_forward"}"#,
            r#"{"key": "../etc/passwd", "value": 1}"#,
            r#"{"key": "", "value": 1}"#,
            r#"{"key": "a.b", "value": ""}"#,
            r#"{"key": "a.b", "value": [1]}"#,
            r#"{"key": "a.b", "value": true}"#,
            r#"{"key": "a.b", "value": 1.5}"#,
            r#"{"key": "a.b", "value": 18446744073692774399}"#,
            r#"{"key": "a.b", "value": "1\u0007"}"#,
            r#"{"key": "a.b", "value": 1, "more": 1}"#,
        ],
    ),
    (
        "download",
        &[
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/srv/x"}"#,
            r#"{"urls": ["https://a:8443/x?y=1", "http://b/x"], "sha256": "SUM", "to": "/srv/x", "mode": "0755", "owner": "www", "group": "7"}"#,
            r#"{"url": "http://h/x", "checksum": "none", "to": "/srv/x", "proxy": "http://p:3128", "netrc": "/etc/cob/netrc", "max_size": "2G", "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"url": "https://h/x", "to": "/srv/x"}"#,
            r#"{"sha256": "SUM", "to": "/srv/x"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "checksum": "none", "to": "/srv/x"}"#,
            r#"{"url": "https://h/x", "checksum": "md5", "to": "/srv/x"}"#,
            r#"{"url": "https://h/x", "sha256": "abc", "to": "/srv/x"}"#,
            r#"{"url": "https://h/x", "urls": ["https://h/y"], "sha256": "SUM", "to": "/srv/x"}"#,
            r#"{"url": "ftp://h/x", "sha256": "SUM", "to": "/srv/x"}"#,
            r#"{"url": "https://me:pw@h/x", "sha256": "SUM", "to": "/srv/x"}"#,
            r#"{"url": "-o", "sha256": "SUM", "to": "/srv/x"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "srv/x"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/srv/../x"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/srv/x/"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "mode": "rwx"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "mode": 644}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "owner": ""}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "max_size": "big"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "proxy": "p"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "netrc": "netrc"}"#,
            r#"{"url": "https://h/x", "sha256": "SUM", "to": "/x", "more": 1}"#,
        ],
    ),
    (
        "kernel-module",
        &[
            r#"{"name": "br_netfilter"}"#,
            r#"{"name": "dummy", "options": {"numdummies": 2, "on": true, "x": "a,b"}, "root": "/srv/host"}"#,
            r#"{"name": "floppy", "blacklist": true}"#,
            r#"{"name": "loop", "persist": false}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"name": "../x"}"#,
            r#"{"name": "a b"}"#,
            r#"{"name": "a", "options": {"b": "1 c=2"}}"#,
            r#"{"name": "a", "options": ["b"]}"#,
            r#"{"name": "a", "options": {"b": 1.5}}"#,
            r#"{"name": "a", "blacklist": true, "options": {"b": 1}}"#,
            r#"{"name": "a", "blacklist": true, "persist": false}"#,
            r#"{"name": "a", "more": 1}"#,
        ],
    ),
    (
        "mount",
        &[
            r#"{"path": "/srv/data", "source": "UUID=1-2", "type": "ext4", "options": ["noatime", "errors=remount-ro"], "pass": 2}"#,
            r#"{"path": "/mnt/a b/", "source": "/srv/a b", "type": "bind", "options": ["ro"], "root": "/srv/host"}"#,
            r#"{"path": "/t", "source": "tmpfs", "type": "tmpfs"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"path": "/srv", "source": "/dev/sdb"}"#,
            r#"{"path": "srv", "source": "/dev/sdb", "type": "ext4"}"#,
            r#"{"path": "/", "source": "/dev/sdb", "type": "ext4"}"#,
            r#"{"path": "/a/../b", "source": "/dev/sdb", "type": "ext4"}"#,
            r#"{"path": "/a", "source": "-o", "type": "ext4"}"#,
            r#"{"path": "/a", "source": "/dev/sdb", "type": "ext 4"}"#,
            r#"{"path": "/a", "source": "/dev/sdb", "type": "ext4", "options": ["ro,noexec"]}"#,
            r#"{"path": "/a", "source": "/dev/sdb", "type": "ext4", "options": ["remount"]}"#,
            r#"{"path": "/a", "source": "/dev/sdb", "type": "ext4", "options": "ro"}"#,
            r#"{"path": "/a", "source": "/dev/sdb", "type": "ext4", "pass": 3}"#,
            r#"{"path": "/a", "source": "x", "type": "ramfs", "options": ["size=1m"]}"#,
            r#"{"path": "/a", "source": "/dev/sdb", "type": "ext4", "more": 1}"#,
        ],
    ),
    (
        "host-entry",
        &[r#"{"address": "10.0.0.1", "names": ["db.example.org", "db"]}"#, r#"{"address": "::1", "names": ["a"]}"#],
        &[
            "null",
            "{}",
            r#"{"address": "10.0.0.1"}"#,
            r#"{"address": "10.0.0.1", "names": []}"#,
            r#"{"address": "10.0.0.256", "names": ["a"]}"#,
            r#"{"address": "10.0.0.1", "names": ["a b"]}"#,
            r#"{"address": "10.0.0.1", "names": ["a"], "more": 1}"#,
        ],
    ),
    (
        "cron",
        &[
            r#"{"schedule": "30 4 * * 1-5", "command": "backup", "user": "backup", "env": {"MAILTO": "ops"}}"#,
            r#"{"schedule": "@daily", "command": "x", "name": "nightly"}"#,
            r#"{"schedule": "@daily", "command": "x", "env": {"MAILTO": "", "A": "'a' b", "B": "\""}}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"schedule": "@daily"}"#,
            r#"{"schedule": "4 * *", "command": "x"}"#,
            r#"{"schedule": "@sometimes", "command": "x"}"#,
            r#"{"schedule": "99 * * * *", "command": "x"}"#,
            r#"{"schedule": "a b c d e", "command": "x"}"#,
            r#"{"schedule": "@daily", "command": "x\ny"}"#,
            r#"{"schedule": "@daily", "command": "x\ry"}"#,
            r#"{"schedule": "@daily", "command": "x", "user": "a b"}"#,
            r#"{"schedule": "@daily", "command": "x", "env": {"A B": "x"}}"#,
            r#"{"schedule": "@daily", "command": "x", "env": {"A": "' \""}}"#,
            r#"{"schedule": "@daily", "command": "x", "name": "../x"}"#,
            r#"{"schedule": "@daily", "command": "x", "more": 1}"#,
        ],
    ),
    (
        "user",
        &[
            r#"{"name": "web"}"#,
            r#"{"name": "web", "uid": 777, "home": "/srv/web", "shell": "/bin/sh", "groups": ["ops"], "system": true}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"name": ""}"#,
            r#"{"name": "a:b"}"#,
            r#"{"name": "-r"}"#,
            r#"{"name": "web", "uid": -1}"#,
            r#"{"name": "web", "home": "srv"}"#,
            r#"{"name": "web", "comment": "a:b"}"#,
            r#"{"name": "web", "more": 1}"#,
        ],
    ),
    (
        "group",
        &[r#"{"name": "ops"}"#, r#"{"name": "ops", "gid": 777, "system": true}"#],
        &[
            "null",
            "{}",
            r#"{"name": ""}"#,
            r#"{"name": "a:b"}"#,
            r#"{"name": "o", "gid": "x"}"#,
            r#"{"name": "o", "more": 1}"#,
        ],
    ),
    (
        "authorized-key",
        &[
            r#"{"user": "ada", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK ada@laptop\n"}"#,
            r#"{"user": "Ada.L", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK", "options": "restrict,command=\"a b\"", "comment": "Ada", "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"user": "ada"}"#,
            r#"{"user": "ada", "key": ""}"#,
            r#"{"user": "a b", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK"}"#,
            r#"{"user": "ada", "key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----"}"#,
            r#"{"user": "ada", "key": "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK"}"#,
            r#"{"user": "ada", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYp"}"#,
            r#"{"user": "ada", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK", "options": "command=x"}"#,
            r#"{"user": "ada", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK", "comment": "a\nb"}"#,
            r#"{"user": "ada", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK", "root": "srv"}"#,
            r#"{"user": "ada", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK", "more": 1}"#,
        ],
    ),
    (
        "hostname",
        &[r#"{"name": "web1"}"#, r#"{"name": "Web-1.example.org", "root": "/srv/host"}"#],
        &[
            "null",
            "{}",
            r#"{"name": ""}"#,
            r#"{"name": "a b"}"#,
            r#"{"name": "-a"}"#,
            r#"{"name": "a."}"#,
            r#"{"name": "a_b"}"#,
            r#"{"name": "a12345678901234567890123456789012345678901234567890123456789012345"}"#,
            r#"{"name": "a", "root": "srv"}"#,
            r#"{"name": "a", "more": 1}"#,
        ],
    ),
    (
        "timezone",
        &[r#"{"zone": "Europe/Berlin"}"#, r#"{"zone": "Etc/GMT+5", "root": "/srv/host"}"#],
        &[
            "null",
            "{}",
            r#"{"zone": ""}"#,
            r#"{"zone": "/etc/passwd"}"#,
            r#"{"zone": "../Europe/Berlin"}"#,
            r#"{"zone": "Europe/"}"#,
            r#"{"zone": "Europe/New York"}"#,
            r#"{"zone": 1}"#,
            r#"{"zone": "UTC", "root": "srv"}"#,
            r#"{"zone": "UTC", "more": 1}"#,
        ],
    ),
    (
        "alternative",
        &[
            r#"{"name": "editor", "path": "/usr/bin/vim.basic"}"#,
            r#"{"name": "x-www-browser", "path": "/usr/bin/w3m", "root": "/srv/host"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"name": "editor"}"#,
            r#"{"name": "", "path": "/bin/ed"}"#,
            r#"{"name": "-x", "path": "/bin/ed"}"#,
            r#"{"name": "../x", "path": "/bin/ed"}"#,
            r#"{"name": "editor", "path": "ed"}"#,
            r#"{"name": "editor", "path": "/bin/ed\n"}"#,
            r#"{"name": "editor", "path": "/bin/ed", "root": "srv"}"#,
            r#"{"name": "editor", "path": "/bin/ed", "more": 1}"#,
        ],
    ),
    (
        "apt-source",
        &[
            r#"{"name": "tools", "uris": ["https://h/debian"], "suites": ["bookworm"], "components": ["main"]}"#,
            r#"{"name": "t.1-x", "uris": ["file:/srv/repo", "http://h/"], "suites": ["./"], "architectures": ["amd64"], "root": "/srv/host"}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["a"], "components": ["b"], "key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEaA==\n-----END PGP PUBLIC KEY BLOCK-----\n"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"name": "t", "uris": [], "suites": ["./"]}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": []}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["a"]}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["./"], "components": ["main"]}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["./", "a"]}"#,
            r#"{"name": "../t", "uris": ["http://h"], "suites": ["./"]}"#,
            r#"{"name": "t t", "uris": ["http://h"], "suites": ["./"]}"#,
            r#"{"name": "t", "uris": ["h"], "suites": ["./"]}"#,
            r#"{"name": "t", "uris": ["http://h /x"], "suites": ["./"]}"#,
            r#"{"name": "t", "uris": ["http://h\nEnabled: no"], "suites": ["./"]}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["./"], "key": "mDMEaA=="}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["./"], "key": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n-----END PGP PRIVATE KEY BLOCK-----"}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["./"], "root": "srv"}"#,
            r#"{"name": "t", "uris": ["http://h"], "suites": ["./"], "more": 1}"#,
        ],
    ),
    (
        "wait",
        &[r#"{"seconds": 5}"#, r#"{"ms": 20}"#, r#"{"seconds": 0}"#, r#"{"seconds": 604800}"#, r#"{"ms": 604800000}"#],
        &[
            "null",
            "{}",
            r#"{"seconds": 5, "ms": 5}"#,
            r#"{"seconds": -1}"#,
            r#"{"seconds": 604801}"#,
            r#"{"ms": 604800001}"#,
            r#"{"ms": 1.5}"#,
            r#"{"ms": "20"}"#,
            r#"{"seconds": true}"#,
            r#"{"second": 5}"#,
            r#"{"seconds": 5, "more": 1}"#,
            "[5]",
            "5",
        ],
    ),
    (
        "tcp-check",
        &[
            r#"{"address": "127.0.0.1:5432"}"#,
            r#"{"address": "db.example:1", "interval": "100ms", "timeout": "3s"}"#,
            r#"{"address": "[::1]:65535", "timeout": "168h"}"#,
            r#"{"address": "h:80", "interval": "0s"}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"address": "127.0.0.1"}"#,
            r#"{"address": ":80"}"#,
            r#"{"address": "h:0"}"#,
            r#"{"address": "h:65536"}"#,
            r#"{"address": "h:http"}"#,
            r#"{"address": "http://h:80"}"#,
            r#"{"address": "a/b:80"}"#,
            r#"{"address": 80}"#,
            r#"{"address": ["h:80"]}"#,
            r#"{"address": "h:80", "port": 80}"#,
            r#"{"address": "h:80", "interval": "soon"}"#,
            r#"{"address": "h:80", "interval": "-1s"}"#,
            r#"{"address": "h:80", "timeout": "169h"}"#,
            r#"{"address": "h:80", "timeout": []}"#,
        ],
    ),
    (
        "http-check",
        &[
            r#"{"url": "http://127.0.0.1:80/"}"#,
            r#"{"url": "http://h"}"#,
            r#"{"url": "http://[::1]:80/a?b=c", "status": 204, "contains": "ok", "interval": "1s", "timeout": "1m"}"#,
            r#"{"url": "http://h/", "status": 100}"#,
            r#"{"url": "http://h/", "status": 599, "contains": ""}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"url": "https://h/"}"#,
            r#"{"url": "h:80"}"#,
            r#"{"url": "http://"}"#,
            r#"{"url": "http:///path"}"#,
            r#"{"url": "http://:80/"}"#,
            r#"{"url": "http://a b/"}"#,
            r#"{"url": "http://user@h/"}"#,
            r#"{"url": "http://user:word@h/"}"#,
            r#"{"url": "http://h:port/"}"#,
            r#"{"url": "http://h/", "status": 99}"#,
            r#"{"url": "http://h/", "status": 600}"#,
            r#"{"url": "http://h/", "status": "200"}"#,
            r#"{"url": "http://h/", "contains": 1}"#,
            r#"{"url": "http://h/", "method": "HEAD"}"#,
            r#"{"url": "http://h/", "timeout": "1 week"}"#,
        ],
    ),
    (
        "noop",
        &["null", "{}", r#"{"exports": {}}"#, r#"{"exports": {"port": 80, "all": [1, "x", null], "m": {"n": true}}}"#],
        &[r#"{"exports": []}"#, r#"{"exports": "port"}"#, r#"{"export": {}}"#, r#"{"seconds": 1}"#, "[]", r#""text""#],
    ),
    (
        "service",
        &[
            r#"{"start": "sleep 5"}"#,
            r#"{"start": ["sleep", "5"], "stop": "true", "status": "true", "ready": ["true"], "settle": "0s"}"#,
            r#"{"start": "sleep 5", "dir": "/srv/app", "env": {"A": "b"}, "exports": {"port": 80}}"#,
        ],
        &[
            "null",
            "{}",
            r#"{"stop": "true"}"#,
            r#"{"start": 5}"#,
            r#"{"start": [5]}"#,
            r#"{"start": {"run": "sleep 5"}}"#,
            r#"{"start": "sleep 5", "status": "true"}"#,
            r#"{"start": "sleep 5", "dir": "srv/app"}"#,
            r#"{"start": "sleep 5", "dir": ""}"#,
            r#"{"start": "sleep 5", "env": {"COB_ID": "x"}}"#,
            r#"{"start": "sleep 5", "env": {"A=B": "x"}}"#,
            r#"{"start": "sleep 5", "env": {"": "x"}}"#,
            r#"{"start": "sleep 5", "env": {"A": ["x"]}}"#,
            r#"{"start": "sleep 5", "env": ["A"]}"#,
            r#"{"start": "sleep 5", "exports": ["port"]}"#,
            r#"{"start": "sleep 5", "settle": "200h"}"#,
            r#"{"start": "sleep 5", "stopp": "true"}"#,
        ],
    ),
];

#[test]
fn contents_are_accepted_or_refused() {
    let mut wrong = Vec::new();
    for (kind, good, bad) in TABLE {
        let entry = cob_kinds::find(kind).expect("a kind");
        let read = |content: &str| {
            let content: Value = serde_json::from_str(&content.replace("SUM", &"0a".repeat(32))).expect("JSON");
            entry.check(&content).and_then(|faults| faults.first())
        };
        wrong.extend(good.iter().filter_map(|content| Some(format!("{kind} {content}: {}", read(content).err()?))));
        wrong.extend(bad.iter().filter(|content| read(content).is_ok()).map(|content| format!("{kind} {content}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_kind_with_a_content_type_has_a_row() {
    let in_table = |name: &str| TABLE.iter().any(|(kind, ..)| *kind == name);
    let missing = cob_kinds::ALL.iter().filter(|entry| entry.schema().is_some() && !in_table(entry.kind.name));
    // Budgets are not written by hand.
    assert_eq!(missing.map(|entry| entry.kind.name).collect::<Vec<_>>(), ["budget"], "others need a row");
}

#[test]
fn every_key_is_documented() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kinds");
    let pages = std::fs::read_dir(folder).expect("the folder").map(|page| page.expect("an entry").path());
    let pages: Vec<String> = pages.map(|page| std::fs::read_to_string(page).expect("a page")).collect();
    let mut missing = Vec::new();
    for entry in cob_kinds::ALL.iter().filter(|entry| entry.kind.name != "budget") {
        let kind = format!("kind: {}", entry.kind.name);
        let text: String = pages.iter().filter(|page| page.contains(&kind)).map(String::as_str).collect();
        let schema = entry.schema().unwrap_or_default();
        let keys = schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key);
        missing.extend(keys.filter(|key| !text.contains(&format!("`{key}`"))).map(|key| format!("{kind}: {key}")));
    }
    assert_eq!(missing, [""; 0]);
}

//! Observe mode compares effects, no matter who wrote a setting and how.

use std::fs;

use cob_types::Cob;

use super::tests::{content, host, setting};
use crate::kinds::testing::Bench;

/// A kind, a content's keys, files of others, and whether they have the effect.
type Written<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], bool);

const PARAMETER: &str = r#""key":"net.ipv4.ip_forward","value":1"#;
const TABLE: &str = r#""path":"/srv/obs","source":"tmpfs","type":"tmpfs","options":["size=1m","ro"]"#;
const NAMES: &str = r#""address":"10.9.9.9","names":["db.example.org","db"]"#;
const EXPORT: &str = r#""path":"/srv/x","clients":{"10.0.0.0/8":["rw"],"*":["ro"]}"#;
const JOB: &str = r#""schedule":"30 4 * * *","command":"backup --all","env":{"MAILTO":"ops"}"#;

#[tokio::test]
async fn an_observed_setting_of_others_counts_by_its_effect() {
    let written: [Written<'_>; 30] = [
        ("sysctl", PARAMETER, &[("etc/sysctl.d/99-mine.conf", "-net/ipv4/ip_forward=1\n")], true),
        ("sysctl", PARAMETER, &[("etc/sysctl.d/99-mine.conf", "net.ipv4.ip_forward = 0\n")], false),
        ("sysctl", PARAMETER, &[("usr/lib/sysctl.d/10-a.conf", "net.ipv4.ip_forward = 1\n")], true),
        (
            "sysctl",
            PARAMETER,
            &[
                ("usr/lib/sysctl.d/10-a.conf", "net.ipv4.ip_forward = 1\n"),
                ("etc/sysctl.d/20-b.conf", "net.ipv4.ip_forward = 0\n"),
            ],
            false,
        ),
        ("mount", TABLE, &[("etc/fstab", "tmpfs\t/srv/obs/  tmpfs ro,size=1m\n")], true),
        ("mount", TABLE, &[("etc/fstab", "tmpfs /srv/obs tmpfs defaults,size=1m,ro 1 0\n")], true),
        ("mount", TABLE, &[("etc/fstab", "tmpfs /srv/obs tmpfs size=1m 0 0\n")], false),
        ("mount", TABLE, &[("etc/fstab", "tmpfs /srv/obs tmpfs size=1m,ro 0 2\n")], false),
        ("mount", TABLE, &[("etc/fstab", "other /srv/obs tmpfs size=1m,ro 0 0\n")], false),
        ("host-entry", NAMES, &[("etc/hosts", "10.9.9.9\tdb db.example.org # mine\n")], true),
        ("host-entry", NAMES, &[("etc/hosts", "10.9.9.9 db\nfd00::1 db\n10.9.9.9 db.example.org\n")], true),
        ("host-entry", NAMES, &[("etc/hosts", "10.9.9.8 db\n10.9.9.9 db.example.org db\n")], false),
        ("host-entry", NAMES, &[("etc/hosts", "10.9.9.9 db\n# 10.9.9.9 db.example.org\n")], false),
        ("kernel-module", r#""name":"br_netfilter""#, &[("etc/modules-load.d/k8s.conf", "br-netfilter\n")], true),
        ("kernel-module", r#""name":"br_netfilter""#, &[("etc/modules", "br_netfilter\n")], true),
        ("kernel-module", r#""name":"br_netfilter""#, &[("etc/modules", "bridge\n")], false),
        (
            "kernel-module",
            r#""name":"loop","options":{"max_loop":64}"#,
            &[("etc/modules", "loop\n"), ("etc/modprobe.d/mine.conf", "options loop max_part=1  max_loop=64\n")],
            true,
        ),
        (
            "kernel-module",
            r#""name":"loop","options":{"max_loop":64}"#,
            &[("etc/modules", "loop\n"), ("etc/modprobe.d/mine.conf", "options loop max_loop=6\n")],
            false,
        ),
        (
            "kernel-module",
            r#""name":"floppy","blacklist":true"#,
            &[("etc/modprobe.d/mine.conf", "blacklist floppy\n")],
            true,
        ),
        (
            "kernel-module",
            r#""name":"floppy","blacklist":true"#,
            &[("etc/modprobe.d/mine.conf", "blacklist floppy\n"), ("etc/modules", "floppy\n")],
            false,
        ),
        ("cron", JOB, &[("etc/cron.d/mine", "MAILTO=ops\n30  4 * * *\troot backup --all\n")], true),
        ("cron", JOB, &[("etc/crontab", "MAILTO = \"ops\"\n@daily root x\n30 4 * * * root backup --all\n")], true),
        ("cron", JOB, &[("etc/cron.d/mine", "30 4 * * * root backup --all\n")], false),
        ("cron", JOB, &[("etc/cron.d/mine", "MAILTO=ops\n30 4 * * * ada backup --all\n")], false),
        ("cron", JOB, &[("etc/cron.d/mine.old", "MAILTO=ops\n30 4 * * * root backup --all\n")], false),
        ("nfs-export", EXPORT, &[("etc/exports", "/srv/x *(ro,sync) 10.0.0.0/8(rw)\n")], true),
        ("nfs-export", EXPORT, &[("etc/exports.d/a.exports", "\"/srv/x\" -sync * 10.0.0.0/8(rw)\n")], true),
        ("nfs-export", EXPORT, &[("etc/exports", "/srv/x *(ro) 10.0.0.0/8(rw,async)\n")], false),
        ("nfs-export", EXPORT, &[("etc/exports.d/a", "/srv/x *(ro) 10.0.0.0/8(rw)\n")], false),
        ("cron", JOB, &[("etc/cron.d/mine", "#MAILTO=ops\n#30 4 * * * root backup --all\n")], false),
    ];
    for (kind, keys, files, has_effect) in written {
        let host = host(files);
        fs::create_dir_all(host.path().join("etc")).expect("made");
        let mut bench = Bench::new();
        let context = bench.context(&setting(kind), &content(host.path(), keys));
        let observed = Cob { observe: true, ..(*context.cob).clone() };
        let context = crate::kinds::Context { cob: std::sync::Arc::new(observed), ..context };
        let outcome = bench.check(&context).await;
        let state = outcome.state.expect("known").to_string();
        assert_eq!(state == "present", has_effect, "{kind} {files:?}: {}", outcome.difference);
    }
}

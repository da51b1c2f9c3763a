//! Facts about this host, from files of the kernel and the distribution.
//!
//! The module executes no program and changes no file; an unreadable fact stays empty.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use cob_types::facts::{Disk, Distribution, HostFacts, Interface};

/// The size of a sector in `/sys/block`, regardless of the disk's own.
const SECTOR: u64 = 512;
/// Block devices that are no disks of the machine: loops, memory, drives for media.
const NO_DISKS: [&str; 7] = ["loop", "ram", "zram", "sr", "fd", "nbd", "dm-"];

/// The facts of the host whose files are below `root`.
#[must_use]
pub fn collect(root: &Path) -> HostFacts {
    let of = |file: &str| text(root, file);
    let memory = of("proc/meminfo");
    HostFacts {
        hostname: of("proc/sys/kernel/hostname"),
        cpus: count(&of("sys/devices/system/cpu/online")),
        architecture: std::env::consts::ARCH.to_owned(),
        memory_bytes: kibibytes(&memory, "MemTotal:"),
        swap_bytes: kibibytes(&memory, "SwapTotal:"),
        disks: disks(root),
        distribution: distribution(root),
        kernel: of("proc/sys/kernel/osrelease"),
        addresses: addresses(&of("proc/net/fib_trie"), &of("proc/net/if_inet6")),
        interfaces: interfaces(root),
    }
}

/// A file's text without blanks around it; empty if it can't be read.
fn text(root: &Path, file: &str) -> String {
    fs::read(root.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).unwrap_or_default()
}

/// The number of members of a list like `0-3,8`.
fn count(list: &str) -> u32 {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let part = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(number(last)?.checked_sub(number(first)?)?.saturating_add(1)),
        None => number(part).map(|_| 1),
    };
    list.split(',').filter_map(part).fold(0, u32::saturating_add)
}

fn kibibytes(memory: &str, key: &str) -> u64 {
    let line = memory.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or_default().saturating_mul(1024)
}

/// The names in a folder, sorted.
fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn disks(root: &Path) -> BTreeMap<String, Disk> {
    let is_disk = |name: &String| !NO_DISKS.iter().any(|no| name.starts_with(no));
    let disk = |name: String| {
        let of = |file: &str| text(root, &format!("sys/block/{name}/{file}"));
        let bytes = of("size").parse::<u64>().unwrap_or_default().saturating_mul(SECTOR);
        let disk = Disk { bytes, rotational: of("queue/rotational") == "1", model: of("device/model") };
        (bytes > 0).then_some((name, disk))
    };
    names(root, "sys/block").into_iter().filter(is_disk).filter_map(disk).collect()
}

fn interfaces(root: &Path) -> BTreeMap<String, Interface> {
    let interface = |name: String| {
        let of = |file: &str| text(root, &format!("sys/class/net/{name}/{file}"));
        let mac = of("address");
        let interface = Interface { mtu: of("mtu").parse().unwrap_or_default(), mac };
        (name != "lo" && interface.mtu > 0).then_some((name, interface))
    };
    names(root, "sys/class/net").into_iter().filter_map(interface).collect()
}

fn distribution(root: &Path) -> Distribution {
    let own = text(root, "etc/os-release");
    let told = if own.is_empty() { text(root, "usr/lib/os-release") } else { own };
    let value = |key: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        unquoted(line.unwrap_or_default())
    };
    Distribution {
        id: value("ID"),
        version: value("VERSION_ID"),
        codename: value("VERSION_CODENAME"),
        name: value("PRETTY_NAME"),
        like: value("ID_LIKE").split_whitespace().map(str::to_owned).collect(),
    }
}

/// A value as a shell would read it, limited to quotes and backslashes.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let inner = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    let mut plain = String::new();
    let mut chars = inner.unwrap_or(value).chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    plain
}

/// All addresses of this host, from the kernel's tables.
fn addresses(fib_trie: &str, if_inet6: &str) -> Vec<String> {
    let mut found: Vec<IpAddr> = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.filter(|a| !a.is_loopback()).map(IpAddr::V4));
        }
    }
    for line in if_inet6.lines() {
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|digits| u128::from_str_radix(digits, 16).ok());
        // Of global scope, not of a link or of this machine alone.
        let is_global = words.nth(2) == Some("00");
        found.extend(address.filter(|_| is_global).map(|bits| IpAddr::V6(Ipv6Addr::from(bits))));
    }
    found.sort();
    found.dedup();
    found.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 4\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.0.0.0/24 2 0 2\n        |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.17\n           /32 host LOCAL\n        |-- 10.0.0.255\n           /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n        |-- 10.0.0.17\n           /32 host LOCAL\n        |-- 10.0.0.3\n           /32 host LOCAL\n";
    const INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo\nfe800000000000000042acfffe110002 02 40 20 80     eth0\nfd000000000000000000000000000017 02 40 00 80     eth0\n";

    #[test]
    fn a_host_is_read_from_its_files() {
        let root = host(&[
            ("proc/sys/kernel/hostname", "db1\n"),
            ("proc/sys/kernel/osrelease", "6.12.0\n"),
            ("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\nSwapTotal:  1024 kB\n"),
            ("sys/devices/system/cpu/online", "0-3,8\n"),
            ("sys/block/sda/size", "2048\n"),
            ("sys/block/sda/queue/rotational", "1\n"),
            ("sys/block/sda/device/model", "FAST DISK   \n"),
            ("sys/block/loop0/size", "2048\n"),
            ("sys/block/sdb/size", "0\n"),
            ("sys/class/net/eth0/address", "02:42:ac:11:00:02\n"),
            ("sys/class/net/eth0/mtu", "1500\n"),
            ("sys/class/net/lo/mtu", "65536\n"),
            ("proc/net/fib_trie", TRIE),
            ("proc/net/if_inet6", INET6),
            (
                "etc/os-release",
                "PRETTY_NAME=\"Rocky \\\"9\\\"\"\nID=rocky\nVERSION_ID='9.4'\nID_LIKE=\"rhel fedora\"\nVERSION=\"x\"\n",
            ),
        ]);
        let facts = collect(root.path());
        assert_eq!((facts.hostname.as_str(), facts.kernel.as_str(), facts.cpus), ("db1", "6.12.0", 5));
        assert_eq!((facts.memory_bytes, facts.swap_bytes), (16 << 20, 1 << 20));
        let disk = Disk { bytes: 1 << 20, rotational: true, model: "FAST DISK".to_owned() };
        assert_eq!(facts.disks, BTreeMap::from([("sda".to_owned(), disk)]));
        assert_eq!(facts.addresses, ["10.0.0.3", "10.0.0.17", "fd00::17"]);
        assert_eq!(facts.interfaces["eth0"], Interface { mac: "02:42:ac:11:00:02".to_owned(), mtu: 1500 });
        assert_eq!(facts.interfaces.len(), 1);
        let Distribution { id, version, name, like, codename } = facts.distribution;
        assert_eq!(
            (id.as_str(), version.as_str(), name.as_str(), codename.as_str()),
            ("rocky", "9.4", "Rocky \"9\"", "")
        );
        assert_eq!(like, ["rhel", "fedora"]);
    }

    #[test]
    fn a_missing_fact_is_left_empty() {
        let facts =
            collect(host(&[("usr/lib/os-release", "ID=alpine\n"), ("proc/meminfo", "MemTotal: x kB\n")]).path());
        assert_eq!((facts.cpus, facts.memory_bytes, facts.distribution.id.as_str()), (0, 0, "alpine"));
        assert_eq!((count("0-x,,3-1"), count("7"), count("")), (0, 1, 0));
    }

    #[test]
    fn the_facts_of_this_machine_are_collected() {
        let facts = collect(Path::new("/"));
        assert!(facts.cpus > 0 && facts.memory_bytes > 0 && !facts.kernel.is_empty(), "{facts:?}");
    }
}

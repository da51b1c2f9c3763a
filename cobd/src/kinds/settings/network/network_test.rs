//! Files of systemd-networkd in a folder that stands for a host. The bed tries running hosts.

use std::fs;

use cob_kinds::Interface;

use super::super::tests::{content, host, moved, read, setting};
use super::{link, text};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

fn files(content: &str) -> Vec<(String, String)> {
    let content: Interface = cob_kinds::read(content).expect("good");
    let files = text::files(&content);
    assert_eq!(files.iter().map(|(file, _)| file.clone()).collect::<Vec<_>>(), content.files());
    files.into_iter().map(|(file, text)| (file.replace("/etc/systemd/network/10-cob-", ""), text)).collect()
}

#[test]
fn a_content_becomes_files() {
    let all = files(
        r#"{"interface": "eth0", "addresses": ["10.0.0.2/24", "fd00::2/64"], "gateways": ["10.0.0.1"], "mtu": 9000,
            "accept_ra": false, "dns": ["10.0.0.53"], "domains": ["a.example", "~b.example"],
            "routes": [{"to": "10.9.0.0/16", "via": "10.0.0.9", "metric": 7}]}"#,
    );
    let expected = "# Written by cobd.\n[Match]\nName=eth0\n\n[Link]\nMTUBytes=9000\n\n[Network]\n\
        ConfigureWithoutCarrier=yes\nIPv6AcceptRA=no\nAddress=10.0.0.2/24\nAddress=fd00::2/64\nGateway=10.0.0.1\n\
        DNS=10.0.0.53\nDomains=a.example ~b.example\n\n[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\nMetric=7\n";
    assert_eq!(all, [("eth0.network".to_owned(), expected.to_owned())]);
    let names =
        |content: &str| files(content).into_iter().map(|(file, text)| format!("{file}\n{text}")).collect::<String>();
    let vlan = names(r#"{"interface": "v5", "vlan": {"id": 5, "on": "eth0"}, "dhcp": "both"}"#);
    assert!(vlan.contains("v5.netdev\n# Written by cobd.\n[NetDev]\nName=v5\nKind=vlan\n\n[VLAN]\nId=5\n"), "{vlan}");
    assert!(vlan.contains("eth0.network.d/v5.conf\n# Written by cobd.\n[Network]\nVLAN=v5\n"), "{vlan}");
    assert!(vlan.contains("[Network]\nDHCP=yes\n") && !vlan.contains("Carrier"), "{vlan}");
    let bridge = names(r#"{"interface": "br0", "bridge": {"ports": ["eth1"], "stp": true}}"#);
    assert!(bridge.contains("Kind=bridge\n\n[Bridge]\nSTP=yes\n"), "{bridge}");
    assert!(
        bridge.contains("eth1.network\n# Written by cobd.\n[Match]\nName=eth1\n\n[Network]\nBridge=br0\n"),
        "{bridge}"
    );
    let bond = names(r#"{"interface": "bond0", "bond": {"ports": ["eth1", "eth2"], "mode": "802.3ad"}}"#);
    assert!(bond.contains("Kind=bond\n\n[Bond]\nMode=802.3ad\nMIIMonitorSec=100ms\n"), "{bond}");
    assert!(bond.contains("Name=eth2\n\n[Network]\nBond=bond0\n"), "{bond}");
}

#[tokio::test]
async fn interfaces_keep_the_contract() {
    let planted = [("etc/systemd/network/10-cob-eth0.network", "[Match]\r\nName=eth0 # theirs, without an end")];
    for files in [&[][..], &planted] {
        let host = host(files);
        for (own, other) in [
            (r#""interface":"eth0","addresses":["10.0.0.2/24"]"#, r#""interface":"eth0","dhcp":"ipv4""#),
            (r#""interface":"eth0","mtu":1400"#, r#""interface":"eth1","addresses":["fd00::1/64"]"#),
            (
                r#""interface":"br0","bridge":{"ports":["eth0","eth1"]}"#,
                r#""interface":"br0","bridge":{"ports":["eth1"],"stp":false}"#,
            ),
        ] {
            let case = Case::new(setting("network"), &content(host.path(), own)).other(&content(host.path(), other));
            holds(&case.watching(host.path()).kills(2), &[]).await;
        }
    }
}

#[tokio::test]
async fn a_port_that_leaves_a_bridge_has_its_earlier_file_again() {
    let theirs = "[Match]\nName=eth2\n";
    let host = host(&[("etc/systemd/network/10-cob-eth2.network", theirs)]);
    let file = |name: &str| host.path().join(format!("etc/systemd/network/10-cob-{name}.network"));
    let mut bench = Bench::new();
    let with = |ports: &str| content(host.path(), &format!(r#""interface":"br0","bridge":{{"ports":[{ports}]}}"#));
    let both = bench.context(&setting("network"), &with(r#""eth1","eth2""#));
    moved(&mut bench, &both, "absent", "present").await;
    assert!(read(file("eth2")).contains("Bridge=br0"));
    let single = bench.context(&setting("network"), &with(r#""eth3""#));
    moved(&mut bench, &single, "outdated", "present").await;
    assert_eq!((read(file("eth2")).as_str(), file("eth1").exists(), file("eth3").exists()), (theirs, false, true));
    // Drift of a file that the content does not name any more.
    fs::write(file("eth2"), "[Match]\nName=eth2\n[Network]\nBridge=br0\n").expect("written");
    moved(&mut bench, &single, "outdated", "present").await;
    moved(&mut bench, &single, "present", "absent").await;
    assert_eq!((read(file("eth2")).as_str(), file("eth1").exists(), file("br0").exists()), (theirs, false, false));
}

#[tokio::test]
async fn a_vlan_needs_the_interface_below_it() {
    let host = host(&[]);
    let mut bench = Bench::new();
    let keys = content(host.path(), r#""interface":"v5","vlan":{"id":5,"on":"eth0"}"#);
    let vlan = bench.context(&setting("network"), &keys);
    let why = reason(bench.transition(&vlan, "absent", "present").await);
    assert!(why.contains("VLAN on eth0, which no change object configures"), "{why}");
    fs::create_dir_all(host.path().join("etc/systemd/network")).expect("made");
    fs::write(host.path().join("etc/systemd/network/10-cob-eth0.network"), "[Match]\n").expect("written");
    moved(&mut bench, &vlan, "outdated", "present").await;
    moved(&mut bench, &vlan, "present", "absent").await;
    assert!(!host.path().join("etc/systemd/network/10-cob-eth0.network.d").exists());
}

#[test]
fn interfaces_of_the_kernel_are_read() {
    if !crate::kinds::native::has_program("ip") {
        return eprintln!("skipped: there is no ip");
    }
    let loopback = link::find("lo").expect("read").expect("each host has it");
    assert!(loopback.mtu > 0 && link::find("no-such-link").expect("read").is_none());
}

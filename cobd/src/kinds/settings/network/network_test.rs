//! Files in a folder that stands for a host, and outputs of programs. The bed tries running hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cob_kinds::{By, Interface};

use super::super::tests::{content, host, moved, read, setting, spec_in};
use super::network_manager::Device;
use super::{NetworkSetting, ifupdown, link, program};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

fn files_by(by: By, content: &str) -> Vec<(String, String)> {
    let content: Interface = cob_kinds::read(content).expect("good");
    let files = program(by).files(&content);
    assert_eq!(files.iter().map(|(file, _)| file.clone()).collect::<Vec<_>>(), content.files(by));
    assert!(files.iter().all(|(file, _)| By::of_file(file) == Some(by)));
    files
}

fn files(content: &str) -> Vec<(String, String)> {
    let files = files_by(By::Networkd, content).into_iter();
    files.map(|(file, text)| (file.replace("/etc/systemd/network/10-cob-", ""), text)).collect()
}

/// The text of all files of a program, with the folder and the identity left out.
fn text_by(by: By, content: &str) -> String {
    let text = files_by(by, content).into_iter().map(|(file, text)| format!("== {file}\n{text}")).collect::<String>();
    let lines = text.lines().filter(|line| !line.starts_with("uuid=") && *line != "# Written by cobd.");
    lines.map(|line| format!("{line}\n")).collect::<String>().replace("/etc/NetworkManager/system-connections/", "")
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

const SERVER: &str = r#"{"interface": "eth0", "addresses": ["10.0.0.2/24", "10.1.0.2/24", "fd00::2/64"],
    "gateways": ["10.1.0.1"], "mtu": 9000, "accept_ra": false, "dns": ["10.0.0.53", "::53"], "domains": ["a.example"],
    "routes": [{"to": "10.9.0.0/16", "via": "10.0.0.9", "metric": 7}, {"to": "fd09::/64", "via": "fd00::9"}]}"#;

#[test]
fn a_content_becomes_connections_of_network_manager() {
    let by = |content: &str| text_by(By::NetworkManager, content);
    let expected = "== cob-eth0.nmconnection\n[connection]\nid=cob-eth0\ntype=ethernet\ninterface-name=eth0\n\
        autoconnect-priority=999\n\n[ethernet]\nmtu=9000\n\n[ipv4]\nmethod=manual\naddress1=10.0.0.2/24\n\
        address2=10.1.0.2/24\ngateway=10.1.0.1\ndns=10.0.0.53;\ndns-search=a.example;\n\
        route1=10.9.0.0/16,10.0.0.9,7\n\n[ipv6]\nmethod=manual\naddress1=fd00::2/64\ndns=::53;\n\
        dns-search=a.example;\nroute1=fd09::/64,fd00::9\n";
    assert_eq!(by(SERVER), expected);
    let methods = |keys: &str| {
        let text = by(&format!(r#"{{"interface": "eth0"{keys}}}"#));
        text.lines().filter_map(|line| line.strip_prefix("method=")).collect::<Vec<_>>().join(" ")
    };
    let cases = [
        ("", "disabled link-local"),
        (r#", "dhcp": "both""#, "auto auto"),
        (r#", "dhcp": "ipv4", "accept_ra": false"#, "auto link-local"),
        (r#", "dhcp": "ipv6", "accept_ra": false"#, "disabled dhcp"),
        (r#", "addresses": ["10.0.0.2/24"]"#, "manual auto"),
        (r#", "addresses": ["fd00::2/64"]"#, "disabled manual"),
        (r#", "addresses": ["fd00::2/64"], "accept_ra": true"#, "disabled auto"),
    ];
    for (keys, expected) in cases {
        assert_eq!(methods(keys), expected, "{keys}");
    }
    let bond = by(r#"{"interface": "bond0", "bond": {"ports": ["eth1"], "mode": "802.3ad"}}"#);
    assert!(bond.contains("type=bond\n") && bond.contains("\n[bond]\nmiimon=100\nmode=802.3ad\n"), "{bond}");
    assert!(
        bond.contains("== cob-eth1.nmconnection\n") && bond.ends_with("\nmaster=bond0\nslave-type=bond\n"),
        "{bond}"
    );
    let bridge = by(r#"{"interface": "br0", "bridge": {"stp": true}}"#);
    assert!(bridge.contains("type=bridge\n") && bridge.contains("\n[bridge]\nstp=true\n"), "{bridge}");
    let vlan = by(r#"{"interface": "v5", "vlan": {"id": 5, "on": "eth0"}}"#);
    assert!(vlan.contains("type=vlan\n") && vlan.contains("\n[vlan]\nid=5\nparent=eth0\n"), "{vlan}");
}

#[test]
fn each_interface_has_its_own_identity() {
    let uuid = |interface: &str| {
        let text = files_by(By::NetworkManager, &format!(r#"{{"interface": "{interface}"}}"#)).remove(0).1;
        text.lines().find_map(|line| line.strip_prefix("uuid=")).expect("it has one").to_owned()
    };
    let (one, other) = (uuid("eth0"), uuid("eth1"));
    assert_eq!((one.len(), one.split('-').count(), one.as_bytes()[14]), (36, 5, b'5'), "{one}");
    assert!(one != other && one == uuid("eth0"));
}

#[test]
fn a_content_becomes_lines_of_ifupdown() {
    let by = |content: &str| text_by(By::Ifupdown, content).replace("/etc/network/interfaces.d/", "");
    let expected = "== cob-eth0\nauto eth0\niface eth0 inet static\n    address 10.0.0.2/24\n    \
        pre-up ip link set dev eth0 mtu 9000\n    dns-nameservers 10.0.0.53 ::53\n    dns-search a.example\n\
        iface eth0 inet static\n    address 10.1.0.2/24\n    gateway 10.1.0.1\niface eth0 inet6 static\n    \
        address fd00::2/64\n    dad-attempts 0\n    accept_ra 0\n    \
        up ip route replace 10.9.0.0/16 via 10.0.0.9 dev eth0 metric 7\n    \
        up ip route replace fd09::/64 via fd00::9 dev eth0\n";
    assert_eq!(by(SERVER), expected);
    let dhcp = by(r#"{"interface": "eth0", "dhcp": "both", "addresses": ["10.0.0.2/24"]}"#);
    let expected = "== cob-eth0\nauto eth0\niface eth0 inet dhcp\niface eth0 inet static\n    address 10.0.0.2/24\n\
        iface eth0 inet6 dhcp\n";
    assert_eq!(dhcp, expected);
    assert!(by(r#"{"interface": "eth0", "accept_ra": true}"#).ends_with("iface eth0 inet6 auto\n"));
    let bridge =
        by(r#"{"interface": "br0", "bridge": {"ports": ["eth1"], "stp": true}, "addresses": ["10.0.0.2/24"]}"#);
    let expected = "== cob-br0\nauto br0\niface br0 inet manual\n    \
        pre-up ip link show dev br0 >/dev/null 2>&1 || ip link add name br0 type bridge\n    \
        pre-up ip link set dev br0 type bridge stp_state 1\n    pre-up ip link set dev eth1 down\n    \
        pre-up ip link set dev eth1 master br0\n    pre-up ip link set dev eth1 up\n    \
        post-down ip link delete dev br0 2>/dev/null || true\niface br0 inet static\n    address 10.0.0.2/24\n\
        == cob-eth1\n# A port of br0.\niface eth1 inet manual\n";
    assert_eq!(bridge, expected);
    let vlan = by(r#"{"interface": "eth0.5", "vlan": {"id": 5, "on": "eth0"}}"#);
    assert!(vlan.contains("ip link add link eth0 name eth0.5 type vlan id 5\n"), "{vlan}");
    let bond = by(r#"{"interface": "bond0", "bond": {"ports": ["eth1"]}}"#);
    assert!(bond.contains("ip link add name bond0 type bond mode active-backup miimon 100\n"), "{bond}");
}

#[test]
fn what_a_program_cannot_express_is_refused() {
    let refusal = |by: &str, keys: &str| {
        let content = format!(r#"{{"root": "/nowhere", "by": "{by}", "interface": "eth0", {keys}}}"#);
        let spec = spec_in(&NetworkSetting, &content, "n1/lan").expect("good");
        spec.hindered().err().unwrap_or_default()
    };
    for (by, keys, words) in [
        (
            "NetworkManager",
            r#""dhcp": "ipv4", "gateways": ["10.0.0.1"]"#,
            "gateway 10.0.0.1 only with an address of IPv4",
        ),
        ("NetworkManager", r#""addresses": ["fd00::2/64"], "dns": ["10.0.0.53"]"#, "IPv4, here 10.0.0.53, only for"),
        ("NetworkManager", r#""domains": ["a.example"]"#, "`domains` only for an interface with addresses"),
        ("ifupdown", r#""dhcp": "ipv4", "gateways": ["10.0.0.1"]"#, "gateway 10.0.0.1 only with an address"),
        ("ifupdown", r#""domains": ["~a.example"]"#, "only route questions, such as \"~a.example\""),
        ("networkd", r#""dhcp": "ipv4", "gateways": ["10.0.0.1"]"#, ""),
    ] {
        let why = refusal(by, keys);
        assert!(why.contains(words) && why.is_empty() == words.is_empty(), "{keys}: {why}");
    }
}

#[test]
fn the_words_of_nmcli_are_understood() {
    let text = "GENERAL.TYPE:ethernet\nGENERAL.STATE:100 (connected)\nGENERAL.CONNECTION:Wired: one\n\
        GENERAL.CON-UUID:5372aaa1-e38b-3f28-86a5-4e5c1317e494\n";
    let device = Device::read(text);
    assert_eq!(device.uuid(), Some("5372aaa1-e38b-3f28-86a5-4e5c1317e494"), "{device:?}");
    let external = Device::read(&text.replace("(connected)", "(connected (externally))"));
    assert_eq!(external.uuid(), None, "{external:?}");
    let none =
        Device::read("GENERAL.TYPE:ethernet\nGENERAL.STATE:10 (unmanaged)\nGENERAL.CONNECTION:\nGENERAL.CON-UUID:\n");
    assert_eq!(none.uuid(), None, "{none:?}");
}

#[test]
fn the_lines_of_ifupdown_are_understood() {
    for (interfaces, file, is) in [
        ("source /etc/network/interfaces.d/*\n", "cob-eth0.5", true),
        ("auto lo\n  source interfaces.d/*", "cob-eth0", true),
        ("source-directory interfaces.d", "cob-eth0", true),
        ("source-directory /etc/network/interfaces.d/", "cob-eth0.5", false),
        ("# source /etc/network/interfaces.d/*", "cob-eth0", false),
        ("source /etc/network/interfaces.d/*.cfg", "cob-eth0", false),
    ] {
        assert_eq!(ifupdown::is_read(interfaces, &format!("/etc/network/interfaces.d/{file}")), is, "{interfaces}");
    }
}

#[tokio::test]
async fn files_of_each_program_keep_the_contract() {
    let own = [
        ("NetworkManager", "etc/NetworkManager/system-connections/cob-eth0.nmconnection"),
        ("ifupdown", "etc/network/interfaces.d/cob-eth0"),
    ];
    for (by, file) in own {
        let host = host(&[(file, "# theirs, without an end")]);
        let one = format!(r#""interface":"eth0","addresses":["10.0.0.2/24"],"by":"{by}""#);
        let other = format!(r#""interface":"br0","bridge":{{"ports":["eth0","eth1"]}},"by":"{by}""#);
        let case = Case::new(setting("network"), &content(host.path(), &one)).other(&content(host.path(), &other));
        holds(&case.watching(host.path()).kills(2), &[]).await;
        assert_eq!(read(host.path().join(file)), "# theirs, without an end");
    }
}

#[tokio::test]
async fn another_program_takes_over_and_everything_returns() {
    let host = host(&[("etc/systemd/network/10-cob-eth0.network", "# theirs\n")]);
    let mut bench = Bench::new();
    let by = |by: &str| content(host.path(), &format!(r#""interface":"eth0","mtu":1400{by}"#));
    let [networkd, manager, ifupdown] = ["", r#","by":"NetworkManager""#, r#","by":"ifupdown""#]
        .map(|keys| bench.context(&setting("network"), &by(keys)));
    let [old, connection, lines] = By::ALL.map(|by| host.path().join(by.file("eth0").trim_start_matches('/')));
    moved(&mut bench, &networkd, "absent", "present").await;
    moved(&mut bench, &manager, "outdated", "present").await;
    assert_eq!((read(old.clone()).as_str(), connection.exists()), ("# theirs\n", true));
    assert_eq!(fs::metadata(&connection).expect("there").permissions().mode() & 0o777, 0o600);
    moved(&mut bench, &ifupdown, "outdated", "present").await;
    assert_eq!((read(old.clone()).as_str(), connection.exists(), lines.exists()), ("# theirs\n", false, true));
    moved(&mut bench, &ifupdown, "present", "absent").await;
    assert_eq!((read(old).as_str(), connection.exists(), lines.exists()), ("# theirs\n", false, false));
    assert!(!host.path().join("etc/network").exists() && !host.path().join("etc/NetworkManager").exists());
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

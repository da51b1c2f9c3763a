//! Tables of nftables in network namespaces of the tests' own.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cob_kinds::Firewall;

use super::super::tests::{in_namespaces, moved, own_fstab, read, run, setting};
use super::text;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

/// The table of somebody else.
const OTHERS: &str = "table inet others {\n\tchain input {\n\t\ttype filter hook input priority filter + 5; policy accept;\n\t\ttcp dport 9 drop\n\t}\n}\n";

/// Whether the test runs in its own namespaces, with its own `/etc` and the table of somebody else.
fn is_apart(test: &str, folder: &Path) -> bool {
    if !has_program("nft") {
        eprintln!("skipped: there is no nft");
        return false;
    }
    if in_namespaces(&format!("kinds::settings::firewall::firewall_test::{test}"), &["--net"]).is_some() {
        return false;
    }
    own_fstab(folder, "");
    run("rm -rf /etc/nftables.d /etc/systemd/system/cob-firewall*; ip link set lo up");
    load(OTHERS);
    true
}

fn load(text: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft");
    nft.stdin.take().expect("piped").write_all(text.as_bytes()).expect("written");
    assert!(nft.wait().expect("ended").success(), "{text}");
}

fn listed(table: &str) -> String {
    run(&format!("nft -s list table inet {table} 2>/dev/null || true"))
}

#[test]
fn a_content_becomes_a_table() {
    let content: Firewall = cob_kinds::read(
        r#"{"table": "web", "daemons": [7078, 7077, 7078], "default": {"forward": "reject"},
            "input": [
                {"tcp": 22, "from": "10.1.2.3/8", "rate": "10/minute", "comment": "administrators"},
                {"tcp": [443, 80], "udp": "8000-8010", "interface": "eth*"},
                {"from": ["10.0.0.7", "fd00::1", "10.0.0.9"], "action": "reject", "tcp": 5432},
                {"icmp": true, "from": "0.0.0.0/0"},
                {"raw": " log prefix \"in \" "}],
            "output": [{"to": "fd00::/8", "action": "drop"}]}"#,
    )
    .expect("good");
    let neighbours = "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
                      mld-listener-query, mld-listener-report, mld2-listener-report } accept";
    let expected = format!(
        r#"table inet web {{
	limit input_0 {{ rate 10/minute; }}
	chain input {{
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iifname "lo" accept
		{neighbours}
		tcp dport {{ 7077, 7078 }} accept comment "daemons of COB"
		ip saddr 10.0.0.0/8 tcp dport 22 limit name "input_0" accept comment "administrators"
		iifname "eth*" tcp dport {{ 80, 443 }} accept
		iifname "eth*" udp dport 8000-8010 accept
		ip saddr {{ 10.0.0.7, 10.0.0.9 }} tcp dport 5432 reject with tcp reset
		ip6 saddr fd00::1 tcp dport 5432 reject with tcp reset
		meta nfproto ipv4 meta l4proto {{ icmp, ipv6-icmp }} accept
		log prefix "in "
	}}
	chain forward {{
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		meta l4proto tcp reject with tcp reset
		reject
	}}
	chain output {{
		type filter hook output priority filter; policy drop;
		ct state established,related accept
		oifname "lo" accept
		{neighbours}
		tcp dport {{ 7077, 7078 }} accept comment "daemons of COB"
		ip6 daddr fd00::/8 drop
	}}
}}
"#
    );
    assert_eq!(text::table(&content), expected);
}

#[tokio::test]
async fn a_firewall_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    if !is_apart("a_firewall_keeps_the_contract", folder.path()) {
        return;
    }
    let theirs = "table inet cob {\n\tchain theirs {\n\t\ttcp dport 1 counter drop\n\t}\n}\n";
    for (earlier, file) in [("", None), (theirs, Some("# theirs, without an end"))] {
        load(earlier);
        if let Some(text) = file {
            run("mkdir /etc/nftables.d");
            std::fs::write("/etc/nftables.d/cob-cob.nft", text).expect("written");
        }
        let seen = || format!("{}\n{}\n{}", run("nft list tables | sort"), listed("cob"), listed("others"));
        let before = (seen(), run("find /etc/nftables.d /etc/systemd/system 2>/dev/null | sort"));
        let own = r#"{"input":[{"tcp":22,"from":["10.0.0.0/8","fd00::/8"],"rate":"5/minute"}],"daemons":[7077]}"#;
        let other = r#"{"default":{"forward":"reject"},"persist":false,"input":[{"tcp":[80,443]}]}"#;
        let case = Case::new(setting("firewall"), own).other(other).probing(seen).kills(4);
        holds(&case.watching("/etc/nftables.d").watching("/etc/systemd/system"), &[]).await;
        assert_eq!((seen(), run("find /etc/nftables.d /etc/systemd/system 2>/dev/null | sort")), before);
        if let Some(text) = file {
            assert_eq!(read("/etc/nftables.d/cob-cob.nft".into()), text);
        }
    }
}

#[tokio::test]
async fn a_changed_rule_is_found_and_repaired() {
    let folder = tempfile::tempdir().expect("a folder");
    if !is_apart("a_changed_rule_is_found_and_repaired", folder.path()) {
        return;
    }
    let mut bench = Bench::new();
    let content = r#"{"input":[{"tcp":[80,443]},{"udp":53,"from":["10.2.0.0/16","10.1.0.0/16"]}],"daemons":[7077]}"#;
    let context = bench.context(&setting("firewall"), content);
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    let right = listed("cob");
    let link = "/etc/systemd/system/sysinit.target.wants/cob-firewall-cob.service";
    assert_eq!(run(&format!("readlink {link}")), "/etc/systemd/system/cob-firewall-cob.service");
    for (edit, difference) in [
        ("nft add rule inet cob input tcp dport 23 accept", "has besides `tcp dport 23 accept`"),
        ("nft insert rule inet cob input drop", "has besides `drop`"),
        ("nft delete table inet cob", "not there"),
        ("nft flush ruleset", "not there"),
        ("nft flush chain inet cob input", "lacks `ct state established,related accept`"),
        ("nft add chain inet cob mine", "has besides `chain mine {`"),
        ("rm /etc/systemd/system/sysinit.target.wants/cob-firewall-cob.service", "sysinit.target.wants"),
        ("echo '# more' >> /etc/nftables.d/cob-cob.nft", "# more"),
    ] {
        run(edit);
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated"), "{edit}");
        assert!(found.difference.contains(difference), "{edit}: {}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
        assert_eq!(listed("cob"), right, "{edit}");
    }
    // The file for the boot loads the same table.
    run("nft flush ruleset; nft -f /etc/nftables.d/cob-cob.nft");
    assert_eq!((listed("cob"), bench.state(&context).await.as_str()), (right, "present"));
    load(OTHERS);
    let renamed = bench.context(&setting("firewall"), &content.replace("{\"input", "{\"table\":\"web\",\"input"));
    assert_eq!(bench.state(&renamed).await, "outdated");
    moved(&mut bench, &renamed, "outdated", "present").await;
    assert_eq!(run("nft list tables"), "table inet others\ntable inet web");
    moved(&mut bench, &renamed, "present", "absent").await;
    assert_eq!((run("nft -s list ruleset").as_str(), Path::new("/etc/nftables.d").exists()), (OTHERS.trim(), false));
}

#[tokio::test]
async fn an_unknown_rule_leaves_the_host_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    if !is_apart("an_unknown_rule_leaves_the_host_unchanged", folder.path()) {
        return;
    }
    let mut bench = Bench::new();
    let context = bench.context(&setting("firewall"), r#"{"input":[{"tcp":80},{"raw":"tcp dport 80 acept"}]}"#);
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"absent"));
    assert!(found.difference.contains("`tcp dport 80 acept`"), "{}", found.difference);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("nft: syntax error") && why.contains("acept"), "{why}");
    assert_eq!(run("nft list tables"), "table inet others");
    // A host without the program names the package before any change.
    let program = run("command -v nft");
    run(&format!("mount --bind /dev/null \"$(readlink -f {program})\""));
    let found = bench.check(&context).await;
    assert!(found.difference.contains("nft: not found on this host; install the package nftables"), "{found:?}");
}

/// Another host: a network namespace with the address 10.99.0.2, until it is dropped.
struct Neighbour(Child);

impl Neighbour {
    fn new() -> Self {
        let child = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().expect("unshare");
        let number = child.id();
        let mine = run("readlink /proc/self/ns/net");
        crate::run::testing::wait_for("its namespace", || {
            let theirs = std::fs::read_link(format!("/proc/{number}/ns/net"));
            theirs.is_ok_and(|theirs| theirs.to_string_lossy() != mine)
        });
        run(&format!(
            "ip link add to-them type veth peer name eth0 netns {number} && ip addr add 10.99.0.1/24 dev to-them && \
             ip link set to-them up && nsenter -t {number} -n sh -c \
             'ip addr add 10.99.0.2/24 dev eth0 && ip link set eth0 up'"
        ));
        Self(child)
    }

    /// Connects to this host. `refused` and `lost` are different failures.
    fn connects(&self, port: u16) -> &'static str {
        let line = format!("exec 3<>/dev/tcp/10.99.0.1/{port}");
        let number = self.0.id().to_string();
        let mut connect = Command::new("timeout");
        connect.args(["2", "nsenter", "-t", &number, "-n", "bash", "-c", &line]).stderr(Stdio::null());
        match connect.status().expect("run").code() {
            Some(0) => "connected",
            Some(124) => "lost",
            _ => "refused",
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn packets_meet_the_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    if !is_apart("packets_meet_the_rules", folder.path()) {
        return;
    }
    if !has_program("ip") || !has_program("nsenter") || !has_program("bash") {
        return eprintln!("skipped: there is no ip, nsenter or bash");
    }
    let neighbour = Neighbour::new();
    let servers: Vec<TcpListener> =
        (8001..=8006).map(|port| TcpListener::bind(("0.0.0.0", port)).expect("free")).collect();
    let mut bench = Bench::new();
    let content = r#"{"daemons":[8006],"input":[
        {"tcp":8001,"from":"10.99.0.2"},
        {"tcp":8002,"from":"10.99.0.3"},
        {"tcp":8003,"action":"reject"},
        {"tcp":8004,"interface":"to-*"},
        {"tcp":8005,"interface":"eth0"}]}"#;
    let context = bench.context(&setting("firewall"), content);
    moved(&mut bench, &context, "absent", "present").await;
    let expected = [
        (8001, "connected"),
        (8002, "lost"),
        (8003, "refused"),
        (8004, "connected"),
        (8005, "lost"),
        (8006, "connected"),
    ];
    for (port, how) in expected {
        assert_eq!(neighbour.connects(port), how, "{port}");
    }
    // Connections of this host to itself, and answers to its own connections.
    for server in &servers {
        let address = server.local_addr().expect("bound");
        std::net::TcpStream::connect_timeout(&([127, 0, 0, 1], address.port()).into(), Duration::from_secs(5))
            .expect("loopback");
    }
    let slow = bench.context(&setting("firewall"), r#"{"input":[{"tcp":8001,"rate":"1/hour"}]}"#);
    moved(&mut bench, &slow, "outdated", "present").await;
    // Five packets may pass at once.
    let all: Vec<_> = (0..7).map(|_| neighbour.connects(8001)).collect();
    assert_eq!(all, ["connected", "connected", "connected", "connected", "connected", "lost", "lost"]);
    moved(&mut bench, &slow, "present", "absent").await;
    assert_eq!(neighbour.connects(8002), "connected");
}

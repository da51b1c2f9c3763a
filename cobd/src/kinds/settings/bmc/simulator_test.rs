//! Settings of a BMC of the simulator `ipmi_sim`, over the network, with the real `ipmitool`.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use super::super::tests::{moved, setting};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::{has_program, run_bounded};
use crate::kinds::testing::{Bench, reason};
use crate::run::testing::wait_for;

/// A user that is there first.
const THEIRS: u8 = 9;
/// Without it, the simulator accepts no session of IPMI 2.0.
const GUID: &str = "a123456789abcdefa123456789abcdef";

/// A BMC, until it is dropped.
struct Simulator {
    folder: tempfile::TempDir,
    port: u16,
    program: Child,
    /// The machine of the BMC: without it there is no watchdog.
    _machine: TcpStream,
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Simulator {
    /// `None`: a program is missing.
    fn start() -> Option<Self> {
        if !["ipmi_sim", "ipmitool"].into_iter().all(has_program) {
            eprintln!("skipped: there is no ipmi_sim (package openipmi) or ipmitool");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let [port, machine] = cob_processes::free_ports().expect("free");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write(
            "lan.conf",
            &format!(
                "name \"test\"\nserial 15 127.0.0.1 {machine} codec VM\nchassis_control \"{path}/chassis\"\n\
                 startlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\nguid {GUID}\nallowed_auths_user md5\n\
                 allowed_auths_admin md5\nendlan\n\
                 user 2 true \"root\" \"rootpw\" admin 10 md5\nuser {THEIRS} true \"theirs\" \"old\" operator 10 md5\n"
            ),
        );
        write("bmc.emu", "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n");
        let control = "#!/bin/sh\ncase $1 in set) echo $3 > FOLDER/boot ;; get) echo $2:$(cat FOLDER/boot) ;; esac\n";
        write("chassis", &control.replace("FOLDER", &path.to_string()));
        fs::set_permissions(folder.path().join("chassis"), fs::Permissions::from_mode(0o755)).expect("set");
        write("boot", "none\n");
        let mut command = Command::new("ipmi_sim");
        command.args(["-n", "-c", "lan.conf", "-f", "bmc.emu", "-s", "."]).current_dir(folder.path());
        let program = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("started");
        let mut connected = None;
        wait_for("the simulator listens", || {
            connected = TcpStream::connect(("127.0.0.1", machine)).ok();
            connected.is_some()
        });
        let mut stream = connected.expect("connected");
        // Version 1; it can switch the power, reset, interrupt, and stop gracefully.
        std::io::Write::write_all(&mut stream, b"\xff\x01\xa1\x08\x3b\xa1").expect("sent");
        let simulator = Self { folder, port, program, _machine: stream };
        wait_for("the BMC answers", || simulator.logs_in("root", "rootpw"));
        Some(simulator)
    }

    fn command(&self, user: &str, password: &str) -> Command {
        let mut command = Command::new("ipmitool");
        command.args(["-I", "lanplus", "-C", "3", "-H", "127.0.0.1", "-p", &self.port.to_string()]);
        command.args(["-R", "1", "-N", "2", "-L", "USER", "-U", user, "-E"]).env("IPMI_PASSWORD", password);
        command
    }

    fn logs_in(&self, user: &str, password: &str) -> bool {
        let ran = run_bounded(self.command(user, password).args(["raw", "6", "1"]), b"").expect("run");
        ran.code == Some(0)
    }

    /// The bytes of a request.
    fn ask(&self, words: &str) -> String {
        let mut command = self.command("root", "rootpw");
        command.args(["-L", "ADMINISTRATOR", "raw"]).args(words.split(' '));
        run_bounded(&mut command, b"").expect("run").ok().expect("answered").trim().replace('\n', "")
    }

    /// What a change object may change.
    fn probe(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let commands: Vec<String> = (2..=6)
            .chain([THEIRS])
            .map(|id| format!("raw 6 0x46 {id}"))
            .chain([format!("raw 6 0x44 1 {THEIRS}"), "raw 6 0x25".to_owned()])
            .chain([3, 4, 6, 12, 20].map(|parameter| format!("raw 12 2 1 {parameter} 0 0")))
            .collect();
        let port = self.port.to_string();
        move || {
            let mut command = Command::new("ipmitool");
            command.args(["-I", "lanplus", "-C", "3", "-H", "127.0.0.1", "-p", &port, "-U", "root", "-E"]);
            command.args(["exec", "/dev/stdin"]).env("IPMI_PASSWORD", "rootpw");
            let said = run_bounded(&mut command, commands.join("\n").as_bytes()).expect("run").out;
            // The watchdog keeps its use: the simulator refuses a watchdog without use. The number of enabled users is
            // in the answer about each user.
            let lines = said.lines().map(|line| match line.split(' ').count() {
                7 => format!("watchdog{}", &line[3..]),
                5 if line.starts_with(" 3f") => line[9..].to_owned(),
                _ => line.to_owned(),
            });
            lines.collect::<Vec<_>>().join("\n")
        }
    }

    fn content(&self, keys: &str) -> String {
        format!(
            r#"{{"remote":{{"host":"127.0.0.1","port":{},"user":"root","password":"rootpw","cipher_suite":3}},{keys}}}"#,
            self.port
        )
    }
}

const OWN: &str = r#""lan":{"address":"10.0.1.1","netmask":"255.255.255.0","gateway":"10.0.1.254","vlan":100},
    "users":{"cob":{"privilege":"administrator","password":"one"},
             "theirs":{"privilege":"user","enabled":false}},
    "watchdog":{"timeout":"90s","action":"reset"},"boot":{"device":"pxe","persistent":false}"#;
const OTHER: &str = r#""lan":{"source":"dhcp"},"users":{"cob":{"privilege":"operator","password":"two"},
    "more":{"privilege":"user","password":"a-password-of-20-b-c"}}"#;

#[tokio::test]
async fn settings_of_a_bmc_keep_the_contract() {
    let Some(simulator) = Simulator::start() else { return };
    let [own, other] = [OWN, OTHER].map(|keys| simulator.content(keys));
    let probe = simulator.probe();
    let first = probe();
    let case = Case::new(setting("bmc"), &own).other(&other).probing(simulator.probe()).kills(2);
    holds(&case, &[]).await;
    assert_eq!(probe(), first);
    assert!(simulator.logs_in("theirs", "old"), "the user of others may log in again");
}

#[tokio::test]
async fn a_bmc_is_set_and_given_back() {
    let Some(simulator) = Simulator::start() else { return };
    let mut bench = Bench::new();
    let context = bench.context(&setting("bmc"), &simulator.content(OWN));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    assert!(simulator.logs_in("cob", "one"));
    assert!(!simulator.logs_in("theirs", "old"), "disabled");
    assert_eq!(simulator.ask("12 2 1 3 0 0"), "11 0a 00 01 01");
    assert_eq!(simulator.ask("12 2 1 20 0 0"), "11 64 80");
    assert_eq!(simulator.ask("6 0x25"), "04 01 00 00 84 03", "90 s, reset");
    assert_eq!(fs::read_to_string(simulator.folder.path().join("boot")).expect("read"), "pxe\n");
    let found = bench.check(&context).await;
    assert!(found.difference.contains("has not started the watchdog"), "{}", found.difference);
    for file in ["before.json", "bmc.json"] {
        let text = fs::read_to_string(bench.path("cobs/n1+a+b").join(file)).expect("read");
        assert!(!text.contains("rootpw") && !text.contains("\"one\""), "{text}");
    }
    // The firmware has used the boot device: it is not set again.
    simulator.ask("0 8 5 0 0 0 0 0");
    assert_eq!(bench.state(&context).await, "present");
    // Others change what is set, and what is not set.
    simulator.ask("12 1 1 3 10 0 1 9");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains("10.0.1.9"));
    moved(&mut bench, &context, "outdated", "present").await;
    // Another content gives parts back, and keeps others.
    let other = bench.context(&setting("bmc"), &simulator.content(OTHER));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert!(simulator.logs_in("theirs", "old") && simulator.logs_in("cob", "two"));
    // The simulator keeps 16 characters.
    assert!(simulator.logs_in("more", "a-password-of-20"));
    assert_eq!(simulator.ask("12 2 1 4 0 0"), "11 02", "DHCP");
    // What was given back belongs to others again.
    simulator.ask("6 0x43 0x91 9 4");
    assert_eq!(bench.state(&other).await, "present");
    moved(&mut bench, &other, "present", "absent").await;
    assert!(!simulator.logs_in("cob", "two"));
    assert_eq!(simulator.ask("12 2 1 3 0 0"), "11 00 00 00 00");
    assert_eq!(simulator.ask("6 0x44 1 9").split(' ').next_back(), Some("14"), "as others left it");
    assert!(!bench.path("cobs/n1+a+b/bmc.json").exists());
}

#[tokio::test]
async fn users_of_others_keep_their_passwords() {
    let Some(simulator) = Simulator::start() else { return };
    let mut bench = Bench::new();
    let user = |keys: &str| simulator.content(&format!(r#""users":{{"theirs":{{"privilege":"operator",{keys}}}}}"#));
    let context = bench.context(&setting("bmc"), &user(r#""password":"new""#));
    let found = bench.check(&context).await;
    assert!(found.difference.contains("`adopt: true`"), "{}", found.difference);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("others made this user"), "{why}");
    assert!(simulator.logs_in("theirs", "old"));
    let adopted = bench.context(&setting("bmc"), &user(r#""password":"new","adopt":true"#));
    moved(&mut bench, &adopted, "absent", "present").await;
    assert!(simulator.logs_in("theirs", "new"));
    let missing = bench.context(&setting("bmc"), &simulator.content(r#""users":{"x":{"privilege":"user"}}"#));
    moved(&mut bench, &adopted, "present", "absent").await;
    let found = bench.check(&missing).await;
    assert!(found.difference.contains("a new user needs `password`"), "{}", found.difference);
}

#[tokio::test]
async fn a_bmc_that_refuses_or_is_away_gives_its_reason() {
    let Some(simulator) = Simulator::start() else { return };
    let mut bench = Bench::new();
    // The simulator keeps no flags of a boot, so the device counts as not set.
    let boot = bench.context(&setting("bmc"), &simulator.content(r#""boot":{"device":"pxe"}"#));
    let why = reason(bench.transition(&boot, "absent", "present").await);
    assert!(why.contains("as the firmware decides"), "{why}");
    let wrong = simulator.content(r#""boot":{"device":"pxe"}"#).replace("rootpw", "wrong");
    let wrong = bench.context(
        &setting("bmc"),
        &wrong.replace(r#""boot":{"#, r#""watchdog":{"timeout":"1s","action":"none"},"boot":{"#),
    );
    let why = reason(bench.transition(&wrong, "absent", "present").await);
    assert!(why.contains("reaches no BMC") && !why.contains("wrong"), "{why}");
}

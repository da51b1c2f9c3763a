//! `cobctl bootstrap` and `upgrade` on this machine: the scripts run below a folder that serves as the host's root; the
//! depot's server, the token and `cobd join` are real.
//!
//! `ssh` is replaced by a script with its rules (the command is a single text for a shell), and by a real sshd if
//! available. systemd is replaced by a script, too; the test bed (tests/bed/bootstrap.sh) has ten real hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::enrol::Site;

/// Runs the given command, and records its arguments. With a file `ENDS` in the folder the connection breaks in the
/// middle of the sent data.
const SSH: &str = r#"#!/bin/sh
folder=${0%/*}
for word; do printf '%s\n' "$word"; done >> "$folder/called"
for command; do :; done
echo "Welcome to this host"
if [ -e "$folder/ENDS" ]; then head -c 100000 | sh -c "$command"; else sh -c "$command"; fi
"#;

/// Starts no program, and records the requests to start.
const SYSTEMCTL: &str = r#"#!/bin/sh
folder=${0%/*}
case "$*" in
*daemon-reload*) ;;
*enable*) echo enabled > "$folder/enabled" ;;
*"start cobd.service") echo active > "$folder/active" ;;
*ActiveState*) cat "$folder/active" 2>/dev/null || echo inactive ;;
*UnitFileState*) cat "$folder/enabled" 2>/dev/null || echo disabled ;;
esac
"#;

/// A site, and a machine beside it.
struct Bed {
    site: Site,
    /// The `ssh` command line.
    ssh: Vec<String>,
}

impl Bed {
    fn with_stand_in() -> Self {
        Self::of(Site::new(&[]))
    }

    fn of(site: Site) -> Self {
        let ssh = site.path("ssh");
        script(&ssh, SSH);
        Self { ssh: vec!["--ssh".to_owned(), ssh.display().to_string()], site }
    }

    /// A machine with systemd and no other programs; returns its root.
    fn machine(&self, name: &str) -> PathBuf {
        let root = self.site.path(name);
        let programs = root.join("test-bin");
        for folder in [&root.join("run/systemd/system"), &programs] {
            fs::create_dir_all(folder).expect("made");
        }
        script(&programs.join("systemctl"), SYSTEMCTL);
        script(&programs.join("id"), "#!/bin/sh\necho 0\n");
        script(&programs.join("dpkg-query"), "#!/bin/sh\nexit 1\n");
        root
    }

    fn bootstrap(&self, root: &Path, host: &str, more: &[&str]) -> Output {
        self.bootstrap_with(root, host, &["--binary", env!("CARGO_BIN_EXE_cob")], more)
    }

    fn bootstrap_with(&self, root: &Path, host: &str, file: &[&str], more: &[&str]) -> Output {
        let server = format!("tcp://{}", self.site.address());
        let root = root.display().to_string();
        let mut args = vec!["bootstrap", host, "--depot", "depot", "--server", &server, "--root", &root];
        args.extend(file);
        args.extend(self.ssh.iter().map(String::as_str));
        args.extend(more);
        self.site.run("cobctl", &args)
    }

    fn tokens(&self) -> String {
        fs::read_to_string(self.site.path("depot/tokens.json")).expect("tokens")
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// The exit status and the complete output.
fn said(output: &Output) -> (Option<i32>, String) {
    let both = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&both).into_owned())
}

fn ends(output: &Output, status: i32, words: &str) {
    let (code, text) = said(output);
    assert_eq!(code, Some(status), "{text}");
    assert!(text.contains(words), "{words:?} is not in {text}");
}

/// Only the installed files are left of the sent data.
fn nothing_left(root: &Path) {
    let names = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let left = [names("usr/local/bin"), names("etc/systemd/system")].concat();
    assert!(left.iter().all(|name| name == "cobd" || name == "cobd.service"), "{left:?}");
}

fn goes_from_nothing_to_a_member(bed: &Bed) {
    let root = bed.machine("w1");
    ends(&bed.bootstrap(&root, "w1", &[]), 0, "w1  installed (program), enrolled, started; cobd 0.");
    nothing_left(&root);
    let mode = |path: &str| fs::metadata(root.join(path)).expect(path).permissions().mode() & 0o777;
    assert_eq!((mode("var/lib/cob/identity.key"), mode("usr/local/bin/cobd")), (0o600, 0o755));
    assert_eq!(bed.site.enrolled(), ["w1"]);
    let config = fs::read_to_string(root.join("etc/cob/cobd.toml")).expect("written");
    assert!(config.contains("host = \"w1\""), "{config}");
    let unit = fs::read_to_string(root.join("etc/systemd/system/cobd.service")).expect("written");
    assert!(unit.contains("\nExecStart=/usr/local/bin/cobd run ") && unit.ends_with('\n'), "{unit}");
    // The same command again changes no file and makes no token.
    let before = bed.tokens();
    ends(&bed.bootstrap(&root, "w1", &[]), 0, "w1  unchanged");
    assert_eq!(bed.tokens(), before);
    // Interrupted after the server's answer: the same key is admitted again.
    fs::remove_file(root.join("etc/cob/cobd.toml")).expect("removed");
    ends(&bed.bootstrap(&root, "w1", &[]), 0, "w1  enrolled; cobd 0.");
    assert_eq!(bed.site.enrolled(), ["w1"]);
}

#[test]
fn a_bootstrap_enrols_a_machine_and_its_repeat_changes_no_files() {
    let bed = Bed::with_stand_in();
    goes_from_nothing_to_a_member(&bed);
    // No token was in a command line; the destination follows all options.
    let called = fs::read_to_string(bed.site.path("called")).expect("called");
    assert!(!called.contains("cob1.") && called.contains("\nBatchMode=yes\n") && called.contains("\n--\nw1\n"));
}

#[test]
fn a_program_that_breaks_off_on_its_way_is_not_put_in_place() {
    let bed = Bed::with_stand_in();
    let root = bed.machine("w1");
    fs::write(bed.site.path("ENDS"), "").expect("written");
    ends(&bed.bootstrap(&root, "w1", &[]), 1, "did not arrive whole");
    nothing_left(&root);
    assert!(!root.join("usr/local/bin/cobd").exists());
    fs::remove_file(bed.site.path("ENDS")).expect("removed");
    ends(&bed.bootstrap(&root, "w1", &[]), 0, "installed (program)");
}

#[test]
fn an_rpm_package_is_installed_by_dnf_once() {
    let bed = Bed::with_stand_in();
    let root = bed.machine("w1");
    let package = bed.site.path("cob-0.1.0-1.x86_64.rpm");
    fs::write(&package, b"\xed\xab\xee\xdb and more").expect("written");
    let package = package.display().to_string();
    // A host with rpm packages; dnf installs the given package, or reports why not.
    let programs = root.join("test-bin");
    script(
        &programs.join("rpm"),
        "#!/bin/sh\n[ \"$*\" = '-q rpm' ] && exit\n[ -e ${0%/*}/installed ] && printf '0.1.0-1 installed'\n",
    );
    let dnf = |last: &str| {
        format!("#!/bin/sh\necho \"$@\" >> ${{0%/*}}/asked\ngrep -q 'and more' \"$4\" || exit 9\n{last}\n")
    };
    script(&programs.join("dnf"), &dnf("echo 'nothing provides libx'; exit 1"));
    script(&programs.join("uname"), "#!/bin/sh\necho x86_64\n");
    let packages = ["--package", package.as_str()];
    ends(&bed.bootstrap_with(&root, "w1", &packages, &[]), 1, "the package can't be installed: nothing provides libx");
    let installs = format!(
        "mkdir -p {0}/usr/bin && cp {1} {0}/usr/bin/cobd && touch ${{0%/*}}/installed",
        root.display(),
        env!("CARGO_BIN_EXE_cob")
    );
    script(&programs.join("dnf"), &dnf(&installs));
    ends(&bed.bootstrap_with(&root, "w1", &packages, &[]), 0, "installed (rpm package 0.1.0-1), enrolled, started");
    ends(&bed.bootstrap_with(&root, "w1", &packages, &[]), 0, "w1  unchanged");
    assert!(!root.join("var/cache/cob-install").exists());
    let called = fs::read_to_string(programs.join("asked")).expect("called");
    assert_eq!(called.matches("-q -y install ").count(), 2, "{called}");
    ends(&bed.bootstrap(&root, "w1", &[]), 1, "installed differently: the package cob");
}

#[test]
fn where_a_person_accepts_keys_the_same_again_goes_on() {
    let bed = Bed::of(Site::new(&["--policy", "manual"]));
    let root = bed.machine("w1");
    for _ in 0..2 {
        ends(&bed.bootstrap(&root, "w1", &[]), 1, "is not accepted yet");
    }
    assert!(bed.site.run("cobgen", &["enroll", "--accept", "w1", "--depot", "depot"]).status.success());
    ends(&bed.bootstrap(&root, "w1", &[]), 0, "w1  enrolled, started");
}

#[test]
fn another_machine_takes_a_name_only_when_told_and_another_host_is_left_alone() {
    let bed = Bed::with_stand_in();
    let (one, other) = (bed.machine("one"), bed.machine("other"));
    ends(&bed.bootstrap(&one, "w1", &[]), 0, "enrolled");
    ends(&bed.bootstrap(&other, "w1", &[]), 1, "w1 has enrolled with ed25519:");
    assert!(!other.join("etc/cob/cobd.toml").exists());
    ends(&bed.bootstrap(&other, "w1", &["--replace"]), 0, "enrolled, started");
    // The first machine still runs with a key that does not count any more: that is reported, and nothing is changed.
    ends(&bed.bootstrap(&one, "w1", &["--replace"]), 1, "this machine has another key");
    ends(&bed.bootstrap(&other, "w2", &[]), 1, "exists for another host (w1)");
    let refused = bed.bootstrap(&other, "w2", &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert_eq!((&json["hosts"][0]["outcome"], &json["hosts"][0]["name"]), (&"failed".into(), &"w2".into()));
}

#[test]
fn hosts_that_are_not_reached_and_destinations_that_are_options_are_told_apart() {
    let bed = Bed::with_stand_in();
    let root = bed.machine("w1");
    script(&bed.site.path("ssh"), "#!/bin/sh\necho 'w1: Permission denied (publickey).' >&2\nexit 255\n");
    ends(&bed.bootstrap(&root, "w1", &[]), 3, "? w1  unreachable; ssh can't connect to w1: w1: Permission denied");
    ends(&bed.bootstrap(&root, "w1=-oProxyCommand=x", &[]), 2, "can't begin with `-`");
    ends(&bed.bootstrap(&root, "w1", &["w1"]), 2, "is named twice");
    script(&bed.site.path("ssh"), "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n");
    ends(&bed.bootstrap(&root, "w1", &["--sudo"]), 1, "NOPASSWD");
}

/// The daemon of OpenSSH, if this user can run it.
fn sshd() -> Result<PathBuf, String> {
    let named = std::env::var_os("COB_SSHD").map(PathBuf::from);
    let found = named.into_iter().chain(["/usr/sbin/sshd".into()]).find(|path: &PathBuf| path.is_file());
    let found = found.ok_or("sshd is not installed; COB_SSHD names it")?;
    let user = |name: &str| {
        let all = fs::read_to_string("/etc/passwd").unwrap_or_default();
        all.lines().any(|line| line.starts_with(&format!("{name}:")))
    };
    if rustix::process::geteuid().is_root() && !(user("sshd") && Path::new("/run/sshd").is_dir()) {
        return Err("sshd needs its user and /run/sshd".to_owned());
    }
    Ok(found)
}

#[test]
fn a_real_sshd_and_its_client_carry_it_all() {
    let sshd = match sshd() {
        Ok(path) => path,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let mut bed = Bed::with_stand_in();
    let at = |name: &str| bed.site.path(name).display().to_string();
    let made = |file: &str| {
        let args = ["-q", "-t", "ed25519", "-N", "", "-f", &at(file)];
        assert!(std::process::Command::new("ssh-keygen").args(args).status().expect("ssh-keygen").success());
        fs::read_to_string(at(&format!("{file}.pub"))).expect("a public key")
    };
    let (host_key, user_key) = (made("host_key"), made("user_key"));
    fs::write(at("authorized"), user_key).expect("written");
    fs::write(at("known"), format!("w1 {host_key}")).expect("written");
    let server = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nStrictModes no\n\
         UsePAM no\nPidFile none\n",
        at("host_key"),
        at("authorized")
    );
    fs::write(at("sshd_config"), server).expect("written");
    // The server uses a pipe instead of a port.
    let client = format!(
        "Host w1\n  ProxyCommand {} -i -f {}\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n",
        sshd.display(),
        at("sshd_config"),
        at("user_key"),
        at("known")
    );
    fs::write(at("ssh_config"), client).expect("written");
    bed.ssh = vec!["--ssh-config".to_owned(), at("ssh_config")];
    goes_from_nothing_to_a_member(&bed);
}

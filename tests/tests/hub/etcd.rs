//! Members of an etcd, as the operators of several hubs have them.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cob_tests::processes::{self, Signal};
use cob_tests::wait::comes_true;

/// How long members have to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The members. They end with it.
pub(crate) struct Members {
    members: Vec<Child>,
    pub(crate) addresses: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

impl Members {
    /// Starts members. `None`, with a clear word, if there is no etcd.
    pub(crate) fn start(count: usize) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            // Not by a macro: the output of passing tests is hidden.
            let said = std::io::stderr()
                .write_all(b"NOT TESTED: the program etcd is missing (tests/programs.sh etcd gets it)\n");
            said.expect("said");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let pair =
            |_| cob_processes::free_ports::<2>().expect("free").map(|port| format!("http://127.0.0.1:{port}")).into();
        let (addresses, peers): (Vec<String>, Vec<String>) = (0..count).map(pair).unzip();
        let named: Vec<_> = peers.iter().enumerate().map(|(n, peer)| format!("m{n}={peer}")).collect();
        let member = |n: usize| {
            let name = format!("m{n}");
            Command::new("etcd")
                .args(["--name", &name, "--data-dir"])
                .arg(folder.path().join(&name))
                .args(["--listen-client-urls", &addresses[n], "--advertise-client-urls", &addresses[n]])
                .args(["--listen-peer-urls", &peers[n], "--initial-advertise-peer-urls", &peers[n]])
                .args(["--initial-cluster", &named.join(","), "--logger", "zap", "--log-outputs", "stderr"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("started")
        };
        let members = Self { members: (0..count).map(member).collect(), addresses, _folder: folder };
        for address in &members.addresses {
            assert!(comes_true(PATIENCE, || is_healthy(address)), "{address} does not answer");
        }
        Some(members)
    }

    /// The value of `--store`.
    pub(crate) fn store(&self) -> String {
        format!("etcd:{}", self.addresses.join(","))
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].kill().expect("killed");
        self.members[member].wait().expect("ended");
    }

    /// Stops all members, or lets them go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.members.iter().for_each(|member| processes::signal(member.id(), signal));
    }
}

fn is_healthy(address: &str) -> bool {
    use std::io::Read as _;
    let Ok(mut stream) = std::net::TcpStream::connect(address.trim_start_matches("http://")) else { return false };
    let sent = stream.write_all(b"GET /health HTTP/1.0\r\nHost: x\r\n\r\n");
    let mut text = String::new();
    sent.and_then(|()| stream.read_to_string(&mut text)).is_ok_and(|_| text.contains("\"true\""))
}

//! Members of a real etcd (`etcd-server`), for the tests of this crate and of the hub.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long members have to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The members. They end with it.
pub(crate) struct Members {
    pub(crate) members: Vec<Child>,
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
    /// Starts members, and waits until they answer. `None`, with a clear word, if there is no etcd.
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
        let begun = Instant::now();
        for address in &members.addresses {
            while !is_healthy(address) {
                assert!(begun.elapsed() < PATIENCE, "{address} does not answer");
                std::thread::sleep(PAUSE);
            }
        }
        Some(members)
    }
}

/// Whether a member answers, together with a majority.
fn is_healthy(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address.trim_start_matches("http://")) else { return false };
    let sent = stream.write_all(b"GET /health HTTP/1.0\r\nHost: x\r\n\r\n");
    let mut text = String::new();
    sent.and_then(|()| stream.read_to_string(&mut text)).is_ok_and(|_| text.contains("\"true\""))
}

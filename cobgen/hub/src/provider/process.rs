//! The provider `process`: a machine is a daemon on this machine, with a loopback address and a folder of its own.
//!
//! For the demo, for tests, and for a first look at the hub.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cob_processes::end_all_in;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{Action, Answer, Deleted, Join, ListedMachine, MachineList, Refusal, Request, VERSION, WantedMachine};
use crate::durable;

/// The type of the provider.
pub const SORT: &str = "process";
/// The port of all daemons.
const PORT: u16 = 7077;
/// The configuration of a daemon.
const CONFIG: &str = "cobd.toml";
/// How long a daemon has to come up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the processes of a machine have to end.
const GRACE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// The longest path of a Unix socket.
const LONGEST_SOCKET: usize = 107;
/// The longest request, in bytes.
const LONGEST: u64 = 4 << 20;

/// What the provider keeps of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    token: String,
    host: String,
    tenant: String,
    cluster: String,
    address: Ipv4Addr,
}

/// Performs an action: reads the request from standard input, and writes the answer to standard output.
///
/// Returns the exit status.
pub fn run(action: Action) -> u8 {
    let mut text = Vec::new();
    let answer = io::stdin()
        .take(LONGEST)
        .read_to_end(&mut text)
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_slice::<Request>(&text).map_err(|e| format!("the request is not valid: {e}")))
        .and_then(|request| perform(action, &request));
    let (value, status) = match answer {
        Ok(value) => (value, 0),
        Err(error) => (json!(Refusal { error, retry: false }), 1),
    };
    let mut out = io::stdout();
    let written = serde_json::to_writer(&out, &value).map_err(io::Error::from).and_then(|()| out.flush());
    if written.is_ok() { status } else { 3 }
}

fn perform(action: Action, request: &Request) -> Result<serde_json::Value, String> {
    if request.version != VERSION {
        return Err(format!("the request has version {}; this program knows {VERSION}", request.version));
    }
    let yard = Yard::open(&request.state).map_err(|e| format!("{}: {e}", request.state.display()))?;
    let wanted = || request.machine.as_ref().ok_or("the request names no machine");
    match action {
        Action::Create => Ok(json!(yard.create(wanted()?)?)),
        Action::Confirm => Ok(json!(yard.confirm(wanted()?)?)),
        Action::Delete => yard.delete(&wanted()?.token).map(|()| json!(Deleted {})),
        Action::List => Ok(json!(yard.list().map_err(|e| e.to_string())?)),
    }
}

/// The machines of the provider.
struct Yard {
    folder: PathBuf,
}

impl Yard {
    fn open(folder: &Path) -> io::Result<Self> {
        durable::make_folder(folder)?;
        Ok(Self { folder: folder.canonicalize()? })
    }

    /// The folder of a machine. Its name is short, because it holds a socket.
    fn home(&self, token: &str) -> Result<PathBuf, String> {
        if token.len() < 16 || !token.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("{token:?} is not a token"));
        }
        Ok(self.folder.join(token))
    }

    fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path().join("machine.json");
            match fs::read(&path) {
                Ok(text) => all.push(serde_json::from_slice(&text)?),
                // The creation of this machine has only begun, or the entry is the lock.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn create(&self, wanted: &WantedMachine) -> Result<Answer, String> {
        let home = self.home(&wanted.token)?;
        let failed = |error: io::Error| format!("{}: {error}", home.display());
        let socket = home.join("http.sock");
        if socket.as_os_str().len() > LONGEST_SOCKET {
            return Err(format!(
                "the path {} is too long for a socket; give the hub a folder with a shorter path",
                socket.display()
            ));
        }
        // Two creations at once do not choose the same address.
        let lock = File::create(self.folder.join("lock")).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        let all = self.kept().map_err(failed)?;
        let kept = match all.iter().find(|kept| kept.token == wanted.token) {
            Some(kept) => kept.clone(),
            None => {
                let address = free_address(&self.folder, &all).ok_or("no loopback address is free")?;
                let WantedMachine { token, host, tenant, cluster, .. } = wanted.clone();
                let kept = Kept { token, host, tenant, cluster, address };
                durable::make_folder(&home.join("state")).map_err(failed)?;
                let listen = format!("tcp://{address}:{PORT}");
                if let Join::Depot(depot) = &wanted.join {
                    let config = format!(
                        "host = {}\ndepot = {}\nstate_dir = \"state\"\nhttp = \"http.sock\"\nlisten = \"{listen}\"\n",
                        json!(wanted.host),
                        json!(depot)
                    );
                    durable::replace(&home.join(CONFIG), config.as_bytes()).map_err(failed)?;
                }
                // The last file: from here on the machine exists.
                durable::replace_json(&home.join("machine.json"), &kept).map_err(failed)?;
                kept
            }
        };
        drop(lock);
        if let Join::Token { server, token } = &wanted.join
            && !home.join(CONFIG).is_file()
        {
            join(&home, &wanted.programs, server, token, kept.address)?;
        }
        if UnixStream::connect(&socket).is_err() {
            start(&home, &wanted.programs).map_err(|e| format!("{}: {e}", wanted.programs.join("cobd").display()))?;
        }
        Ok(answer(&kept))
    }

    fn confirm(&self, wanted: &WantedMachine) -> Result<Answer, String> {
        let home = self.home(&wanted.token)?;
        let all = self.kept().map_err(|e| e.to_string())?;
        let kept = all.iter().find(|kept| kept.token == wanted.token).ok_or("the machine does not exist")?;
        let limit = Instant::now() + PATIENCE;
        while UnixStream::connect(home.join("http.sock")).is_err() {
            if Instant::now() > limit {
                return Err(format!("its daemon does not come up: see {}", home.join("cobd.log").display()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(answer(kept))
    }

    fn delete(&self, token: &str) -> Result<(), String> {
        let home = self.home(token)?;
        if !end_all_in(&home, GRACE) {
            return Err(format!("processes in {} do not end", home.display()));
        }
        match fs::remove_dir_all(&home) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", home.display())),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn list(&self) -> io::Result<MachineList> {
        let one = |kept: Kept| ListedMachine {
            id: kept.token.clone(),
            host: kept.host,
            address: Some(format!("tcp://{}:{PORT}", kept.address)),
            token: kept.token,
        };
        Ok(MachineList { machines: self.kept()?.into_iter().map(one).collect() })
    }
}

fn answer(kept: &Kept) -> Answer {
    Answer { id: kept.token.clone(), address: Some(format!("tcp://{}:{PORT}", kept.address)) }
}

/// A loopback address that no machine has and no program uses. Each folder begins with a network of its own, so that
/// two hubs on a machine, which do not know of each other, rarely choose the same address at the same time.
fn free_address(folder: &Path, all: &[Kept]) -> Option<Ipv4Addr> {
    // 127.16.1.0/24 to 127.254.254.0/24, without hosts 0 and 255.
    const NETWORKS: u32 = 239 * 254;
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let first = digest.iter().take(4).fold(0, |number: u32, byte| number << 8 | u32::from(*byte)) % NETWORKS;
    let networks = (0..NETWORKS).map(|step| (first + step) % NETWORKS);
    networks
        .flat_map(|network| {
            (1..=254).map(move |host| {
                Ipv4Addr::from((127 << 24) + ((network / 254 + 16) << 16) + ((network % 254 + 1) << 8) + host)
            })
        })
        .find(|address| !all.iter().any(|kept| kept.address == *address) && TcpListener::bind((*address, PORT)).is_ok())
}

/// Makes the machine a member of its cluster, which writes the configuration of its daemon.
fn join(home: &Path, programs: &Path, server: &str, token: &str, address: Ipv4Addr) -> Result<(), String> {
    let failed = |error: io::Error| format!("{} join: {error}", programs.join("cobd").display());
    let mut child = Command::new(programs.join("cobd"))
        .args(["join", server, "-", "--config"])
        .arg(home.join(CONFIG))
        .arg("--state-dir")
        .arg(home.join("state"))
        .arg("--http")
        .arg(home.join("http.sock"))
        .arg("--listen")
        .arg(format!("tcp://{address}:{PORT}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    // The token comes by the standard input, so that no other user sees it among the arguments.
    let given = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(token.as_bytes()));
    let status = child.wait().map_err(failed)?;
    given.map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cobd join ended with {status}; the log of the job has its reason"))
    }
}

/// Starts the daemon of a machine. It survives the job that asked for it.
fn start(home: &Path, programs: &Path) -> io::Result<()> {
    let log = File::options().create(true).append(true).open(home.join("cobd.log"))?;
    let mut command = Command::new(programs.join("cobd"));
    command
        .args(["run", "--config"])
        .arg(home.join(CONFIG))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    command.spawn().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_token_never_becomes_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let yard = Yard::open(folder.path()).expect("opened");
        for bad in ["", "..", "../../../../../etc/passwd", "0123456789abcdeg", "/0123456789abcdef"] {
            assert!(yard.home(bad).is_err(), "{bad}");
            assert!(yard.delete(bad).is_err(), "{bad}");
        }
        assert_eq!(yard.delete("0123456789abcdef"), Ok(()));
    }

    #[test]
    fn addresses_differ() {
        let kept = |address| Kept {
            token: "t".to_owned(),
            host: "h".to_owned(),
            tenant: "t".to_owned(),
            cluster: "c".to_owned(),
            address,
        };
        let folder = Path::new("/var/lib/cobhub/providers/process");
        let first = free_address(folder, &[]).expect("free");
        let second = free_address(folder, &[kept(first)]).expect("free");
        let of_other_hub = free_address(Path::new("/tmp/hub/providers/process"), &[]).expect("free");
        assert_ne!(first, second);
        assert_ne!(first, of_other_hub);
        for address in [first, second, of_other_hub] {
            let [net, a, b, c] = address.octets();
            assert!(
                net == 127 && (16..=254).contains(&a) && (1..=254).contains(&b) && (1..=254).contains(&c),
                "{address}"
            );
        }
    }
}

//! Providers: programs that create and delete machines.
//!
//! A provider is a program `cob-provider-TYPE` in the hub's folder of providers; the type `process` is part of the hub.
//! The hub calls it with an action as its only argument and a [`Request`] as JSON on standard input. The program answers
//! with an [`Answer`] as JSON on standard output and exits with 0, or with a [`Refusal`] and another status. Standard
//! error goes to the log of the job.
//!
//! A call may be repeated, and its answer may be lost at any moment. So the hub writes a token to its disk before it
//! calls `create`, the provider marks the machine with the token, and a machine that already has the token is adopted:
//! by the provider, or by the hub with `list` for a provider that ignores tokens.

pub mod process;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::job::{Failure, Log, Stop};

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// The longest answer, in bytes.
const LONGEST: u64 = 4 << 20;
/// The longest duration of a call.
const LIMIT: Duration = Duration::from_mins(10);

/// The actions of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Creates a machine, or returns the machine with the token.
    Create,
    /// Waits until the machine's daemon can answer.
    Confirm,
    /// Deletes the machine with the token, and ends when it is gone. A missing machine is no error.
    Delete,
    /// Lists all machines that the hub has created.
    List,
}

impl Action {
    /// The argument of the program.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Confirm => "confirm",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }

    /// The action of an argument.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Create, Self::Confirm, Self::Delete, Self::List].into_iter().find(|action| action.word() == word)
    }
}

/// What a provider is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The folder for the state of the provider.
    pub state: PathBuf,
    /// The settings of the provider in the catalogue.
    pub settings: Map<String, Value>,
    /// The machine; absent for `list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<WantedMachine>,
}

/// The machine that a provider is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WantedMachine {
    /// The token: a label that the machine has to carry.
    pub token: String,
    /// The host name.
    pub host: String,
    /// The tenant, for a label.
    pub tenant: String,
    /// The cluster, for a label.
    pub cluster: String,
    /// The provider's values for the type of hardware.
    pub hardware: Value,
    /// The provider's values for the type of image.
    pub image: Value,
    /// How the machine's daemon becomes a member of the cluster.
    pub join: Join,
    /// The folder with the program `cobd`.
    pub programs: PathBuf,
    /// The provider's name for the machine, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// How a daemon becomes a member of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// It reads the depot in this folder: daemon and hub are on one machine.
    Depot(PathBuf),
    /// The machine runs `cobd join SERVER TOKEN` once, at its first start.
    Token {
        /// The server of the depot: `tcp://IP:PORT`.
        server: String,
        /// The token: it makes its holder the host, once, and is as secret as a password.
        token: String,
    },
}

/// The answer to `create` and `confirm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The provider's name for the machine.
    pub id: String,
    /// The address of its daemon, `tcp://IP:PORT`; needed at the latest by `confirm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// The answer to `list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineList {
    /// The machines.
    pub machines: Vec<ListedMachine>,
}

/// A machine that a provider has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedMachine {
    /// The provider's name for the machine.
    pub id: String,
    /// The token that it carries.
    pub token: String,
    /// The host name.
    #[serde(default)]
    pub host: String,
    /// The address of its daemon.
    #[serde(default)]
    pub address: Option<String>,
}

/// The answer to `delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Deleted {}

/// A refusal or failure of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What happened.
    pub error: String,
    /// Whether the same call may succeed later.
    #[serde(default)]
    pub retry: bool,
}

/// Calls the programs of providers.
#[derive(Debug, Clone)]
pub struct Providers {
    folder: PathBuf,
    state: PathBuf,
}

/// A failed call.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It may succeed later.
    Passing(Failure),
    /// It will not succeed by repetition.
    Final(Failure),
    /// The job was told to stop.
    Canceled,
}

impl Providers {
    /// Providers with their programs and their state in these folders.
    pub fn new(folder: PathBuf, state: PathBuf) -> Self {
        Self { folder, state }
    }

    /// The folder for the state of a provider.
    pub fn state(&self, provider: &str) -> PathBuf {
        self.state.join(provider)
    }

    fn program(&self, sort: &str) -> Result<(PathBuf, Vec<&'static str>), Failure> {
        if sort == process::SORT {
            let own =
                std::env::current_exe().map_err(|e| Failure::new(format!("the hub's own program is gone: {e}")))?;
            return Ok((own, vec!["provider"]));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let program = self.folder.join(format!("cob-provider-{sort}"));
        if !sort.bytes().all(plain) || !program.is_file() {
            let what = format!("no provider of the type {sort:?}");
            let hint = format!("install its program as {}", self.folder.join("cob-provider-TYPE").display());
            return Err(Failure::new(what).hint(hint));
        }
        Ok((program, Vec::new()))
    }

    /// Calls a provider.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        sort: &str,
        action: Action,
        request: &Request,
        log: &Log,
        stop: &Stop,
    ) -> Result<T, CallError> {
        let (program, words) = self.program(sort).map_err(CallError::Final)?;
        let name = format!("the provider {sort}");
        let broken = |what: String| CallError::Passing(Failure::new(format!("{name}: {}: {what}", action.word())));
        let mut command = tokio::process::Command::new(&program);
        if sort == process::SORT {
            command.arg0(crate::cli::NAME);
        }
        let mut child = command
            .args(words)
            .arg(action.word())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.stdio().map_err(|e| broken(e.to_string()))?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| broken(format!("{}: {e}", program.display())))?;
        let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let text = serde_json::to_vec(request).map_err(|e| broken(e.to_string()))?;
        let exchange = async {
            if let Some(mut input) = input {
                // A program that does not read its input may still answer.
                let _ = input.write_all(&text).await;
            }
            let mut answer = Vec::new();
            if let Some(output) = output {
                output.take(LONGEST + 1).read_to_end(&mut answer).await?;
            }
            std::io::Result::Ok((answer, child.wait().await?))
        };
        let (answer, status) = tokio::select! {
            done = tokio::time::timeout(LIMIT, exchange) => match done {
                Ok(done) => done.map_err(|e| broken(e.to_string()))?,
                Err(_) => return Err(broken(format!("no answer within {} minutes", LIMIT.as_secs() / 60))),
            },
            () = stop.told() => return Err(CallError::Canceled),
        };
        group.has_ended();
        if answer.len() as u64 > LONGEST {
            return Err(broken(format!("the answer is longer than {LONGEST} bytes")));
        }
        if !status.success() {
            return Err(match serde_json::from_slice::<Refusal>(&answer) {
                Ok(refusal) => {
                    let failure = Failure::new(format!("{name}: {}: {}", action.word(), refusal.error));
                    if refusal.retry { CallError::Passing(failure) } else { CallError::Final(failure) }
                }
                Err(_) => broken(format!("ended with {status}; see the log of the job")),
            });
        }
        serde_json::from_slice(&answer).map_err(|error| {
            let shown: String = String::from_utf8_lossy(&answer).chars().take(60).collect();
            broken(format!("the answer {shown:?} is not valid: {error}"))
        })
    }
}

/// The process group of a call. It is killed if the call is interrupted: its programs must not create a machine after the
/// next call has asked for all machines.
struct Group(Option<Pid>);

impl Group {
    /// The call has ended by itself; what it has left behind may go on.
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The leader is not reaped yet, so the number is its own.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Whether a program of this type is installed, for the check of a catalogue.
pub fn is_installed(folder: &Path, sort: &str) -> bool {
    sort == process::SORT || folder.join(format!("cob-provider-{sort}")).is_file()
}

//! Runs commands on a host through the program `ssh`: with its usual configuration, agent and jump hosts.
//!
//! A command is a fixed script for `sh`, quoted as one word, with quoted arguments: no text of a user or a host is ever
//! a part of a script. Secrets and programs go through the standard input. The output of a host is read up to a limit,
//! and only lines that begin with [`MARK`] count: profiles and banners of a host may print arbitrary text.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cob_trust::enrol::Token;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::words::{clean_to, shell_word, span};

/// The prefix of each line of a script's answer.
const MARK: &str = "cob:";
/// The last line of a complete answer.
const END: &str = "end";
/// The line that says why a script failed.
const ERROR: &str = "error=";
/// The most bytes kept of the standard output and the standard error of a host.
const MOST_OUT: usize = 64 << 10;
const MOST_ERR: usize = 16 << 10;
/// The longest text of a host in an error, in characters.
const LONGEST: usize = 400;
/// The exit status of `ssh` for its own failures.
const OWN: i32 = 255;
/// How often a connection is tried that the other side closes before it starts, and the pause before the next attempt:
/// a server or a jump host that gets many connections at once rejects some of these.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);

/// The target of `ssh`: an alias of its configuration, `HOST`, `USER@HOST` or `ssh://USER@HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination(String);

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Neither `ssh` nor a program that it starts may read a part of the text as an option.
        let host = text.strip_prefix("ssh://").unwrap_or(text);
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if text.starts_with('-') || host.starts_with('-') || text.starts_with("ssh://-") {
            return Err(format!("{text:?} is not a destination for ssh: a name can't begin with `-`"));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-@:/[]%+".contains(c);
        if host.is_empty() || text.len() > 255 || !text.chars().all(fits) {
            return Err(format!(
                "{:?} is not a destination for ssh: write HOST, USER@HOST or ssh://USER@HOST:PORT",
                text
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The program `ssh` and its options.
#[derive(Debug, Clone)]
pub struct Ssh {
    /// The program.
    pub program: OsString,
    /// A configuration file in place of the user's.
    pub config: Option<PathBuf>,
    /// Options as in `ssh_config`; they precede the options that cobctl sets.
    pub options: Vec<String>,
    /// How long a connection attempt may take.
    pub connect_timeout: Duration,
    /// Whether `sudo` runs the script.
    pub sudo: bool,
}

/// The standard input of a script.
#[derive(Debug, Clone)]
pub enum Input {
    /// No input.
    Nothing,
    /// A program or a package.
    File(Arc<Vec<u8>>),
    /// A token, which must stay secret.
    Token(Token),
}

/// Why a script failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The program can't be started.
    #[error("the program {program} can't be started: {why}")]
    NoProgram {
        /// Its name.
        program: String,
        /// The error of the system.
        why: String,
    },
    /// There is no connection.
    #[error("ssh can't connect to {to}: {why}")]
    Unreachable {
        /// The destination.
        to: Destination,
        /// The last line that `ssh` printed.
        why: String,
    },
    /// The script took too long.
    #[error("{to} did not finish within {}", span(u64::try_from(.limit.as_nanos()).unwrap_or(u64::MAX)))]
    Late {
        /// The destination.
        to: Destination,
        /// The limit.
        limit: Duration,
    },
    /// The script reported an error.
    #[error("{0}")]
    Said(String),
    /// The script ended early, without an error message.
    #[error("the script on {to} was interrupted ({status}): {why}")]
    Broken {
        /// The destination.
        to: Destination,
        /// The exit status.
        status: String,
        /// The last line that the host printed.
        why: String,
    },
}

impl SshError {
    /// Whether the host was not reached, or the connection was lost; otherwise the script reported an error.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::NoProgram { .. } | Self::Unreachable { .. } | Self::Late { .. } => true,
            Self::Said(_) | Self::Broken { .. } => false,
        }
    }

    /// A hint for the operator.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NoProgram { .. } => "install OpenSSH's client, or name the program with --ssh".to_owned(),
            Self::Unreachable { to, why } if why.contains("Host key verification failed") => format!(
                "the host's key is not known here: compare it and say yes to `ssh {to}`, or add \
                 --ssh-option StrictHostKeyChecking=accept-new"
            ),
            Self::Unreachable { to, why } if why.contains("Permission denied") => format!(
                "passwords are not supported: `ssh -o BatchMode=yes {to} true` must work, with a key in the agent or an \
                 IdentityFile in ssh's configuration"
            ),
            Self::Unreachable { to, .. } => format!("`ssh -o BatchMode=yes {to} true` must work"),
            Self::Late { .. } => "repeat the command: it continues where it stopped".to_owned(),
            Self::Broken { why, .. } if why.contains("sudo") => {
                "sudo must not ask for a password (NOPASSWD in sudoers); or log in as root".to_owned()
            }
            Self::Said(_) | Self::Broken { .. } => String::new(),
        }
    }
}

impl Ssh {
    /// Runs a script with these arguments and returns the lines of its answer, without their marks.
    ///
    /// # Errors
    /// [`SshError`].
    pub async fn run(
        &self,
        to: &Destination,
        script: &str,
        args: &[&str],
        input: &Input,
        limit: Duration,
    ) -> Result<Vec<String>, SshError> {
        let mut attempt = 1;
        loop {
            let once = tokio::time::timeout(limit, self.once(to, script, args, input)).await;
            match once.unwrap_or_else(|_| Err(SshError::Late { to: to.clone(), limit })) {
                Err(SshError::Unreachable { why, .. }) if attempt < ATTEMPTS && is_turned_away(&why) => {
                    tokio::time::sleep(PAUSE * attempt).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn once(
        &self,
        to: &Destination,
        script: &str,
        args: &[&str],
        input: &Input,
    ) -> Result<Vec<String>, SshError> {
        let failed = |why: std::io::Error| SshError::NoProgram {
            program: self.program.to_string_lossy().into_owned(),
            why: why.to_string(),
        };
        let mut child = self.command(to, script, args, input).spawn().map_err(failed)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let give = async {
            if let Some(mut stdin) = stdin {
                // A script that reads no further input, or has ended, reports its own error.
                let _ = match input {
                    Input::Nothing => Ok(()),
                    Input::File(bytes) => stdin.write_all(bytes).await,
                    Input::Token(token) => stdin.write_all(token.reveal().as_bytes()).await,
                };
                let _ = stdin.shutdown().await;
            }
        };
        let ((), out, err) = tokio::join!(give, bounded(stdout, MOST_OUT), bounded(stderr, MOST_ERR));
        let status = child.wait().await.map_err(failed)?;
        judge(to, status.code(), &status.to_string(), &out, &err)
    }

    fn command(&self, to: &Destination, script: &str, args: &[&str], input: &Input) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        let seconds = self.connect_timeout.as_secs().max(1);
        for option in [
            "BatchMode=yes",
            &format!("ConnectTimeout={seconds}"),
            // A host that is gone is noticed within a minute.
            "ServerAliveInterval=15",
            "ServerAliveCountMax=4",
            // A host gets no access to the operator's agent, display or ports.
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "RequestTTY=no",
            "EscapeChar=none",
        ] {
            command.arg("-o").arg(option);
        }
        command.arg("--").arg(&to.0).arg(remote(self.sudo, script, args));
        let stdin = if matches!(input, Input::Nothing) { Stdio::null() } else { Stdio::piped() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

/// The command for the user's shell on the host, for any shell.
fn remote(sudo: bool, script: &str, args: &[&str]) -> String {
    let mut line = format!("{}sh -c {} cob", if sudo { "sudo -n -- " } else { "" }, shell_word(script));
    for arg in args {
        line.push(' ');
        line.push_str(&shell_word(arg));
    }
    line
}

/// Whether a server closed a connection before it started: the script has not run then.
fn is_turned_away(why: &str) -> bool {
    ["kex_exchange_identification", "ssh_exchange_identification", "Connection reset by", "Connection closed by"]
        .iter()
        .any(|words| why.contains(words))
}

/// Reads to the end, and keeps at most this many bytes.
async fn bounded(from: Option<impl AsyncRead + Unpin>, most: usize) -> String {
    let Some(mut from) = from else { return String::new() };
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let more = read.min(most.saturating_sub(kept.len()));
        kept.extend_from_slice(&buffer[..more]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The result of a script, from its exit status and output.
fn judge(to: &Destination, code: Option<i32>, status: &str, out: &str, err: &str) -> Result<Vec<String>, SshError> {
    let lines: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix(MARK)).collect();
    if let Some(why) = lines.iter().find_map(|line| line.strip_prefix(ERROR)) {
        return Err(SshError::Said(clean_to(why, LONGEST)));
    }
    match lines.split_last() {
        Some((&END, before)) if code == Some(0) => Ok(before.iter().map(|line| (*line).to_owned()).collect()),
        _ => {
            let words = err.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no error message");
            let why = clean_to(words, LONGEST);
            Err(if code == Some(OWN) {
                SshError::Unreachable { to: to.clone(), why }
            } else {
                SshError::Broken { to: to.clone(), status: status.to_owned(), why }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Destination {
        text.parse().expect(text)
    }

    #[test]
    fn a_destination_is_never_an_option_or_a_command() {
        for good in ["web1", "root@10.0.0.1", "ssh://adm@db.example:2222", "u@[fd00::1]", "fe80::1%eth0", "a-b"] {
            assert_eq!(at(good).to_string(), good);
        }
        for bad in [
            "",
            "-oProxyCommand=x",
            "root@-oProxyCommand=x",
            "-l@h",
            "a b",
            "a;b",
            "$(x)",
            "`x`",
            "a\nb",
            "ssh://-x",
            "u@",
            "ssh://",
            "a'b",
            "h|x",
            "a\\b",
            "ssh://u@-x",
            "h&",
        ] {
            bad.parse::<Destination>().expect_err(bad);
        }
    }

    #[test]
    fn scripts_and_arguments_arrive_as_they_are() {
        let args = ["it's", "", "a b", "$(touch x)", "`id`", "x\ny", "--", "\\"];
        let line = remote(false, "printf '[%s]' \"$0\" \"$@\"", &args);
        let said = std::process::Command::new("sh").arg("-c").arg(line).output().expect("sh");
        let said = String::from_utf8(said.stdout).expect("UTF-8");
        assert_eq!(said, "[cob][it's][][a b][$(touch x)][`id`][x\ny][--][\\]");
        assert!(remote(true, "x", &[]).starts_with("sudo -n -- sh -c 'x' cob"));
    }

    #[test]
    fn the_options_of_the_user_come_first_and_the_destination_last() {
        let ssh = Ssh {
            program: "ssh".into(),
            config: Some("/c".into()),
            options: vec!["ConnectTimeout=3".to_owned()],
            connect_timeout: Duration::from_secs(15),
            sudo: false,
        };
        let command = ssh.command(&at("web1"), "true", &[], &Input::Nothing);
        let args: Vec<_> = command.as_std().get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(args[..4], ["-F", "/c", "-o", "ConnectTimeout=3"]);
        assert!(args.contains(&"BatchMode=yes".to_owned()));
        assert_eq!(args[args.len() - 3..], ["--", "web1", "sh -c 'true' cob"]);
    }

    #[test]
    fn an_incomplete_answer_does_not_count() {
        let judge = |code, out: &str, err: &str| judge(&at("web1"), Some(code), "exit status", out, err);
        let whole = "Welcome!\ncob:arch=x86_64\nnoise\ncob:end\n";
        assert_eq!(judge(0, whole, ""), Ok(vec!["arch=x86_64".to_owned()]));
        let error = judge(0, "cob:arch=x86_64\n", "").expect_err("cut off");
        assert!(matches!(error, SshError::Broken { .. }) && !error.is_unreachable(), "{error}");
        assert_eq!(judge(1, "cob:error=no \u{1b}[2Jroom\n", ""), Err(SshError::Said("no \\u{1b}[2Jroom".into())));
        let error = judge(255, "", "x\nweb1: Permission denied (publickey).\n\n").expect_err("not let in");
        assert!(error.is_unreachable() && error.hint().contains("BatchMode"), "{error}");
        assert!(judge(255, "", "Host key verification failed.").expect_err("x").hint().contains("accept-new"));
        assert!(judge(1, "", "sudo: a password is required").expect_err("x").hint().contains("NOPASSWD"));
        assert!(is_turned_away("kex_exchange_identification: read: Connection reset by peer"));
    }

    #[tokio::test]
    async fn endless_output_of_a_host_is_bounded() {
        let flood = tokio::io::repeat(b'x').take(10 << 20);
        assert_eq!(bounded(Some(flood), 1000).await.len(), 1000);
    }
}

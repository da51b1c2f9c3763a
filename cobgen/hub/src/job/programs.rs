//! The programs that a job runs: `cobgen` and `cobctl`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;

use super::log::{Log, Stop};
use super::record::Failure;

/// The longest output that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// Runs programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    folder: PathBuf,
}

/// The output of a program.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) text: Vec<u8>,
}

/// Why a program has no output.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The program failed.
    Failed(Failure),
    /// The job was told to stop.
    Canceled,
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A refusal of `cobgen … --json`.
#[derive(Deserialize)]
struct Refused {
    diagnostics: Vec<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    message: String,
    severity: String,
    #[serde(default)]
    help: Option<String>,
}

impl Programs {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Runs a program to its end, or until the time limit.
    pub(crate) async fn run(
        &self,
        name: &str,
        args: &[OsString],
        limit: Duration,
        log: &Log,
        stop: &Stop,
    ) -> Result<Output, RunError> {
        log.line(&format!("$ {name} {}", words_of(args)));
        self.run_path(&self.folder.join(name), args, limit, log, stop).await
    }

    /// Runs a program of another folder.
    pub(crate) async fn run_path(
        &self,
        program: &Path,
        args: &[OsString],
        limit: Duration,
        log: &Log,
        stop: &Stop,
    ) -> Result<Output, RunError> {
        let failed = |error: std::io::Error| Failure::new(format!("can't run {}: {error}", program.display()));
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.stdio().map_err(failed)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take();
        let finish = async {
            let mut text = Vec::new();
            if let Some(output) = output {
                output.take(LONGEST).read_to_end(&mut text).await?;
            }
            std::io::Result::Ok(Output { status: child.wait().await?, text })
        };
        tokio::select! {
            done = tokio::time::timeout(limit, finish) => match done {
                Ok(done) => Ok(done.map_err(failed)?),
                Err(_) => {
                    let what = format!("`{} {}`", program.display(), words_of(args));
                    Err(Failure::new(format!("{what} did not end within {} s", limit.as_secs())).into())
                }
            },
            () = stop.told() => Err(RunError::Canceled),
        }
    }

    /// Runs `cobgen` and reads its JSON.
    pub(crate) async fn cobgen<T: DeserializeOwned>(
        &self,
        args: &[OsString],
        log: &Log,
        stop: &Stop,
    ) -> Result<T, RunError> {
        const LIMIT: Duration = Duration::from_mins(10);
        let output = self.run("cobgen", args, LIMIT, log, stop).await?;
        match serde_json::from_slice(&output.text) {
            Ok(value) => Ok(value),
            Err(error) => Err(refusal(&output.text)
                .unwrap_or_else(|| {
                    Failure::new(format!("cobgen ended with {} and without a valid answer: {error}", output.status))
                })
                .into()),
        }
    }
}

fn words_of(args: &[OsString]) -> String {
    args.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The first error of a refused model.
fn refusal(text: &[u8]) -> Option<Failure> {
    let refused: Refused = serde_json::from_slice(text).ok()?;
    let count = refused.diagnostics.iter().filter(|d| d.severity == "error").count();
    let first = refused.diagnostics.into_iter().find(|d| d.severity == "error")?;
    let more =
        if count > 1 { format!(" (and {} more errors, see the log of the job)", count - 1) } else { String::new() };
    Some(Failure { what: format!("the model is refused: {}{more}", first.message), hint: first.help })
}

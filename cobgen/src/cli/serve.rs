//! `cobgen serve`: serves generations to hosts over the network.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use cob_depot::tokens::Policy;
use cob_trust::Publishers;
use cob_types::PublicKey;
use cob_types::log::CleanLog;

use super::{Answer, CommandResult, Stop, Terminal};
use crate::serve::{ServeError, ServeOptions, Server};

/// The options of `cobgen serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen serve --depot site/depot
  cobgen serve --depot site/depot --listen tcp://10.0.0.1:7070 --policy manual

Hosts reach it with `depot = \"tcp://IP:PORT\"` and `depot_key` in cobd.toml; `cobgen enroll` enrols new hosts. \
Each host gets the manifests, their signatures and its own bundles only. Runs in the foreground until SIGTERM or \
SIGINT, and logs to the error output.

Exit status: 0 stopped by a signal; 2 wrong options or files; 3 it could not listen.")]
pub struct ServeArgs {
    /// Where generations are kept; created if it does not exist
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "tcp://0.0.0.0:7070", value_parser = address)]
    listen: SocketAddr,
    /// The file of the server's own key, made at the first start [default: server.key in the depot's folder]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// A publisher that new hosts trust, once for each [default: trust.toml in the depot's folder]
    #[arg(long, value_name = "KEY")]
    trust: Vec<PublicKey>,
    /// How many publishers must sign a generation
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trust")]
    threshold: usize,
    /// What accepts a host with a valid token
    #[arg(long, value_enum, default_value_t = By::Token)]
    policy: By,
    /// The log filter, in the syntax of `tracing`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// The token alone
    Token,
    /// A person, with `cobgen enroll --accept HOST`
    Manual,
}

pub(super) fn run(args: &ServeArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let trust = match args.trust.as_slice() {
        [] => None,
        keys => {
            let trust = Publishers::new(keys.iter().copied(), args.threshold);
            Some(trust.map_err(|error| Stop::plain(format!("--threshold: {error}")))?)
        }
    };
    log_to_stderr(&args.log).map_err(|error| Stop::plain(format!("--log: {error}")))?;
    let policy = match args.policy {
        By::Token => Policy::Token,
        By::Manual => Policy::Manual,
    };
    let options = ServeOptions { depot: args.depot.clone(), listen: args.listen, key: args.key.clone(), trust, policy };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::bind(&options).await.map_err(|error| {
            let listens = matches!(error, ServeError::Listen { .. });
            Stop::Plain(error.to_string(), if listens { Answer::NotReached } else { Answer::Bad })
        })?;
        let (depot, address, key) = (args.depot.display(), server.address(), server.key());
        writeln!(terminal.out, "serving {depot} at tcp://{address} with the key {key}")?;
        terminal.out.flush()?;
        tokio::select! {
            () = server.run() => {}
            () = until_told() => {}
        }
        Ok(Answer::Done)
    })
}

/// Parses `tcp://IP:PORT`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let rest = text.strip_prefix("tcp://").and_then(|rest| rest.parse().ok());
    rest.ok_or_else(|| "not of the form tcp://IP:PORT (names are not looked up)".to_owned())
}

/// Writes the log past the program's lock on its error output: several threads log.
fn log_to_stderr(filter: &str) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|e| e.to_string())?;
    let stderr = io::stderr();
    let colour = super::takes_colour(&stderr);
    let file = File::from(stderr.as_fd().try_clone_to_owned().map_err(|e| e.to_string())?);
    let file = Arc::new(file);
    let writer = move || CleanLog::new(file.clone(), colour);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    // A program that embeds this command may have a log already.
    let _ = log.try_init();
    Ok(())
}

async fn until_told() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

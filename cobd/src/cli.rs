//! The command line of `cobd`, also for programs that contain the daemon.

use std::ffi::OsString;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cob_trust::enrol::Token;
use cob_types::PublicKey;
use cob_types::log::CleanLog;
use cob_types::pipe::WhileRead;
use cob_types::words::clean_lines;
use tokio::sync::watch;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::identity;
use crate::join::{self as invite, Invitation, Joined};
use crate::permissions;
use crate::process::{close_to_others, pass_no_ignored_signals_on};
use crate::run::Program;

/// The daemon of one host: brings its change objects into their desired states, in an order
/// negotiated with the daemons of other hosts.
#[derive(Debug, Parser)]
#[command(
    name = "cobd",
    version,
    after_help = "\
Examples:
  cobd check-config /etc/cob/cobd.toml    report the errors of a configuration
  cobd init --config /etc/cob/cobd.toml   make this host's key for the model
  cobd run --config /etc/cob/cobd.toml    run the daemon in the foreground
  cobd api                                print the description of the API

A configuration needs two lines:
  host = \"n1\"                the name of this host in the model
  depot = \"/srv/cob/depot\"   the folder that `cobgen generate --depot` writes"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make this host's key, and print its public half for the model
    #[command(after_help = "\
Examples:
  cobd init --config /etc/cob/cobd.toml          make the key at `identity`
  cobd init --state-dir /var/lib/cob             make it without a configuration
  cobd init --config /etc/cob/cobd.toml --next   make the next key of the host

The key file gets mode 0600. An existing key file is never overwritten: its
public half is printed again.")]
    Init {
        /// The configuration file.
        #[arg(long, value_name = "FILE", default_value = "/etc/cob/cobd.toml", conflicts_with = "state_dir")]
        config: PathBuf,
        /// The state folder, where there is no configuration yet.
        #[arg(long, value_name = "DIR")]
        state_dir: Option<PathBuf>,
        /// Make the next key, beside the present one.
        #[arg(long)]
        next: bool,
    },
    /// Run the daemon in the foreground until SIGTERM or SIGINT.
    Run {
        /// The configuration file.
        #[arg(long, value_name = "FILE", default_value = "/etc/cob/cobd.toml")]
        config: PathBuf,
    },
    /// Read a configuration and report every error in it.
    CheckConfig {
        /// The configuration file.
        #[arg(value_name = "FILE", default_value = "/etc/cob/cobd.toml")]
        config: PathBuf,
    },
    /// Make this host a member of a cluster, with a token of `cobgen enroll`.
    Join(Join),
    /// Print the description of the HTTP API: OpenAPI 3.1, as `GET /v1/openapi.json` answers
    Api,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobd join tcp://10.0.0.1:7070 cob1.…          as `cobgen enroll` prints it
  cobd join tcp://10.0.0.1:7070 - < token       a token that `ps` does not show

1. Makes this host's key in the state folder (mode 0600), once.
2. Shows the token to the server; the token names the server's key.
3. Writes the configuration: `host`, `depot`, `depot_key`, `trust`, `threshold`.
   An existing configuration is never overwritten.

The command can be repeated after a failure.

Exit status: 0 this host is a member; 1 refused, or no server answers; 2 wrong
usage.")]
struct Join {
    /// Where `cobgen serve` is: tcp://IP:PORT.
    #[arg(value_name = "ADDRESS", value_parser = cob_types::link::parse_address)]
    server: std::net::SocketAddr,
    /// The token; `-` reads it from the standard input.
    token: String,
    /// The configuration to be written.
    #[arg(long, value_name = "FILE", default_value = "/etc/cob/cobd.toml")]
    config: PathBuf,
    /// The state folder of the daemon.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cob")]
    state_dir: PathBuf,
    /// The socket of the API [default: /run/cob/cobd.sock].
    #[arg(long, value_name = "PATH")]
    http: Option<PathBuf>,
    /// The address at which the daemon listens [default: the host's address in the manifest].
    #[arg(long, value_name = "ADDRESS", value_parser = cob_types::link::parse_address)]
    listen: Option<std::net::SocketAddr>,
    /// Let the daemon switch to each new generation without an order.
    #[arg(long)]
    follow: bool,
    /// How many seconds to wait until an administrator accepts the key, if the server requires it.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait: u64,
}

/// Exit code for invalid input or usage.
const USAGE: u8 = 2;
/// Exit code if the daemon could not start or continue.
const FAILED: u8 = 1;

/// Runs the command line; `program` is the program that the daemon executes to run itself again.
#[must_use]
pub fn run(args: Vec<OsString>, program: Program) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and are no failures; clap distinguishes them.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let (path, run) = match &cli.command {
        Command::Init { config, state_dir, next } => return init(config, state_dir.as_deref(), *next),
        Command::Join(options) => return join(options),
        Command::Api => return say(crate::web::openapi().trim_end()),
        Command::Run { config } => (config, true),
        Command::CheckConfig { config } => (config, false),
    };
    if run && let Err(error) = close_to_others() {
        complain(&format!("this process can't be closed to others: {error}"));
        return ExitCode::from(FAILED);
    }
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    // A user who may write the file could replace the depot and the publishers.
    if let Err(error) = permissions::believed(path) {
        complain(&error.to_string());
        return ExitCode::from(USAGE);
    }
    if !run {
        return say(&format!("{}: in order (host {})", path.display(), config.host));
    }
    match live(config, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(FAILED)
        }
    }
}

fn read(path: &Path) -> Result<Config, ExitCode> {
    Config::read(path).map_err(|error| {
        error.0.iter().for_each(|line| complain(line));
        ExitCode::from(USAGE)
    })
}

/// Makes this host's key, or shows the existing key.
fn init(config: &Path, state_dir: Option<&Path>, next: bool) -> ExitCode {
    let identity = match state_dir {
        Some(folder) => folder.join(crate::config::IDENTITY),
        None => match read(config) {
            Ok(config) => config.identity,
            Err(code) => return code,
        },
    };
    match identity::init(&identity, next) {
        Ok(made) => {
            // Only the key on stdout: it goes into a model.
            let word = if made.new { "new key" } else { "the key that was there" };
            let _ = writeln!(std::io::stderr(), "{}: {word}", made.path.display());
            say(&made.public.to_string())
        }
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(FAILED)
        }
    }
}

fn join(options: &Join) -> ExitCode {
    let told = match options.token.as_str() {
        "-" => std::io::read_to_string(std::io::stdin().take(4096)).map_err(|e| format!("standard input: {e}")),
        token => Ok(token.to_owned()),
    };
    let token = match told.and_then(|text| text.trim().parse::<Token>().map_err(|e| e.to_string())) {
        Ok(token) => token,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    // Runners work in folders of their own: no path in the configuration may depend on the present folder.
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let host = token.host().clone();
    let invitation = Invitation {
        server: options.server,
        token,
        config: whole(&options.config),
        state_dir: whole(&options.state_dir),
        http: options.http.as_deref().map(whole),
        listen: options.listen,
        follow: options.follow,
        wait: std::time::Duration::from_secs(options.wait),
    };
    let waits = |key: &PublicKey| {
        let _ = writeln!(
            std::io::stderr(),
            "A person has to accept this host's key {key}: `cobgen enroll --accept {host}` where the depot is. Waiting."
        );
    };
    let config = invitation.config.display();
    match invite::join(&invitation, waits) {
        Ok(Joined::New(key)) => say(&format!("{host} is a member with the key {key}; {config} is written")),
        Ok(Joined::Again(key)) => say(&format!(
            "{host} had lost its key and is a member again, with the key {key}; {config} is as it was. Its former key is \
             revoked once `cobgen generate` and `cobctl switch latest` have told all hosts"
        )),
        Ok(Joined::Already) => say(&format!("{host} is a member already; {config} is as it was")),
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(FAILED)
        }
    }
}

/// Prints a result. A failed write is an error: the result may be a key for a model.
fn say(what: &str) -> ExitCode {
    let mut out = WhileRead::new(std::io::stdout());
    match writeln!(out, "{what}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("can't write the output: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

fn complain(what: &str) {
    // A failed write changes no exit code.
    let _ = writeln!(std::io::stderr(), "error: {}", clean_lines(what));
}

/// Runs a daemon in this thread until it ends.
fn live(config: Config, program: Program) -> Result<(), String> {
    log_to_stderr(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let lived = runtime.block_on(async {
        if let Err(error) = pass_no_ignored_signals_on() {
            tracing::warn!(%error, "actions may ignore signals, because the process that started this daemon ignored signals");
        }
        let daemon = Daemon::start(config, program).await.map_err(|e| e.to_string())?;
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(until_told(stop));
        daemon.run(stopped).await.map_err(|e| e.to_string())
    });
    // A thread that waits for the depot's server does not delay the end.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    lived
}

/// Parses the log filter.
///
/// # Errors
/// A text that describes the error.
pub(crate) fn log_filter(text: &str) -> Result<tracing_subscriber::EnvFilter, String> {
    tracing_subscriber::EnvFilter::try_new(text).map_err(|e| format!("`log`: {text:?} is no filter: {e}"))
}

fn log_to_stderr(filter: &str) -> Result<(), String> {
    let filter = log_filter(filter)?;
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none()
        && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || CleanLog::new(std::io::stderr(), colour))
        .with_ansi(colour)
        .try_init()
        .map_err(|e| e.to_string())
}

async fn until_told(stop: watch::Sender<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    stop.send_replace(true);
}

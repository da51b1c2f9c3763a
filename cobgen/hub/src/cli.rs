//! The command line of `cobhub`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use cob_hub_api::Name;
use cob_jobs::process;
use tokio::signal::unix::{SignalKind, signal};

use crate::circle::Circle;
use crate::hub::{Config, Hub, KeySettings};
use crate::provider::{self, Action};
use crate::{audit, durable, job, server};

/// The addresses of all members of an etcd.
type Members = Vec<String>;

/// The name of the program. A program with several names acts as the hub if it is called by this name.
pub const NAME: &str = "cobhub";

/// The hub of many clusters: users, catalogue, jobs and machines
#[derive(Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the hub in a folder
    #[command(after_help = "\
Examples:
  cobhub serve --folder /var/lib/cobhub
  cobhub serve --folder hub --listen 127.0.0.1:7080
  cobhub serve --folder hub --store etcd:http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
  curl --unix-socket hub/hub.sock http://hub/v1/clusters?tenant=web

Whoever may open FOLDER/hub.sock owns the hub. Other callers send a token:
  curl -H 'Authorization: Bearer cob_…' http://127.0.0.1:7080/v1/clusters

Exit status: 0 it was asked to stop; 1 it could not start, or its store failed.")]
    Serve(Box<ServeArgs>),
    /// Verify the chain of an audit
    #[command(after_help = "\
Example:
  cobhub verify-audit /var/lib/cobhub/audit

Exit status: 0 the chain is whole; 1 it is broken.")]
    VerifyAudit {
        /// The file
        file: PathBuf,
    },
    /// Execute a job: the hub runs this
    #[command(hide = true)]
    Job {
        /// The folder of the job
        folder: PathBuf,
    },
    /// Perform an action of the provider `process`: jobs run this
    #[command(hide = true)]
    Provider {
        /// create, confirm, delete or list
        #[arg(value_parser = |word: &str| Action::of(word).ok_or("create, confirm, delete or list"))]
        action: Action,
    },
}

/// The options of `cobhub serve`.
#[derive(clap::Args)]
struct ServeArgs {
    /// The folder with all data of the hub; made if it does not exist
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Listen on this loopback address, too
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// The address of the page at a proxy before --listen, for instance https://hub.example.org
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    page: Option<String>,
    /// The folder with cobd, cobgen and cobctl [default: the folder of this program]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// The folder with programs `cob-provider-TYPE` [default: FOLDER/provider-programs]
    #[arg(long, value_name = "DIR")]
    providers: Option<PathBuf>,
    /// The folder in which providers keep their state; hubs of a circle need the same [default: FOLDER/providers]
    #[arg(long, value_name = "DIR")]
    provider_state: Option<PathBuf>,
    /// Join the hubs that share this etcd, as etcd:http://HOST:PORT,… with all members: one hub leads, the others follow
    #[arg(long, value_name = "STORE", value_parser = Circle::members)]
    store: Option<Members>,
    /// The beginning of the hubs' keys in etcd
    #[arg(long, value_name = "TEXT", default_value = "cob/", requires = "store")]
    store_prefix: String,
    /// The name of this hub among the hubs of an etcd [default: the name of this machine]
    #[arg(long, value_name = "NAME", requires = "store")]
    name: Option<Name>,
    /// The lease of clusters that ask for none, in seconds [default: they live until they are deleted]
    #[arg(long, value_name = "SECONDS")]
    default_lease: Option<u64>,
    /// The longest lease, in seconds
    #[arg(long, value_name = "SECONDS")]
    longest_lease: Option<u64>,
    /// How long before the end of a lease the callback hears of it, in seconds; three quarters of a shorter lease pass first
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    lease_warning: u64,
    /// The longest duration of a switch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    switch_limit: u64,
    /// The most jobs at a time
    #[arg(long, value_name = "N", default_value_t = 20)]
    parallel_jobs: usize,
    /// A file with log-ins that other systems check: LDAP directories, providers of OpenID Connect
    #[arg(long, value_name = "FILE")]
    log_ins: Option<PathBuf>,
    /// A program that hears of jobs and of leases that end soon, as `PROGRAM before|succeeded|failed|lease FILE`; the
    /// file describes the event as JSON. A status other than 0 before the job forbids it
    #[arg(long, value_name = "PROGRAM")]
    callback: Option<PathBuf>,
    /// The public key of a publisher; once for each. With a publisher, hosts and hub prove their identities, and hosts
    /// accept only signed generations. Without, all machines are on this machine and prove nothing
    #[arg(long = "publisher", value_name = "KEY")]
    publishers: Vec<String>,
    /// How many publishers must sign a generation
    #[arg(long, value_name = "N", default_value_t = 1, requires = "publishers")]
    threshold: usize,
    /// A program that is asked for signatures, as `PROGRAM DEPOT GENERATION` [default: people sign with `cobgen sign`]
    #[arg(long, value_name = "PROGRAM", requires = "publishers")]
    signer: Option<PathBuf>,
    /// The address at which hosts reach this machine, for generations
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", requires = "publishers")]
    depot_address: IpAddr,
    /// The first port at which hosts reach generations; each cluster has a port
    #[arg(long, value_name = "PORT", default_value_t = 7100, requires = "publishers")]
    depot_ports: u16,
}

/// Runs a command line, which starts with the program's name.
pub fn run(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = Args::parse_from(line).command;
    let result = match command {
        Command::Provider { action } => return provider::process::run(action).into(),
        Command::Job { folder } => return execute(&folder).into(),
        Command::VerifyAudit { file } => verify(&file),
        Command::Serve(args) => {
            let (listen, page) = (args.listen, args.page.clone());
            config(*args).and_then(|config| serve(config, listen, page.as_deref()))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard error; nobody may read it.
fn tell(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The settings of a hub, with absolute paths.
fn config(args: ServeArgs) -> anyhow::Result<Config> {
    let folder = args.folder;
    durable::make_folder(&folder).with_context(|| format!("can't make the folder {}", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| format!("can't find {}", folder.display()))?;
    let own = || {
        let program = std::env::current_exe().context("can't find this program")?;
        Ok::<_, anyhow::Error>(program.parent().unwrap_or(Path::new("/")).to_owned())
    };
    let programs = args.programs.map_or_else(own, Ok)?;
    for name in ["cobd", "cobgen", "cobctl"] {
        anyhow::ensure!(
            programs.join(name).is_file(),
            "there is no program {name} in {}; name its folder with --programs",
            programs.display()
        );
    }
    let keys = KeySettings {
        publishers: args.publishers,
        threshold: args.threshold,
        signer: args.signer.map(std::path::absolute).transpose()?,
        address: args.depot_address,
        first_port: args.depot_ports,
    };
    let circle = match args.store {
        Some(members) => {
            let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").context("this machine has no name");
            let hub = args.name.map_or_else(machine, |name| Ok(name.to_string()))?;
            Some(Circle { members, prefix: args.store_prefix, hub: hub.trim().to_owned() })
        }
        None => None,
    };
    let provider_state = args.provider_state.map(std::path::absolute).transpose()?;
    let providers = args.providers.map(std::path::absolute).transpose()?;
    let config = Config {
        providers: providers.unwrap_or_else(|| folder.join("provider-programs")),
        provider_state: provider_state.unwrap_or_else(|| folder.join("providers")),
        circle,
        folder,
        programs: programs.canonicalize()?,
        default_lease_s: args.default_lease,
        longest_lease_s: args.longest_lease,
        lease_warning_s: args.lease_warning,
        switch_limit_s: args.switch_limit,
        parallel_jobs: args.parallel_jobs,
        callback: args.callback.map(std::path::absolute).transpose()?,
        log_ins: args.log_ins.map(std::path::absolute).transpose()?,
        keys: Some(keys).filter(|keys| !keys.publishers.is_empty()),
    };
    Ok(config)
}

fn serve(config: Config, listen: Option<SocketAddr>, page: Option<&str>) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let socket = config.folder.join("hub.sock");
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hub = Hub::open(config).await?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        server::serve(hub, &socket, listen, page, stop).await
    })
}

fn execute(folder: &Path) -> u8 {
    // The lock lives as long as the process: it is the proof of life.
    let Ok(_alive) = process::begin(folder) else { return 4 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(job::execute(folder)),
        Err(_) => 3,
    }
}

fn verify(file: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    let end = audit::verify(file)?;
    writeln!(std::io::stdout(), "the chain is whole: {} lines, the last has the hash {}", end.lines, end.hash)?;
    Ok(())
}

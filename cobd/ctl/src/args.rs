//! The command line: arguments and help texts.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args as ClapArgs, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use cob_depot::GenerationName;
use cob_types::{CobId, GenerationNumber, HostName, PublicKey, StateName};

use crate::targets::HostArg;
use crate::words::parse_span;

mod help;
mod hosts;
mod looks;
mod operations;
mod run;
mod words;

pub use hosts::{ArtefactArgs, BootstrapArgs, HostAt, SshArgs, UpgradeArgs};
pub use looks::{
    CheckArgs, DiffArgs, DurationsArgs, ExplainArgs, FactsArgs, GraphArgs, GraphFormat, HistoryArgs, LogsArgs,
    NotifyArgs, OutputArgs, PageArgs, PlanArgs, ReportArgs, StatusArgs, WatchArgs,
};
pub use operations::{DrainArgs, Selection, StopArgs};
pub use run::RunArgs;
pub use words::{
    AtMost, BudgetArgs, CancelArgs, DiscardArgs, FenceArgs, LimitArgs, MarkDepartedArgs, OnFailureArg, OutcomesArgs,
    RetryArgs, RollbackArgs, SwitchArgs,
};

/// Shows the state of hosts, explains it, and gives orders.
#[derive(Debug, Parser)]
#[command(name = "cobctl", version, about, long_about = None, after_help = help::OVERVIEW, max_term_width = 100)]
pub struct Args {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Depot folder; its newest generation names the hosts
    #[arg(long, global = true, env = "COB_DEPOT", value_name = "DIR")]
    pub depot: Option<PathBuf>,

    /// Ask this daemon: unix:/PATH, tcp://127.0.0.1:PORT, NAME=ADDR or a host of the depot; may be repeated
    #[arg(long = "host", global = true, value_name = "ADDR")]
    pub hosts: Vec<HostArg>,

    /// Ask the daemon with this socket. COB_SOCKET is the socket of the local daemon, which is asked if neither a depot nor
    /// a host is named
    #[arg(long, global = true, env = "COB_SOCKET", value_name = "PATH", default_value = "/run/cob/cobd.sock")]
    pub socket: PathBuf,

    /// The options given in the command line itself
    #[arg(skip)]
    pub explicit: Explicit,

    /// Key that the daemon at --host must prove; without it, the key in the depot
    #[arg(long = "host-key", global = true, value_name = "KEY")]
    pub host_keys: Vec<PublicKey>,

    /// Your operator key [default: $XDG_CONFIG_HOME/cob/operator.key, if present]
    #[arg(long, global = true, env = "COB_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// File of your token, instead of a key; COB_TOKEN holds the token itself
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Publisher whose signature on generations is accepted; may be repeated
    #[arg(long = "trust", global = true, value_name = "KEY")]
    pub trust: Vec<PublicKey>,

    /// Number of publishers that must have signed
    #[arg(long, global = true, value_name = "N", requires = "trust")]
    pub threshold: Option<usize>,

    /// Settings file: trust, threshold, depot, key [default: $XDG_CONFIG_HOME/cob/cobctl.toml]
    #[arg(long, global = true, env = "COB_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Time limit for the answer of each host; for orders at least a minute
    #[arg(long, global = true, value_name = "DURATION", default_value = "5s", value_parser = parse_span)]
    pub timeout: Duration,

    /// The epoch of the hub that gives the order; hosts refuse an earlier epoch than they know
    #[arg(long, global = true, hide = true, value_name = "N")]
    pub epoch: Option<u64>,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// When to use colour; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

/// Options that were given in the command line itself: these take precedence over the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explicit {
    /// `--socket`.
    pub socket: bool,
    /// `--depot`.
    pub depot: bool,
}

impl Args {
    /// The command line with its help texts, and with the commands that a program adds: only the top level explains the
    /// options of every command.
    #[must_use]
    pub fn described(added: Option<&Group>) -> clap::Command {
        help::described(added)
    }

    /// Reads a command line that starts with the program's name. An empty variable counts as not set.
    ///
    /// # Errors
    /// The fault of the command line, or the requested help.
    pub fn read<T: Into<OsString> + Clone>(line: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        Self::of(&without_empty_variables(Self::described(None)).try_get_matches_from(line)?)
    }

    fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::from_arg_matches(matches)?;
        let told = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        args.global.explicit = Explicit { socket: told("socket"), depot: told("depot") };
        Ok(args)
    }
}

/// A group of commands that a program adds to the commands of this library.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Its heading in the list of commands.
    pub heading: &'static str,
    /// Adds the commands to a command line.
    pub add: fn(clap::Command) -> clap::Command,
    /// The options of every command that the commands use, besides `--color`.
    pub options: &'static [&'static str],
}

/// A command line that was read.
#[derive(Debug)]
pub enum Line {
    /// A command of this library.
    Own(Args),
    /// A command of the program.
    Added(ArgMatches, Global),
}

impl Line {
    /// Reads a command line like [`Args::read`], with the commands of a program.
    ///
    /// # Errors
    /// The fault of the command line, or the requested help.
    pub fn read(line: impl IntoIterator<Item = OsString>, added: Option<&Group>) -> Result<Self, clap::Error> {
        let matches = without_empty_variables(Args::described(added)).try_get_matches_from(line)?;
        match matches.subcommand_name() {
            Some(name) if !Command::has_subcommand(name) => {
                let global = Global::from_arg_matches(&matches)?;
                Ok(Self::Added(matches, global))
            }
            Some(_) | None => Args::of(&matches).map(Self::Own),
        }
    }
}

/// The command line without variables whose value is empty: `COB_KEY=` in front of a command is how a shell user
/// cancels an exported variable.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
        if empty { arg.env(None) } else { arg }
    });
    command.mut_subcommands(without_empty_variables)
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show hosts and change objects; exit 0 only if all converged
    #[command(after_help = help::STATUS)]
    Status(StatusArgs),
    /// Check now; exit 0 only if all objects are in desired states
    #[command(after_help = words::CHECK)]
    Check(CheckArgs),
    /// Show hosts and change objects as they change
    #[command(after_help = help::WATCH)]
    Watch(WatchArgs),
    /// Send notices of failures, switches and drift to people
    #[command(after_help = help::NOTIFY)]
    Notify(NotifyArgs),
    /// Show the cluster in a browser, live, and give orders there
    #[command(after_help = help::PAGE)]
    Page(PageArgs),
    /// Draw change objects and their needs: SVG, Graphviz, Mermaid
    #[command(after_help = help::GRAPH)]
    Graph(GraphArgs),
    /// Explain why an object or host waits, down to the first cause
    #[command(after_help = words::EXPLAIN)]
    Explain(ExplainArgs),
    /// Show the merged history of the hosts
    #[command(after_help = help::HISTORY)]
    History(HistoryArgs),
    /// Show all change objects at a past moment, or what changed
    #[command(after_help = help::AT)]
    At(crate::commands::at::AtArgs),
    /// Show a past switch step by step, with its waits
    #[command(after_help = help::REPLAY)]
    Replay(crate::commands::replay::ReplayArgs),
    /// Report a switch: failures, interruptions, waits; also as HTML
    #[command(after_help = help::REPORT)]
    Report(ReportArgs),
    /// Show what a switch would do now; changes nothing
    #[command(after_help = help::PLAN)]
    Plan(PlanArgs),
    /// Print how long transitions took: a file for `cobgen plan`
    #[command(after_help = help::DURATIONS)]
    Durations(DurationsArgs),
    /// Print hardware and system of the hosts: a file for a model
    #[command(after_help = help::FACTS)]
    Facts(FactsArgs),
    /// Switch the hosts to a generation, or wait for the active one
    #[command(after_help = words::SWITCH)]
    Switch(SwitchArgs),
    /// Switch all hosts back to an earlier generation
    #[command(after_help = help::ROLLBACK)]
    Rollback(RollbackArgs),
    /// Retry failed change objects
    #[command(after_help = words::RETRY)]
    Retry(RetryArgs),
    /// Stop services and their dependents, until `cobctl start`
    #[command(after_help = operations::STOP)]
    Stop(StopArgs),
    /// Start stopped services, and dependents stopped with them
    #[command(after_help = operations::START)]
    Start(StopArgs),
    /// Restart services, and stop dependents meanwhile
    #[command(after_help = operations::RESTART)]
    Restart(StopArgs),
    /// Stop all services of a host for maintenance, or reboot it
    #[command(after_help = operations::DRAIN)]
    Drain(DrainArgs),
    /// Run a command on hosts at once, and show its output
    #[command(after_help = run::RUN)]
    Run(Box<RunArgs>),
    /// Start no new transitions; running ones finish
    Pause,
    /// Start transitions again after `pause` or `cancel`
    Resume,
    /// Cancel a switch under way: hold it or roll it back
    #[command(after_help = words::CANCEL)]
    Cancel(CancelArgs),
    /// Discard a prepared generation that was not started
    #[command(after_help = words::DISCARD)]
    #[command(alias = "call-off")]
    Discard(DiscardArgs),
    /// Limit how many change objects of each host run transitions
    #[command(after_help = words::LIMIT)]
    Limit(LimitArgs),
    /// Change the tokens of a budget until the next generation
    #[command(after_help = words::BUDGET)]
    Budget(BudgetArgs),
    /// Declare a host dead: release its locks on other hosts
    #[command(after_help = help::FENCE)]
    Fence(FenceArgs),
    /// Mark an unremovable change object as removed
    #[command(after_help = words::DECLARE_FINAL)]
    #[command(alias = "declare-final")]
    MarkDeparted(MarkDepartedArgs),
    /// Show past switches: operator, times, result on each host
    #[command(after_help = words::OUTCOMES)]
    Outcomes(OutcomesArgs),
    /// Show the output of the last action or check, or of a run
    #[command(after_help = "The running output of a service: `cobctl logs`.")]
    Output(OutputArgs),
    /// Show the output of a service
    #[command(after_help = help::LOGS)]
    Logs(LogsArgs),
    /// Compare files with their desired content; exit 0 if equal
    #[command(after_help = words::DIFF)]
    Diff(DiffArgs),
    /// Decide a conflict between a user's edit and the model
    #[command(after_help = help::RESOLVE)]
    Resolve(ResolveArgs),
    /// Show, compare and restore former versions of files
    Files(FilesArgs),
    /// Show your rights, your key, and faults between two hosts
    Trust(TrustArgs),
    /// Install cobd on hosts over ssh, and enrol them
    #[command(after_help = hosts::BOOTSTRAP)]
    Bootstrap(BootstrapArgs),
    /// Upgrade the daemons of hosts over ssh, canaries first
    #[command(after_help = hosts::UPGRADE)]
    Upgrade(UpgradeArgs),
    /// For developers
    #[command(flatten)]
    Develop(DevelopCommand),
}

/// The commands that need a daemon or a generator in this program.
#[derive(Debug, Subcommand)]
pub enum DevelopCommand {
    /// Test whether a kind keeps the contract of kinds
    #[command(after_help = help::TEST_KIND)]
    TestKind(TestKindArgs),
    /// Print completions for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Write the manual pages of cobctl, cobgen and cobd
    Man(ManArgs),
    /// Run three daemons here, from model to switch and rollback
    #[command(after_help = help::DEMO)]
    Demo(DemoArgs),
}

/// A state, and the command that brings it about.
fn arrangement(text: &str) -> Result<(StateName, String), String> {
    let (state, command) = text.split_once('=').ok_or("write STATE=COMMAND, as in failed='pkill -KILL x'")?;
    let state = StateName::new(state).map_err(|e| e.to_string())?;
    Ok((state, command.to_owned()))
}

/// Arguments of `test-kind`.
#[derive(Debug, ClapArgs)]
pub struct TestKindArgs {
    /// The kind: from the model, or built in
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Model with the kind and a change object of it; leave it out for a built-in kind
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The change object [default: the first of the kind]
    #[arg(long, value_name = "COB")]
    pub cob: Option<CobId>,
    /// Its content, instead of the content in the model
    #[arg(long, value_name = "JSON")]
    pub content: Option<String>,
    /// Another content: after a transition with it, the check must report outdated
    #[arg(long, value_name = "JSON")]
    pub other: Option<String>,
    /// A file or folder that the kind changes, compared before and after; may be repeated. COB_STATE_DIR is always
    /// compared
    #[arg(long, value_name = "PATH")]
    pub watch: Vec<PathBuf>,
    /// Command that brings it, as an accident would, from its preferred state into a state that no transition leads
    /// to; may be repeated: failed='systemctl kill -s KILL x'
    #[arg(long, value_name = "STATE=COMMAND", value_parser = arrangement)]
    pub arrange: Vec<(StateName, String)>,
    /// How often each transition is killed; 0: never [default: 8]
    #[arg(long, value_name = "N")]
    pub kills: Option<u32>,
    /// Seed of the random moments of the kills
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Scratch folder, kept for inspection [default: a temporary folder, deleted at the end]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// Arguments of `demo`.
#[derive(Debug, ClapArgs)]
pub struct DemoArgs {
    /// Leave the cluster running, in this folder (empty or new)
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// End the cluster that --keep left in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    pub end: Option<PathBuf>,
    /// Run a hub instead: users, a catalogue, and a cluster of five machines that grows, loses a machine, and goes
    #[arg(long, conflicts_with_all = ["keep", "end"])]
    pub hub: bool,
}

/// Arguments of `resolve`.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("choice").required(true))]
pub struct ResolveArgs {
    /// The change object
    #[arg(value_name = "COB")]
    pub cob: CobId,
    /// Conflicting lines stay as they are on the host
    #[arg(long, group = "choice")]
    pub ours: bool,
    /// Conflicting lines become the lines of the model
    #[arg(long, group = "choice")]
    pub theirs: bool,
    /// Edit the merge of both in $VISUAL or $EDITOR
    #[arg(long, group = "choice")]
    pub edit: bool,
    /// Only in this file [default: all files in conflict; with --edit the first]
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// In this generation, which is prepared and not yet active
    #[arg(long, value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
}

/// Arguments of `files`.
#[derive(Debug, ClapArgs)]
pub struct FilesArgs {
    /// The command.
    #[command(subcommand)]
    pub command: FilesCommand,
}

/// The commands of `files`.
#[derive(Debug, Subcommand)]
pub enum FilesCommand {
    /// List the stored versions, newest first
    Log {
        /// The change object
        #[arg(value_name = "COB")]
        cob: CobId,
    },
    /// Show the changes of a version, or a file of it
    #[command(after_help = "\
Examples:
  cobctl files show n1/app/config 4f5a1c
  cobctl files show n1/app/config 4f5a1c /etc/app.conf > app.conf")]
    Show {
        /// The change object
        #[arg(value_name = "COB")]
        cob: CobId,
        /// The version, or its first six digits or more
        #[arg(value_name = "VERSION")]
        version: String,
        /// The file
        #[arg(value_name = "PATH")]
        path: Option<String>,
    },
    /// Show the changes of users as a patch for the model
    #[command(after_help = "\
For files beside the model, the patch uses their names there, so this applies it:
  cobctl files patch n1/app/config | patch -p1
For other files, it uses their paths on the host: copy the lines by hand.")]
    Patch {
        /// The change object
        #[arg(value_name = "COB")]
        cob: CobId,
    },
    /// Restore a file from a version, like an edit by a user
    #[command(after_help = "The model still applies: in a file that is not merged, its text returns at once.")]
    Restore {
        /// The change object
        #[arg(value_name = "COB")]
        cob: CobId,
        /// The version, or its first six digits or more
        #[arg(value_name = "VERSION")]
        version: String,
        /// The file
        #[arg(value_name = "PATH")]
        path: String,
    },
}

/// Arguments of `trust`.
#[derive(Debug, ClapArgs)]
pub struct TrustArgs {
    /// The command.
    #[command(subcommand)]
    pub command: TrustCommand,
}

/// The commands of `trust`.
#[derive(Debug, Subcommand)]
pub enum TrustCommand {
    /// Show your name, role and rights on each host
    #[command(after_help = "\
Examples:
  cobctl --depot /srv/depot trust whoami
  cobctl --host tcp://10.0.0.1:7077 --host-key ed25519:… trust whoami")]
    Whoami,
    /// Print your public key, for `operators` in the model
    #[command(after_help = "\
Example:
  cobctl trust key --create     create the key first, if it does not exist")]
    Key(KeyArgs),
    /// Find faults between two hosts: keys, addresses, generations; exit 0 only if their link is up
    #[command(after_help = "\
Example:
  cobctl --depot /srv/cob/depot trust doctor n1 n2")]
    Doctor(DoctorArgs),
}

/// Arguments of `trust key`.
#[derive(Debug, ClapArgs)]
pub struct KeyArgs {
    /// Create the key if it does not exist
    #[arg(long)]
    pub create: bool,
}

/// Arguments of `trust doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// The first host
    #[arg(value_name = "HOST_A")]
    pub one: HostName,
    /// The second host
    #[arg(value_name = "HOST_B")]
    pub other: HostName,
}

/// Arguments of `completions`.
#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
    /// The program
    #[arg(value_enum, default_value = "cobctl")]
    pub program: Program,
}

/// One of the programs of this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// The operator's program
    Cobctl,
    /// The generator
    Cobgen,
    /// The daemon
    Cobd,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cobctl, Self::Cobgen, Self::Cobd];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cobctl => "cobctl",
            Self::Cobgen => "cobgen",
            Self::Cobd => "cobd",
        }
    }
}

/// Arguments of `man`.
#[derive(Debug, ClapArgs)]
pub struct ManArgs {
    /// The folder; created if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// A host, or one change object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Every change object of a host.
    Host(HostName),
    /// One.
    Cob(CobId),
}

impl Which {
    /// The host meant, or that of the change object.
    #[must_use]
    pub fn host(&self) -> HostName {
        match self {
            Which::Host(host) => host.clone(),
            Which::Cob(cob) => cob.host(),
        }
    }

    /// Whether it means this change object.
    #[must_use]
    pub fn covers(&self, cob: &CobId) -> bool {
        match self {
            Which::Host(host) => cob.host_str() == host.as_str(),
            Which::Cob(named) => cob == named,
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Host(host) => host.fmt(f),
            Which::Cob(cob) => cob.fmt(f),
        }
    }
}

impl std::str::FromStr for Which {
    type Err = cob_types::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') { CobId::new(text).map(Which::Cob) } else { HostName::new(text).map(Which::Host) }
    }
}

/// A generation in the command line, where the empty one before the first is none.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn generation(text: &str) -> Result<GenerationName, String> {
    match text.parse()? {
        GenerationName::Number(GenerationNumber(0)) => Err("0 is not a generation: numbers start at 1".to_owned()),
        named @ (GenerationName::Number(_) | GenerationName::Back(_)) => Ok(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::described(None).debug_assert();
    }

    #[test]
    fn waits_and_generations_are_read() {
        let parse = |line: &str| Args::read(line.split(' '));
        let wait = |line: &str| {
            let Command::Switch(args) = parse(line).expect(line).command else { panic!("{line}") };
            (args.generation, args.wait)
        };
        assert_eq!(wait("cobctl switch 7"), (GenerationName::Number(GenerationNumber(7)), None));
        assert_eq!(wait("cobctl switch latest --wait"), (GenerationName::LATEST, Some(Duration::from_secs(600))));
        assert_eq!(wait("cobctl switch latest --wait 5s"), (GenerationName::LATEST, Some(Duration::from_secs(5))));
        for bad in
            ["cobctl switch 0", "cobctl switch newest", "cobctl switch", "cobctl switch --wait 7", "cobctl explain n1/"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let explicit = |line: &str| parse(line).expect(line).global.explicit;
        assert_eq!(explicit("cobctl status"), Explicit::default(), "a default is not explicit");
        assert_eq!(explicit("cobctl status --socket /x"), Explicit { socket: true, depot: false });
        assert_eq!(explicit("cobctl --depot /x status"), Explicit { socket: false, depot: true });
        let args = parse("cobctl status n1 n2/db --host unix:/x --host n3=tcp://127.0.0.1:1 --json").expect("parses");
        assert_eq!((args.global.hosts.len(), args.global.json), (2, true));
    }
}

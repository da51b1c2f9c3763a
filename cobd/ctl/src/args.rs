//! The command line: what may be said, and how it is explained.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use cob_depot::GenerationName;
use cob_types::{CobId, GenerationNumber, HostName, PublicKey, StateName};

use crate::targets::HostArg;
use crate::words::parse_span;

mod hosts;
mod looks;
mod words;

pub use hosts::{ArtefactArgs, BootstrapArgs, HostAt, SshArgs, UpgradeArgs};
pub use looks::{
    CheckArgs, DiffArgs, DurationsArgs, ExplainArgs, FactsArgs, HistoryArgs, LogsArgs, OutputArgs, PlanArgs,
    StatusArgs, WatchArgs,
};
pub use words::{
    AtMost, BudgetArgs, CallOffArgs, CancelArgs, DeclareFinalArgs, DrainArgs, FenceArgs, LimitArgs, OnFailureArg,
    OutcomesArgs, RetryArgs, RollbackArgs, StopArgs, SwitchArgs,
};

/// Shows what the hosts are doing, explains why, and gives them orders.
#[derive(Debug, Parser)]
#[command(name = "cobctl", version, about, long_about = None, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cobctl status                           this host, through its socket
  cobctl --depot /srv/depot status        every host of the newest generation
  cobctl --host tcp://127.0.0.1:7077 status
  cobctl trust whoami                     who you are for each host
  cobctl switch latest --wait 5m
  cobctl explain n3/lb

Exit status: 0 done, or the answer is yes; 1 the answer is no (not converged, refused); \
2 bad usage; 3 a host could not be reached, or the depot not be read.";

/// Options of every command.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The depot: its newest generation names the hosts
    #[arg(long, global = true, env = "COB_DEPOT", value_name = "DIR")]
    pub depot: Option<PathBuf>,

    /// Only this daemon: unix:/PATH, tcp://127.0.0.1:PORT, NAME=ADDR, or the name of a host in the depot; may be repeated
    #[arg(long = "host", global = true, value_name = "ADDR")]
    pub hosts: Vec<HostArg>,

    /// Only the daemon with this socket. COB_SOCKET says where the local one has it if it is to be asked: when neither a
    /// depot nor a host is named
    #[arg(long, global = true, env = "COB_SOCKET", value_name = "PATH", default_value = "/run/cob/cobd.sock")]
    pub socket: PathBuf,

    /// Which of these stood in the command line itself
    #[arg(skip)]
    pub explicit: Explicit,

    /// The key that the daemon at --host must prove to hold; else it is looked up in the depot
    #[arg(long = "host-key", global = true, value_name = "KEY")]
    pub host_keys: Vec<PublicKey>,

    /// Your key, an operator's in the model [default: $XDG_CONFIG_HOME/cob/operator.key, if it is there]
    #[arg(long, global = true, env = "COB_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// The file of your token, instead of a key; COB_TOKEN holds the token itself
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// A publisher whose signature on the depot's generations is believed; may be repeated
    #[arg(long = "trust", global = true, value_name = "KEY")]
    pub trust: Vec<PublicKey>,

    /// How many publishers must have signed
    #[arg(long, global = true, value_name = "N", requires = "trust")]
    pub threshold: Option<usize>,

    /// Settings: trust, threshold, depot, key [default: $XDG_CONFIG_HOME/cob/cobctl.toml]
    #[arg(long, global = true, env = "COB_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How long each host may take to answer; to an order a minute, if that is longer
    #[arg(long, global = true, value_name = "DURATION", default_value = "5s", value_parser = parse_span)]
    pub timeout: Duration,

    /// Answer in JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// When to use colour; `auto` means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

/// Options that stood in the command line itself, and not in the environment: these go before those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explicit {
    /// `--socket`.
    pub socket: bool,
    /// `--depot`.
    pub depot: bool,
}

impl Args {
    /// The command line as it is explained: the demo has daemons of its own, `test-kind` needs none and
    /// `bootstrap` and `upgrade` go by `ssh`, so they do not show the options that choose others.
    #[must_use]
    pub fn described() -> clap::Command {
        let command = Self::command();
        let chosen: Vec<_> = command
            .get_arguments()
            .filter(|arg| arg.is_global_set() && arg.get_id() != "color")
            .map(|arg| arg.clone().hide(true))
            .collect();
        let unused = chosen.iter().filter(|arg| arg.get_id() != "json").cloned().collect::<Vec<_>>();
        let command = command.mut_subcommand("test-kind", |test| test.args(unused));
        let by_ssh: Vec<_> = chosen
            .iter()
            .filter(|arg| !["json", "depot", "config"].contains(&arg.get_id().as_str()))
            .cloned()
            .collect();
        let command = command.mut_subcommand("bootstrap", |bootstrap| bootstrap.args(by_ssh.clone()));
        let command = command.mut_subcommand("upgrade", |upgrade| upgrade.args(by_ssh));
        command.mut_subcommand("demo", |demo| demo.args(chosen))
    }

    /// Reads a command line, the program's name first. A variable that is set to nothing counts as not set.
    ///
    /// # Errors
    /// What is wrong with it; or the help that was asked for.
    pub fn read<T: Into<OsString> + Clone>(line: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let command = cobgen::cli::without_empty_variables(Self::described());
        let matches = command.try_get_matches_from(line)?;
        let mut args = Self::from_arg_matches(&matches)?;
        let told = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        args.global.explicit = Explicit { socket: told("socket"), depot: told("depot") };
        Ok(args)
    }
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
    /// Show hosts and change objects; exit 0 only if all is converged
    #[command(after_help = "\
Examples:
  cobctl status n1            one host
  cobctl status n1/db n2/app  two change objects; exit 0 if they are where they should be
  cobctl status --json | jq '.hosts[] | select(.converged | not) | .name'")]
    Status(StatusArgs),
    /// Check hosts and change objects now; exit 0 only if everything was looked at and is as wanted
    #[command(after_help = words::CHECK)]
    Check(CheckArgs),
    /// Show hosts and change objects as they change
    #[command(after_help = "\
On a terminal the view is redrawn in place and ends with Ctrl-C; on a pipe each change is a line.")]
    Watch(WatchArgs),
    /// Explain why a change object is where it is, or what a host waits for, down to the first cause
    #[command(after_help = words::EXPLAIN)]
    Explain(ExplainArgs),
    /// Show what happened, merged over the hosts
    #[command(after_help = "\
Examples:
  cobctl history --cob n1/db
  cobctl history --json --since-generation 7 | jq 'select(.ok == false)'
  cobctl history --since 10m
  cobctl history n1/budget/web
  cobctl history --follow
  cobctl history --compare-plan plan.json

Shown are moves, checks and orders; --locks adds how change objects agreed on locks. The order is that of causes: what \
depends on something else comes after it, whatever the clocks of the hosts say. The times of one host grow, those of several \
may not. --since and --until go by the clock of each host.")]
    History(HistoryArgs),
    /// Show every change object as it was at a past moment, or what changed between two
    #[command(after_help = AT_EXAMPLES)]
    At(crate::commands::at::AtArgs),
    /// Show a past switch step by step: what happened when, and what it had waited for
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(crate::commands::replay::ReplayArgs),
    /// Tell what a switch would do from where the hosts are now; nothing is touched
    #[command(after_help = "\
Examples:
  cobctl plan latest
  cobctl plan 8 --gantt plan.svg
  cobctl plan 8 --json > plan.json; cobctl switch 8; cobctl watch --plan plan.json

The engine of the daemons makes the switch on virtual time: who moves when and why, which services are interrupted for \
how long, what can't be taken back, when all is done. It begins with the generation that the hosts have and with their \
change objects where they are, and takes transitions for as long as the histories say that they took. Nothing fails in \
a plan, and nobody else changes anything. It plans ways back, too: `cobctl plan 7` before `cobctl rollback 7`. What a generation \
would do that is not published yet, or from another one: `cobgen plan`.

Exit status: 0 there is a plan; 1 the switch would not come to rest; 3 a host could not be reached, or not the depot. \
--json: as of `cobgen plan --from --json` (docs/plan.md).")]
    Plan(PlanArgs),
    /// Print how long the actions of services took, by the hosts' histories: for `cobgen plan --durations`
    #[command(after_help = "\
Examples:
  cobctl durations > durations.json
  cobgen plan models/ --operation create --durations durations.json
  cobctl durations --transitions > moves.json
  cobgen plan --from 3 --to 4 --depot depot --durations moves.json
  cobctl --depot staging history --json > monday.jsonl
  cobctl durations --transitions monday.jsonl tuesday.jsonl > moves.json

For each action of a service with `actions`, on each node and on all: the median of the last times that it ended well. \
What is no action of a plan (change objects of other services) is left out, and counted in a note. With --transitions: \
every transition of every change object, and its first check after an activation, with the shortest, the middle and the \
longest of nine in ten. From saved histories, the oldest first, nobody is asked: they may be of hosts that were given back \
meanwhile, or of another cluster that has hosts of the same names. What several of them have counts once.

Exit status: 0 printed; 1 no such action has ended well yet; 3 a host could not be reached, and what it knows is missing.")]
    Durations(DurationsArgs),
    /// Print what hosts are (processors, memory, disks, distribution, kernel, addresses): a file for a model
    #[command(after_help = "\
Examples:
  cobctl facts > facts.new && mv facts.new model/facts.yaml
  cobctl facts n1 --json | jq '.facts.n1.memory_bytes'

In a model's folder the file is read with the model, and templates know `facts.n1.cpus` and, on n1, `host.facts.cpus`. \
A generation holds what was in the file when it was made; hosts that change later change nothing by that.

Exit status: 0 printed; 3 a host could not be reached, and is missing.")]
    Facts(FactsArgs),
    /// Switch the hosts to a generation; to the active one: wait for it to converge
    #[command(after_help = words::SWITCH)]
    Switch(SwitchArgs),
    /// Leave the generation that was switched to last, on all hosts, by the way back that it names
    #[command(after_help = "\
Examples:
  cobctl rollback             to the generation before
  cobctl rollback 7 --wait    to generation 7, and wait up to 10 minutes for it to converge

Where it leads is looked at first, as for a switch: file trees in which what users have changed excludes what was there \
before are named, and nothing is done (`cobctl resolve COB --generation N` decides, --despite-conflicts goes all the same).

A host that can't be reached follows when it is back: the others tell it. What can't be taken back stays as it \
is, and `cobctl status` names it. The generation that was left is gone to again by `cobctl switch N` alone, by its number. \
Further back than the last generation names ways: make a new one with the older content, and switch to that.

Exit status: 0 told, or with --wait converged; 1 refused, in conflict, failed or out of time; 3 a host could not be reached.")]
    Rollback(RollbackArgs),
    /// Let change objects try again that have given up
    #[command(after_help = words::RETRY)]
    Retry(RetryArgs),
    /// Stop services, and what needs them, until they are started or the next generation is activated
    #[command(after_help = words::STOP)]
    Stop(StopArgs),
    /// Start what was stopped, and what was stopped along with it
    #[command(after_help = words::START)]
    Start(StopArgs),
    /// Stop services once; they start again by themselves
    #[command(after_help = words::RESTART)]
    Restart(StopArgs),
    /// Stop all that runs on a host, for work on the machine; after its reboot everything returns
    #[command(after_help = words::DRAIN)]
    Drain(DrainArgs),
    /// Start no new transition; what runs ends
    Pause,
    /// Let transitions start again
    Resume,
    /// Stop a switch that is under way: what runs is asked to end, nothing starts, then the policy applies
    #[command(after_help = words::CANCEL)]
    Cancel(CancelArgs),
    /// Forget a generation that was prepared and to which nobody has said `go`
    #[command(after_help = words::CALL_OFF)]
    CallOff(CallOffArgs),
    /// Let at most so many change objects of each host move at a time
    #[command(after_help = words::LIMIT)]
    Limit(LimitArgs),
    /// Give a budget another number of tokens than the model does, until the next generation
    #[command(after_help = words::BUDGET)]
    Budget(BudgetArgs),
    /// Free what the change objects of a host hold elsewhere: it will not come back as it was
    #[command(after_help = "\
Fence a host only when it is surely off: what it holds keeps others from changing what it may still use. Afterwards no
host waits for it to leave, either. What stays in the model and needs a change object of the host goes on waiting:
bring the host back, or take it out of the model.")]
    Fence(FenceArgs),
    /// Let a switch go on as if a change object had left for good that can't leave
    #[command(after_help = words::DECLARE_FINAL)]
    DeclareFinal(DeclareFinalArgs),
    /// Show what came of switches: who started them, when, from and to where, and how they ended on each host
    #[command(after_help = words::OUTCOMES)]
    Outcomes(OutcomesArgs),
    /// Show what the last action or check of a change object printed
    #[command(after_help = "What a service prints while it runs is shown by `cobctl logs`.")]
    Output(OutputArgs),
    /// Show what a service prints
    #[command(after_help = "\
Examples:
  cobctl logs n1/app              the last 100 lines
  cobctl logs n1/app -f           and what comes, over restarts of the service, until interrupted
  cobctl logs n1/app --previous   of its life before this one: why it has ended

Of a service with commands, what its daemon has kept: the first 64 KiB and the last 512 KiB of each of the last two \
lives. Of a unit of systemd, what the journal of its host has, with times.")]
    Logs(LogsArgs),
    /// Show in what files differ from what is wanted; exit 0 only if they don't
    #[command(after_help = words::DIFF)]
    Diff(DiffArgs),
    /// Decide a conflict between what somebody changed on a host and what the model wants
    #[command(after_help = "\
Examples:
  cobctl resolve n1/app/config --theirs                 what the model wants, and the user's other lines
  cobctl resolve n1/app/config --edit                   edit the merge of both in $EDITOR
  cobctl resolve n1/app/config --ours --path /etc/app.conf")]
    Resolve(ResolveArgs),
    /// What a change object's files were: list it, show it, put a file back
    Files(FilesArgs),
    /// Who you are for the hosts, and what keeps hosts from believing each other
    Trust(TrustArgs),
    /// Install and enrol hosts over ssh: from machines with sshd to daemons that run
    #[command(after_help = hosts::BOOTSTRAP)]
    Bootstrap(BootstrapArgs),
    /// Bring the daemons of hosts to another version over ssh, canaries first
    #[command(after_help = hosts::UPGRADE)]
    Upgrade(UpgradeArgs),
    /// Try whether a kind keeps the contract of kinds: check, move, move twice, kill, go back
    #[command(after_help = TEST_KIND_EXAMPLES)]
    TestKind(TestKindArgs),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  cobctl completions bash > /etc/bash_completion.d/cobctl
  cobctl completions zsh cobgen > /usr/share/zsh/site-functions/_cobgen")]
    Completions(CompletionsArgs),
    /// Write the manual pages of cobctl, cobgen and cobd into a folder
    Man(ManArgs),
    /// Show a cluster of three daemons on this machine, from model to converged, changed and back
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
}

const AT_EXAMPLES: &str = "\
Examples:
  cobctl at 14:03                          as it was the last time that clocks showed 14:03 (UTC)
  cobctl at -5m n1 n2/app                  a host and a change object, five minutes ago
  cobctl at 2026-11-21T14:03:00+01:00 --diff now

It is made of the hosts' histories, each by its host's clock. What a history does not tell is said to be not known: \
it may begin later, or its host may not be reachable.

Exit status: 0 all of it is known (with --diff: and nothing changed); 1 not all is known, or something changed; \
3 a host could not be reached.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  cobctl replay 8                  step by step: Enter or space goes on, q ends
  cobctl replay 8 --speed 10       ten times as fast as it was
  cobctl replay 8 | less           all steps, a line each
  cobctl replay 8 --json | jq -r 'select(.event == \"start\") | [.offset_ns, .cob, .waited[0].of] | @tsv'

The steps are in the order of the merged history: what depends on something else comes after it, whatever the \
clocks of the hosts say. A switch ends when all hosts have activated and nothing has happened for a minute.

Exit status: 0 shown; 1 no such switch is in the histories; 3 a host could not be reached.";

const DEMO_EXAMPLES: &str = "\
Examples:
  cobctl demo                     run it and leave nothing behind
  cobctl demo --keep /tmp/shop    leave it running, and say how to look at it
  cobctl demo --end /tmp/shop     end what --keep left";

const TEST_KIND_EXAMPLES: &str = "\
Examples:
  cobctl test-kind --model model.yaml flag-file
  cobctl test-kind --model model.yaml --cob n1/flag --other '{\"colour\": \"red\"}' --watch /srv/flags flag-file
  cobctl test-kind wait --content '{\"ms\": 50}'

The kind's own commands are run on this machine, as you: name a content that does no harm here. What a daemon \
would keep lies in a scratch folder. Exit status: 0 the contract is kept, 1 it is broken, 2 there is nothing to try. \
With --json: {\"kind\", \"backend\", \"seed\", \"holds\", \"trials\": [{\"rule\", \"about\", \"verdict\": \"held\", \"broken\" or \
\"untried\", \"what\" and \"help\", or \"why\"}]}.";

/// A state, and the command that brings it about.
fn arrangement(text: &str) -> Result<(StateName, String), String> {
    let (state, command) = text.split_once('=').ok_or("write STATE=COMMAND, as in failed='pkill -KILL x'")?;
    let state = StateName::new(state).map_err(|e| e.to_string())?;
    Ok((state, command.to_owned()))
}

/// Arguments of `test-kind`.
#[derive(Debug, ClapArgs)]
pub struct TestKindArgs {
    /// The kind: of the model, or built in
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// The model that has the kind and a change object of it; none: a built-in kind
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The change object [default: the first one of the kind]
    #[arg(long, value_name = "COB")]
    pub cob: Option<CobId>,
    /// Its content, instead of the one in the model
    #[arg(long, value_name = "JSON")]
    pub content: Option<String>,
    /// Another content: what was moved on with it is to be found outdated
    #[arg(long, value_name = "JSON")]
    pub other: Option<String>,
    /// A file or folder that the kind acts on, to be looked at before and after; may be repeated. COB_STATE_DIR is watched
    /// always
    #[arg(long, value_name = "PATH")]
    pub watch: Vec<PathBuf>,
    /// A command that brings it into a state that no move leads to, from its preferred one, as an accident would; may
    /// be repeated: failed='systemctl kill -s KILL x'
    #[arg(long, value_name = "STATE=COMMAND", value_parser = arrangement)]
    pub arrange: Vec<(StateName, String)>,
    /// How often each move is killed; 0: never
    #[arg(long, value_name = "N", default_value_t = cobd::kinds::contract::KILLS)]
    pub kills: u32,
    /// What the moments of the kills are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where it is tried, and what is left of it can be looked at [default: a folder that is taken away again]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// Arguments of `demo`.
#[derive(Debug, ClapArgs)]
pub struct DemoArgs {
    /// Leave the cluster running, in this folder (empty, or made)
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// End the cluster that an earlier --keep left in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    pub end: Option<PathBuf>,
}

/// Arguments of `resolve`.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("choice").required(true))]
pub struct ResolveArgs {
    /// The change object
    #[arg(value_name = "COB")]
    pub cob: CobId,
    /// Lines that exclude each other stay as they are on the host
    #[arg(long, group = "choice")]
    pub ours: bool,
    /// Lines that exclude each other become what the model wants
    #[arg(long, group = "choice")]
    pub theirs: bool,
    /// Edit the merge of both in $VISUAL or $EDITOR
    #[arg(long, group = "choice")]
    pub edit: bool,
    /// Only in this file [default: all that are in conflict; with --edit the first]
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// In this generation, which is prepared and not active yet
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
    /// List the versions that are kept, the newest first
    Log {
        /// The change object
        #[arg(value_name = "COB")]
        cob: CobId,
    },
    /// Show what a version changed, or a file as it was in it
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
    /// Show what others have changed as a patch for the model
    #[command(after_help = "\
Files that stand beside the model have their names there, so this takes their changes over:
  cobctl files patch n1/app/config | patch -p1
Others have the path of the host: take the lines over by hand.")]
    Patch {
        /// The change object
        #[arg(value_name = "COB")]
        cob: CobId,
    },
    /// Put a file back as it was in a version, as somebody with an editor would
    #[command(after_help = "\
What the model says holds on: in a file that is not merged, the model's text is back in a moment.")]
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
    /// Show who you are for each host, and what you may do there
    #[command(after_help = "\
Examples:
  cobctl --depot /srv/depot trust whoami
  cobctl --host tcp://10.0.0.1:7077 --host-key ed25519:… trust whoami")]
    Whoami,
    /// Print the public half of your key, for `operators` in the model
    #[command(after_help = "\
Example:
  cobctl trust key --create     make the key first, if there is none")]
    Key(KeyArgs),
    /// Find what is wrong between two hosts: keys, addresses, generations; exit 0 only if their link is up
    #[command(after_help = "\
Example:
  cobctl --depot /srv/cob/depot trust doctor n1 n2")]
    Doctor(DoctorArgs),
}

/// Arguments of `trust key`.
#[derive(Debug, ClapArgs)]
pub struct KeyArgs {
    /// Make the key if there is none
    #[arg(long)]
    pub create: bool,
}

/// Arguments of `trust doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// One of the two
    #[arg(value_name = "HOST_A")]
    pub one: HostName,
    /// The other
    #[arg(value_name = "HOST_B")]
    pub other: HostName,
}

/// Arguments of `completions`.
#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
    /// Of which program
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
    /// The folder; it is made if it is not there
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
        GenerationName::Number(GenerationNumber(0)) => Err("0 is no generation: they are numbered from 1".to_owned()),
        named @ (GenerationName::Number(_) | GenerationName::Back(_)) => Ok(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::described().debug_assert();
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
        assert_eq!(explicit("cobctl status"), Explicit::default(), "a default is not said by anybody");
        assert_eq!(explicit("cobctl status --socket /x"), Explicit { socket: true, depot: false });
        assert_eq!(explicit("cobctl --depot /x status"), Explicit { socket: false, depot: true });
        let args = parse("cobctl status n1 n2/db --host unix:/x --host n3=tcp://127.0.0.1:1 --json").expect("parses");
        assert_eq!((args.global.hosts.len(), args.global.json), (2, true));
    }
}

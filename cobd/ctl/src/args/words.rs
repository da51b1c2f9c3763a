//! The command lines about a switch: begin it, stop it, limit it, and what came of it.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use cob_depot::GenerationName;
use cob_types::{CobId, HostName};

use super::{Which, generation};
use crate::words::parse_span;

pub(super) const EXPLAIN: &str = "\
Examples:
  $ cobctl explain n3/lb
  n3/lb up waits for n2/app up, which waits for n1/db up, which has been moving from down to up for 3.2 s
  $ cobctl explain n1
  n1 goes on to generation 8 when this has left for good: n2/old

Of a host: what keeps it from activating the generation that it goes to; else its change objects that are not where \
they should be.";

pub(super) const CHECK: &str = "\
Examples:
  cobctl check                  everything on every host
  cobctl check n1 n2/app        a host and a change object
  cobctl check --json | jq -r '.hosts[].differing[]?.cob'

Daemons check by themselves at a start, when somebody changes a file or a unit, and at the intervals of kinds. This is \
for whoever wants to know now. Only checks count that begin after the question. What is found is treated as ever: what \
others have changed is put right where the model says so. A change object that is being moved is not looked at.

Exit status: 0 everything was looked at and is as wanted; 1 something differs, moves, or could not be told in time; \
3 a host could not be reached.
With --json: {\"hosts\": [{\"name\", \"reachable\", \"host\", \"round\", \"generation\", \"asked\", \"looked\", \"as_wanted\", \
\"differ\", \"not_known\", \"moving\", \"ended\", \"differing\": [{\"cob\", \"found\", \"wanted\", \"detail\"}], \"unknown\": [{\"cob\", \"why\"}]} or \
{\"name\", \"reachable\", \"error\", \"hint\"}]}.";

pub(super) const DIFF: &str = "\
Examples:
  cobctl diff                                 all file trees on all hosts
  cobctl diff n1                              those of a host
  cobctl diff n1/app/config
  cobctl diff n1/app/config > wanted.patch    a patch from what is there to what is wanted; -R takes it into the model

Of other kinds than `file-tree` it is `cobctl check` that tells what differs. Nothing is changed.

Exit status: 0 everything was looked at and nothing differs; 1 something differs, or could not be told; 3 a host could \
not be reached.
With --json, of one change object: {\"text\", \"state\", \"conflicts\": [{\"path\", \"what\", \"hunks\"}]}; else {\"hosts\": \
[{\"name\", \"reachable\", \"error\", \"generation\", \"looked\", \"differing\": [{\"cob\", ... as of one}], \"unknown\": [{\"cob\", \"why\"}]}]}.";

pub(super) const CANCEL: &str = "\
Examples:
  cobctl cancel                          whichever switch is under way
  cobctl cancel 8 --on-failure rollback  hosts go back, whatever generation 8 says

What runs on a host that is being switched gets SIGTERM, with its whole process group, and SIGKILL after its grace, as \
when its time is over; it counts as no failed attempt. Then hosts hold (`cobctl resume` goes on with the switch), or go \
back to the generation before, as `switch: on_failure` of the model says. Hosts that can't be reached go on.

Exit status: 0 every host has answered; 1 a host refused; 3 a host could not be reached. \
With --json: {\"hosts\": [{\"name\", \"reachable\", \"changed\", \"detail\"} or {\"name\", \"reachable\", \"error\", \"hint\"}]}.";

pub(super) const CALL_OFF: &str = "\
Example:
  cobctl call-off 8

Where `go` was said already the host refuses: `cobctl cancel` stops it there. A host that follows the depot prepares it \
again by itself. Exit status and --json: as of `cobctl cancel`.";

pub(super) const LIMIT: &str = "\
Examples:
  cobctl limit 1                one at a time on each host, until told otherwise
  cobctl limit 3 --host n1      only on n1
  cobctl limit none
  cobctl limit 1 --budget web   of those that take tokens of the budget `web` one at a time, on all hosts together

It holds over restarts and generations. Checks go on; who waits for its turn is shown by `cobctl status`, and of those who \
could move the one with the lowest rank goes first. Nothing can come to a stand for it: what moves waits for nobody. \
How many *hosts* switch at a time: `cobctl switch --limit-hosts`. With --budget the budget has so many tokens, and never \
more than the model gives it (`cobctl budget` gives more); who has one keeps it until it is back. Exit status and --json: as of `cobctl cancel`.";

pub(super) const BUDGET: &str = "\
Examples:
  cobctl budget web --at-most 3       3 members of the budget `web` at a time, until the next generation is active
  cobctl budget web --at-most model   as many as the model says

For a rollout that waits for a token which no holder can give back: a holder waits for something that only a waiting member \
brings, and the model does not say so, or a member has failed, which stops a budget whatever tokens it has left, and the rollout is to go on all the same. The history names \
the operator (`cobctl history HOST/budget/NAME`). It holds over restarts of the daemon, and ends when the next generation is \
active. A limit of tokens that stays over generations: `cobctl limit N --budget NAME`.

Exit status: 0 done; 1 the host refused; 3 the host could not be reached. With --json: {\"changed\", \"detail\"}.";

pub(super) const DECLARE_FINAL: &str = "\
Examples:
  cobctl declare-final n4/old    one change object
  cobctl declare-final n4        all of a host that others wait for

For what leaves with a switch and can't: what it needs has failed, or its host is off for good. The hosts that wait for it \
(`cobctl explain HOST`) go on as if it had left, whatever it really does, and write down who said so; its own host, if it \
is reached, leaves it where it is. Exit status and --json: as of `cobctl cancel`.";

pub(super) const OUTCOMES: &str = "\
Examples:
  cobctl outcomes                        every switch that the hosts tell of
  cobctl outcomes 8 --json | jq '.outcomes[-1].hosts'

Gathered from the hosts' histories. `cobctl switch --wait` writes the outcome of its switch into the depot, where it may, \
and `cobgen log` shows it; --record does that here, with the newest and with what is known better by now of the last 32.

Exit status: 0 the newest switch has converged; 1 it has not; 3 a host could not be reached, and what it knows is missing. \
With --json: {\"outcomes\": [{\"to\", \"by\", \"began_ns\", \"ended_ns\", \"ended\", \"hosts\": {HOST: {\"from\", \"to\", \"by\", \
\"began_ns\", \"activated_ns\", \"ended_ns\", \"ended\", \"cobs\": {COB: {\"moves\", \"failures\", \"failed\", \"error\"}}}}}]}, \
the oldest first; \"ended\" is converged, called-off, superseded, cancelled, rolled-back, under-way or failed.";

pub(super) const SWITCH: &str = "\
Examples:
  cobctl switch latest --wait         wait up to 10 minutes for it to converge
  cobctl switch 7 --wait 1h --json
  cobctl switch 8 --on-failure rollback --guard 60s --wait
  cobctl switch 8 --canary n1,n2 --gate 5m --check './smoke.sh' --on-failure rollback --wait
  cobctl switch 8 --limit-hosts 3 --wait
  cobctl switch 8 --prepare           bring it to the hosts, look for conflicts, change nothing

First every host gets the generation, verifies it and looks at what is new in it (prepare); nothing has changed until \
then, and a host that refuses it calls the switch off. So do files in which users have changed what the generation changes \
too: `cobctl resolve COB --generation N` decides about them beforehand. Hosts that can't be reached are named, and tried \
until the wait ends; the others go on meanwhile, and what needs something of one that is away may be down until it is back \
(--require-all goes with all of them or not at all).

A canary set grows by the hosts that it can't switch without, and it is said why. When it fails, the hosts that were not \
told to go forget the generation, and those that were hold (as after `cobctl cancel`) or go back. So it is with \
--limit-hosts. The same order given again looks at the hosts that have the generation first, and stops there as long as one \
has failed: `cobctl resume --host HOST` and `cobctl retry COB` after its cause is mended, or --max-failures N, let it go on. \
Ctrl-C changes nothing: \
hosts that were told to go do so, the others have it prepared, and the same command goes on from there.

Exit status: 0 told, or with --wait converged; 1 refused, failed, superseded, out of time or interrupted; 3 a host could \
not be reached.";

/// Arguments of `switch`.
#[derive(Debug, ClapArgs)]
pub struct SwitchArgs {
    /// The generation: its number, `latest`, the newest in the depot, or `-1` for the one before that
    #[arg(value_name = "N|latest", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
    /// Wait until it has converged, at most so long from now on; without a DURATION, at most 10 minutes. Hosts that can't
    /// be reached are tried until then; if one never could be, the exit status is 3
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
    /// How long hosts may take to get ready before those that are not are left behind [default: 30s; hosts that do not
    /// answer at all: --timeout]; never longer than --wait
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub prepare_timeout: Option<Duration>,
    /// Say go to these hosts first, and to those that they need; to the others when all of these have converged and the
    /// gate is passed
    #[arg(long, value_name = "HOST", value_delimiter = ',', conflicts_with = "limit_hosts")]
    pub canary: Vec<HostName>,
    /// How long the canary must stay converged, with nothing failed and nothing changed by hand
    #[arg(long, value_name = "DURATION", value_parser = parse_span, requires = "canary")]
    pub gate: Option<Duration>,
    /// A command that must exit 0 then; it is given COB_GENERATION and COB_CANARY, the hosts
    #[arg(long, value_name = "COMMAND", requires = "canary")]
    pub check: Option<String>,
    /// Say go to at most so many hosts at a time, to the next when these have converged; hosts that need each other go
    /// together
    #[arg(long, value_name = "K")]
    pub limit_hosts: Option<std::num::NonZeroUsize>,
    /// How many hosts may have failed before the stages stop: with 0 the first failed host stops them, also when the same
    /// order is given again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_failures: usize,
    /// What a failure leads to: hosts that were told to go stay as they are, or return to the generation before
    /// [default: what the generation says; of a canary or a wave: hold]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_failure: Option<OnFailureArg>,
    /// A host that does not reach the others so long after it has activated the generation goes back by itself; 0s:
    /// none does [default: what the generation says]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub guard: Option<Duration>,
    /// Only bring it to the hosts and look at what is new in it: nothing changes, and conflicts with what users have changed
    /// can be seen and decided
    #[arg(long, conflicts_with_all = ["wait", "canary", "limit_hosts", "on_failure", "guard", "despite_conflicts"])]
    pub prepare: bool,
    /// Go back: without this (or a yes on a terminal) a switch to an older generation than a host has is not begun
    #[arg(long, conflicts_with = "prepare")]
    pub back: bool,
    /// Say go only if every host of the generation could be reached and has it prepared
    #[arg(long)]
    pub require_all: bool,
    /// Say go although it changes what users have changed too: these file trees wait for `cobctl resolve`, or take the
    /// switch back, as --on-failure says
    #[arg(long)]
    pub despite_conflicts: bool,
}

/// Arguments of `cancel`.
#[derive(Debug, ClapArgs)]
pub struct CancelArgs {
    /// The generation whose switch is meant [default: whichever is under way]
    #[arg(value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
    /// What happens then [default: what the generation says]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_failure: Option<OnFailureArg>,
}

/// What happens to a switch that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailureArg {
    /// It stops where it is.
    Hold,
    /// Hosts go back to the generation before.
    Rollback,
}

impl From<OnFailureArg> for cob_types::switch::OnFailure {
    fn from(word: OnFailureArg) -> Self {
        match word {
            OnFailureArg::Hold => Self::Hold,
            OnFailureArg::Rollback => Self::Rollback,
        }
    }
}

/// Arguments of `call-off`.
#[derive(Debug, ClapArgs)]
pub struct CallOffArgs {
    /// The generation
    #[arg(value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
}

/// Arguments of `limit`.
#[derive(Debug, ClapArgs)]
pub struct LimitArgs {
    /// How many, from 1; `none`: as many as can go
    #[arg(value_name = "K|none", value_parser = at_most)]
    pub at_most: AtMost,
    /// The tokens of this budget, by its name in the model or as HOST/budget/NAME, instead of all transitions
    #[arg(long, value_name = "NAME")]
    pub budget: Option<String>,
}

/// Arguments of `budget`.
#[derive(Debug, ClapArgs)]
pub struct BudgetArgs {
    /// The budget, by its name in the model or as HOST/budget/NAME
    #[arg(value_name = "NAME")]
    pub name: String,
    /// So many tokens at a time, those of failed members counted; `model`: as many as the model gives, and none past a failure
    #[arg(long, value_name = "N|model", value_parser = tokens)]
    pub at_most: AtMost,
}

fn tokens(text: &str) -> Result<AtMost, String> {
    match text.parse() {
        Ok(k) if k > 0 => Ok(AtMost(Some(k))),
        Ok(_) | Err(_) if text == "model" => Ok(AtMost(None)),
        Ok(_) | Err(_) => Err(format!("{text:?} is neither a number from 1 nor `model`")),
    }
}

/// A limit, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtMost(pub Option<u32>);

fn at_most(text: &str) -> Result<AtMost, String> {
    match text.parse() {
        Ok(0) => Err("0 would let nothing move: `cobctl pause` does that".to_owned()),
        Ok(k) => Ok(AtMost(Some(k))),
        Err(_) if text == "none" => Ok(AtMost(None)),
        Err(_) => Err(format!("{text:?} is neither a number nor `none`")),
    }
}

/// Arguments of `outcomes`.
#[derive(Debug, ClapArgs)]
pub struct OutcomesArgs {
    /// Only switches to this generation
    #[arg(value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
    /// Write the newest into the depot, and what is known better by now of those that were noted there last
    #[arg(long)]
    pub record: bool,
}

/// Arguments of `declare-final`.
#[derive(Debug, ClapArgs)]
pub struct DeclareFinalArgs {
    /// The change object that leaves with the switch; or a host, for all of it that others wait for
    #[arg(value_name = "COB|HOST")]
    pub what: Which,
    /// Do it without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// Arguments of `fence`.
#[derive(Debug, ClapArgs)]
pub struct FenceArgs {
    /// The host that will not come back as it was
    #[arg(value_name = "HOST")]
    pub fenced: HostName,
    /// Do it without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// What `retry` says of itself.
pub(super) const RETRY: &str = "\
Examples:
  cobctl retry n1/db/server            once its cause is mended
  cobctl retry n1/db/server --wait     and wait up to 10 minutes for what comes of it
  cobctl retry --all --wait 2m         all that have given up, on all hosts

Only what has given up is tried again; of another one it is said, and nothing happens to it.

Exit status: 0 told, or with --wait settled; 1 refused, or with --wait given up again or out of time; 3 a host could not \
be reached.";

/// Arguments of `retry`.
#[derive(Debug, ClapArgs)]
pub struct RetryArgs {
    /// The change objects
    #[arg(value_name = "COB", required_unless_present = "all")]
    pub cobs: Vec<CobId>,
    /// All that have given up, on all hosts
    #[arg(long, conflicts_with = "cobs")]
    pub all: bool,
    /// Wait until they have settled or have given up again, at most so long; without a DURATION, at most 10 minutes
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
}

pub(super) const STOP: &str = "\
Examples:
  cobctl stop db --plan              who would stop, in which order, and how long it would take
  cobctl stop db --wait              the service on all its hosts, and wait up to 10 minutes
  cobctl stop web --hosts n1,n2      on these hosts alone
  cobctl stop n1/db/server           one change object
  cobctl stop n3                     all that runs on a host

What needs a stopped one is stopped first. Where a budget covers a group, its members stop one after the other. The order holds \
over restarts of daemons and hosts, until `cobctl start` or the next generation ends it. `cobctl status` shows who gave it. \
A unit of systemd stays enabled: after a reboot of its host it may run for a moment.

Exit status: 0 told, or with --wait stopped; 1 refused, or with --wait not stopped; 3 a host could not be reached.";

pub(super) const START: &str = "\
Examples:
  cobctl start db            what was stopped of the service, and what was stopped along with it
  cobctl start n3 --wait     all that was stopped on a host, and wait up to 10 minutes

What needs others starts after them. What was stopped by an order of its own stays stopped. What would start in vain, because \
something that it needs is stopped, is refused.

Exit status: 0 told, or with --wait started; 1 refused, or with --wait not started; 3 a host could not be reached.";

pub(super) const RESTART: &str = "\
Examples:
  cobctl restart web --plan          who would stop and start, in which order, and how long it would take
  cobctl restart web --wait          the service on all its hosts, and wait up to 10 minutes
  cobctl restart n1/web/server       one change object

What requires a restarted one stops before it and starts after it. Where a budget covers a group, its members restart one after \
the other. A daemon that is restarted meanwhile goes on with it.

Exit status: 0 told, or with --wait restarted; 1 refused, or with --wait not restarted; 3 a host could not be reached.";

pub(super) const DRAIN: &str = "\
Examples:
  cobctl drain n1 --plan        who would stop, in which order, and how long it would take
  cobctl drain n1               stop all that runs there, and wait for it
  cobctl drain n1 --reboot      reboot it then, and wait until everything has returned
  cobctl start n1               everything returns without a reboot

What needs something of the host stops first, on other hosts, too, and waits until it is back. What budgets let go at a time is kept \
to. The order holds until the host has been rebooted, by whomever, or until `cobctl start` or the next generation ends it; the same \
command given again goes on where one was interrupted.

Exit status: 0 drained, or with --reboot back; 1 refused, failed or out of time; 3 the host could not be reached.";

/// Arguments of `drain`.
#[derive(Debug, Clone, ClapArgs)]
pub struct DrainArgs {
    /// The host
    #[arg(id = "drained", value_name = "HOST")]
    pub host: HostName,
    /// Reboot it when nothing runs there any more, and wait until everything has returned
    #[arg(long, conflicts_with = "plan")]
    pub reboot: bool,
    /// Show what would happen, and do nothing
    #[arg(long)]
    pub plan: bool,
    /// How long it may take until it is drained, and again until everything has returned
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_span)]
    pub wait: Duration,
}

/// Arguments of `stop`, `start` and `restart`.
#[derive(Debug, Clone, ClapArgs)]
pub struct StopArgs {
    /// A service, a host, a service of a host (HOST/SERVICE), or a change object
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Only on these hosts, divided by commas
    #[arg(id = "only", long = "hosts", value_name = "HOSTS", value_delimiter = ',')]
    pub hosts: Vec<HostName>,
    /// Show what would happen, and do nothing
    #[arg(long, conflicts_with = "wait")]
    pub plan: bool,
    /// Wait until it has come about, at most so long; without a DURATION, at most 10 minutes
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
}

/// Arguments of `rollback`.
#[derive(Debug, ClapArgs)]
pub struct RollbackArgs {
    /// The generation to return to [default: the one that each host came from, if the last one names a way there; else the
    /// newest to which it does]. 0 removes all that the first generation has made
    #[arg(value_name = "N", allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
    /// Only look where it would lead, and what users have changed that excludes what was there; nothing changes
    #[arg(long, conflicts_with_all = ["wait", "despite_conflicts"])]
    pub prepare: bool,
    /// Go back although that excludes what users have changed: these file trees wait for `cobctl resolve`, with what needs
    /// them
    #[arg(long)]
    pub despite_conflicts: bool,
    /// Wait until it has converged, at most so long; without a DURATION, at most 10 minutes
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
}

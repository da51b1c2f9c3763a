//! Arguments of the orders about switches and hosts, and of `outcomes`.

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
  n1 switches to generation 8 as soon as n2/old has departed

For a host: the change objects that must depart before it activates the next generation; without a switch, its change \
objects that are not in their desired states.";

pub(super) const CHECK: &str = "\
Examples:
  cobctl check                  all change objects on all hosts
  cobctl check n1 n2/app        a host and a change object
  cobctl check --json | jq -r '.hosts[].differing[]?.cob'

Daemons check at a start, when a user changes a file or a unit, and at the intervals of kinds. This command checks now, and \
waits for checks that begin after it. Drift is handled as usual: the daemon restores the desired state where the model says \
so. Change objects in a transition are not checked.

Exit status: 0 all were checked and are in their desired states; 1 drift, a transition, or no result in time; \
3 a host could not be reached.
With --json: {\"hosts\": [{\"name\", \"reachable\", \"host\", \"round\", \"generation\", \"asked\", \"looked\", \"as_wanted\", \
\"differ\", \"not_known\", \"moving\", \"ended\", \"differing\": [{\"cob\", \"found\", \"wanted\", \"detail\"}], \"unknown\": [{\"cob\", \"why\"}]} or \
{\"name\", \"reachable\", \"error\", \"hint\"}]}.";

pub(super) const DIFF: &str = "\
Examples:
  cobctl diff                                 all file trees on all hosts
  cobctl diff n1                              the file trees of a host
  cobctl diff n1/app/config
  cobctl diff n1/app/config > wanted.patch    a patch from the present to the desired content; `patch -R` takes it into the model

Changes nothing. For kinds other than `file-tree`: `cobctl check`.

Exit status: 0 all were compared and are equal; 1 differences, or not comparable; 3 a host could not be reached.
With --json, for one change object: {\"text\", \"state\", \"conflicts\": [{\"path\", \"what\", \"hunks\"}]}; else {\"hosts\": \
[{\"name\", \"reachable\", \"error\", \"generation\", \"looked\", \"differing\": [{\"cob\", ... as above}], \"unknown\": [{\"cob\", \"why\"}]}]}.";

pub(super) const CANCEL: &str = "\
Examples:
  cobctl cancel                          the switch under way
  cobctl cancel 8 --on-failure rollback  roll back, even if generation 8 says hold

Running actions on the switching hosts get SIGTERM, with their process groups, and SIGKILL after their grace, as on a \
timeout; this does not count as a failed attempt. Then the hosts hold (`cobctl resume` continues the switch) or roll back, \
as `switch: on_failure` of the model says. Hosts that can't be reached continue the switch.

Exit status: 0 all hosts answered; 1 a host refused; 3 a host could not be reached. \
With --json: {\"hosts\": [{\"name\", \"reachable\", \"changed\", \"detail\"} or {\"name\", \"reachable\", \"error\", \"hint\"}]}.";

pub(super) const DISCARD: &str = "\
Example:
  cobctl discard 8

A host refuses if its switch has started: use `cobctl cancel` then. A host that follows the depot prepares the generation \
again. Exit status and --json: as for `cobctl cancel`.";

pub(super) const LIMIT: &str = "\
Examples:
  cobctl limit 1                one transition at a time on each host, until `cobctl limit none`
  cobctl limit 3 --host n1      only on n1
  cobctl limit none
  cobctl limit 1 --budget web   one token of the budget `web` at a time, on all hosts together

The limit survives restarts and switches. Checks continue. `cobctl status` shows the waiting change objects; the lowest rank \
goes first. A limit cannot cause a deadlock: running transitions already hold all their locks. \
For the number of *hosts* that switch at a time: `cobctl switch --limit-hosts`. With --budget, the limit only lowers the \
tokens of the model (`cobctl budget` raises them); a member with a token keeps it until it is back in its preferred state. \
Exit status and --json: as for `cobctl cancel`.";

pub(super) const BUDGET: &str = "\
Examples:
  cobctl budget web --at-most 3       3 members of the budget `web` at a time, until the next generation is active
  cobctl budget web --at-most model   as many as the model says

For a rollout that waits for a token which no holder can release: the holder waits for a change that only a waiting member \
brings, without a dependency in the model, or a member has failed, which stops the budget. The history records the operator \
(`cobctl history HOST/budget/NAME`). The order survives restarts of the daemon and ends with the next generation. \
For a limit that survives switches: `cobctl limit N --budget NAME`.

Exit status: 0 done; 1 the host refused; 3 the host could not be reached. With --json: {\"changed\", \"detail\"}.";

pub(super) const DECLARE_FINAL: &str = "\
Examples:
  cobctl mark-departed n4/old    one change object
  cobctl mark-departed n4        all departing change objects of a host that other hosts wait for

For a change object that cannot depart: its dependencies have failed, or its host is off for good. The hosts that wait for \
it (`cobctl explain HOST`) continue as if it had departed, regardless of its state, and record the operator; its own host, \
if reachable, leaves it in its present state. Exit status and --json: as for `cobctl cancel`.";

pub(super) const OUTCOMES: &str = "\
Examples:
  cobctl outcomes                        all switches in the hosts' histories
  cobctl outcomes 8 --json | jq '.outcomes[-1].hosts'

`cobctl switch --wait` stores the outcome of its switch in the depot, if it may write there, and `cobgen log` shows it. \
--record does the same here: it stores the newest outcome, and updates the last 32.

Exit status: 0 the newest switch has converged; 1 it has not; 3 a host could not be reached, so its history is missing. \
With --json: {\"outcomes\": [{\"to\", \"by\", \"began_ns\", \"ended_ns\", \"ended\", \"hosts\": {HOST: {\"from\", \"to\", \"by\", \
\"began_ns\", \"activated_ns\", \"ended_ns\", \"ended\", \"cobs\": {COB: {\"moves\", \"failures\", \"failed\", \"error\"}}}}}]}, \
oldest first; \"ended\" is converged, called-off, superseded, cancelled, rolled-back, under-way or failed.";

pub(super) const SWITCH: &str = "\
Examples:
  cobctl switch latest --wait         wait up to 10 minutes until it has converged
  cobctl switch 7 --wait 1h --json
  cobctl switch 8 --on-failure rollback --guard 60s --wait
  cobctl switch 8 --canary n1,n2 --gate 5m --check './smoke.sh' --on-failure rollback --wait
  cobctl switch 8 --limit-hosts 3 --wait
  cobctl switch 8 --now               do not wait for maintenance windows
  cobctl switch 8 --prepare           fetch and verify on the hosts, look for conflicts, change nothing

First all hosts prepare: they fetch and verify the generation and check new change objects. Until then no host changes. \
The switch does not start if a host refuses the generation, or if users have changed files that the generation changes too \
(decide with `cobctl resolve COB --generation N`). Hosts that are not reachable are named and retried until the wait ends; \
the other hosts switch meanwhile, and change objects that need a missing host may be down until it is back \
(--require-all: all hosts or no host).

A switch waits until the maintenance windows of all hosts that it changes are open together: the hosts keep the order and \
start by themselves. `cobctl cancel N` drops the order, --now starts the switch at once.

With --canary, hosts that the canary cannot switch without join it, with the reason. If the canary fails, the other hosts \
discard the generation, and the canary holds (as after `cobctl cancel`) or rolls back. The same applies to --limit-hosts. \
The same command again first checks the hosts that have the generation, and stops if a host has failed: fix the cause, then \
`cobctl resume --host HOST` and `cobctl retry COB`, or allow failures with --max-failures N. \
Ctrl-C stops only the waiting: started hosts continue, the others keep the generation prepared, and the same command \
continues from there.

Exit status: 0 started, or with --wait converged; 1 refused, failed, replaced, out of time (also if no maintenance \
window opens within --wait) or interrupted; 3 a host could not be reached.";

/// Arguments of `switch`.
#[derive(Debug, ClapArgs)]
pub struct SwitchArgs {
    /// The generation: a number, `latest` (the newest in the depot) or `-1` (the generation before the latest)
    #[arg(value_name = "N|latest", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
    /// Wait until it has converged, at most DURATION (without a value: 10 minutes). Hosts that are not reachable are retried
    /// until then; if a host was never reachable, the exit status is 3
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
    /// Time limit for hosts to prepare; then the switch starts without the late hosts [default: 30s; for hosts without any
    /// answer: --timeout]; never longer than --wait
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub prepare_timeout: Option<Duration>,
    /// Start the switch on these hosts first, and on the hosts that they need; on the others after all of the canary have
    /// converged and the gate has passed
    #[arg(long, value_name = "HOST", value_delimiter = ',', conflicts_with = "limit_hosts")]
    pub canary: Vec<HostName>,
    /// How long the canary must stay converged, without failures and manual changes
    #[arg(long, value_name = "DURATION", value_parser = parse_span, requires = "canary")]
    pub gate: Option<Duration>,
    /// A command that must exit 0 after the gate; its variables: COB_GENERATION, and COB_CANARY with the hosts
    #[arg(long, value_name = "COMMAND", requires = "canary")]
    pub check: Option<String>,
    /// Switch at most K hosts at a time; the next start when these have converged; hosts that need each other switch
    /// together
    #[arg(long, value_name = "K")]
    pub limit_hosts: Option<std::num::NonZeroUsize>,
    /// How many hosts may fail before the stages stop; 0: the first failed host stops the switch, also if the same order is
    /// given again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_failures: usize,
    /// On a failure, hold the started hosts, or roll these hosts back to the generation before [default: as the generation
    /// says; for a canary or a wave: hold]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_failure: Option<OnFailureArg>,
    /// A host that does not reach the other hosts for DURATION after its activation rolls back by itself; 0s: no guard
    /// [default: as the generation says]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub guard: Option<Duration>,
    /// Only prepare: fetch, verify and look for conflicts with users' changes, to be decided before the switch; changes
    /// no host
    #[arg(long, conflicts_with_all = ["wait", "canary", "limit_hosts", "on_failure", "guard", "despite_conflicts"])]
    pub prepare: bool,
    /// Allow a switch to an older generation than a host has (asked for on a terminal)
    #[arg(long, conflicts_with = "prepare")]
    pub back: bool,
    /// Start at once, also outside the maintenance windows of the hosts that change
    #[arg(long, alias = "ignore-windows", conflicts_with = "prepare")]
    pub now: bool,
    /// Start only if all hosts of the generation are reachable and prepared
    #[arg(long)]
    pub require_all: bool,
    /// Start despite conflicts with users' changes: these file trees wait for `cobctl resolve`, or fail and roll the switch
    /// back, as --on-failure says
    #[arg(long)]
    pub despite_conflicts: bool,
}

/// Arguments of `cancel`.
#[derive(Debug, ClapArgs)]
pub struct CancelArgs {
    /// Cancel only a switch to this generation [default: the switch under way]
    #[arg(value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
    /// Hold or roll back [default: as the generation says]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_failure: Option<OnFailureArg>,
}

/// What happens to a switch that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailureArg {
    /// The hosts stop in their present states.
    Hold,
    /// The hosts roll back to the generation before.
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

/// Arguments of `discard`.
#[derive(Debug, ClapArgs)]
pub struct DiscardArgs {
    /// The generation
    #[arg(value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
}

/// Arguments of `limit`.
#[derive(Debug, ClapArgs)]
pub struct LimitArgs {
    /// Number of transitions, from 1; `none`: no limit
    #[arg(value_name = "K|none", value_parser = at_most)]
    pub at_most: AtMost,
    /// Limit the tokens of this budget (name in the model, or HOST/budget/NAME) instead of all transitions
    #[arg(long, value_name = "NAME")]
    pub budget: Option<String>,
}

/// Arguments of `budget`.
#[derive(Debug, ClapArgs)]
pub struct BudgetArgs {
    /// The budget: its name in the model, or HOST/budget/NAME
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Number of tokens, including the tokens of failed members; `model`: as in the model, and no token after a failure
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
        Ok(0) => Err("a limit of 0 would stop all transitions: use `cobctl pause`".to_owned()),
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
    /// Store the newest outcome in the depot, and update the last stored outcomes
    #[arg(long)]
    pub record: bool,
}

/// Arguments of `mark-departed`.
#[derive(Debug, ClapArgs)]
pub struct MarkDepartedArgs {
    /// The departing change object; or a host, for all its change objects that other hosts wait for
    #[arg(value_name = "COB|HOST")]
    pub what: Which,
    /// Do it without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// Arguments of `fence`.
#[derive(Debug, ClapArgs)]
pub struct FenceArgs {
    /// The dead host
    #[arg(value_name = "HOST")]
    pub fenced: HostName,
    /// First have the fence devices of its Pacemaker cluster switch it off
    #[arg(long)]
    pub power_off: bool,
    /// Do it without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// What `retry` says of itself.
pub(super) const RETRY: &str = "\
Examples:
  cobctl retry n1/db/server            after its cause is fixed
  cobctl retry n1/db/server --wait     and wait up to 10 minutes for the result
  cobctl retry --all --wait 2m         all failed change objects on all hosts

Only failed change objects are retried; others are named and stay as they are.

Exit status: 0 ordered, or with --wait converged; 1 refused, or with --wait failed again or out of time; 3 a host could not \
be reached.";

/// Arguments of `retry`.
#[derive(Debug, ClapArgs)]
pub struct RetryArgs {
    /// The change objects
    #[arg(value_name = "COB", required_unless_present = "all")]
    pub cobs: Vec<CobId>,
    /// All failed change objects on all hosts
    #[arg(long, conflicts_with = "cobs")]
    pub all: bool,
    /// Wait until they have converged or failed again, at most DURATION (without a value: 10 minutes)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
}

/// Arguments of `rollback`.
#[derive(Debug, ClapArgs)]
pub struct RollbackArgs {
    /// The target generation [default: the generation before on each host, if it is a rollback target; else the newest
    /// rollback target]. 0 removes all change objects of the first generation
    #[arg(value_name = "N", allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
    /// Only show the target and the conflicts with users' changes; changes no host
    #[arg(long, conflicts_with_all = ["wait", "despite_conflicts"])]
    pub prepare: bool,
    /// Roll back despite conflicts with users' changes: these file trees wait for `cobctl resolve`, and so do their
    /// dependents
    #[arg(long)]
    pub despite_conflicts: bool,
    /// Wait until it has converged, at most DURATION (without a value: 10 minutes)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
}

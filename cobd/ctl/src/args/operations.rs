//! Arguments of the commands that stop and start services: `stop`, `start`, `restart` and `drain`.

use std::time::Duration;

use clap::Args as ClapArgs;
use cob_types::HostName;

use crate::words::parse_span;

pub(super) const STOP: &str = "\
Examples:
  cobctl stop db --plan              which services would stop, in which order, for how long
  cobctl stop db --wait              the service on all its hosts; wait up to 10 minutes
  cobctl stop web --hosts n1,n2      the service on these hosts
  cobctl stop web --label rack=7     the service on the hosts with this label
  cobctl stop shop                   all services of a cluster
  cobctl stop n1/db/server           one change object
  cobctl stop n3                     all services on a host

If a NAME fits a service, a host and a cluster, write service:NAME, host:NAME or cluster:NAME.

Services that need a stopped service stop first. A budget makes its members stop one after the other. The order survives restarts \
of daemons and hosts; `cobctl start` or the next generation ends it. `cobctl status` shows the operator who gave it. \
A unit of systemd stays enabled: after a reboot of its host it may run for a moment.

Exit status: 0 the hosts accepted the order, or with --wait: stopped; 1 refused, or with --wait: not stopped; 2 bad usage; \
3 a host did not answer.";

pub(super) const START: &str = "\
Examples:
  cobctl start db            the stopped objects of a service, and the objects that stopped along with them
  cobctl start n3 --wait     all stopped services of a host; wait up to 10 minutes

Services start after the services that they need. A service that was stopped by its own order stays stopped. If a needed service \
stays stopped, the start is refused.

Exit status: 0 the hosts accepted the order, or with --wait: started; 1 refused, or with --wait: not started; 2 bad usage; \
3 a host did not answer.";

pub(super) const RESTART: &str = "\
Examples:
  cobctl restart web --plan          which services would stop and start, in which order, for how long
  cobctl restart web --wait          the service on all its hosts; wait up to 10 minutes
  cobctl restart n1/web/server       one change object

Services that need a restarted service stop before it and start after it. A budget makes its members restart one after the other. \
A stopped service is not restarted.

Exit status: 0 the hosts accepted the order, or with --wait: restarted; 1 refused, or with --wait: not restarted; 2 bad usage; \
3 a host did not answer.";

pub(super) const DRAIN: &str = "\
Examples:
  cobctl drain n1 --plan                        which services would stop, in which order, for how long
  cobctl drain n1                               stop all services on the host, and wait
  cobctl drain n1 --reboot                      then reboot it, and wait until all services have returned
  cobctl drain n1 n2 n3 --reboot                the same, one host after the other
  cobctl drain --label rack=7 --reboot --waves  several hosts at a time, in the fewest waves
  cobctl drain --label rack=7 --waves --plan    only show the waves
  cobctl start n1                               all services return without a reboot

Services on other hosts that need a service of the host stop first, and wait until it is back. Budgets are kept. With --waves, no \
wave interrupts more members of a budget than it allows, and no service of a cluster on all its hosts. Waves are shown before the \
start; a wave starts when all services of the wave before have returned, and a failure ends the command.

The order holds until the host has been rebooted, by any means, or until `cobctl start` or the next generation ends it. The same \
command, given again, continues after an interruption.

Exit status: 0 drained, or with --reboot: returned; 1 refused, failed or out of time; 2 bad usage; 3 a host did not answer.";

/// Hosts, by name or by label.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Selection {
    /// Only these hosts, separated by commas; with --label, only the hosts with the label
    #[arg(id = "only", long = "hosts", value_name = "HOSTS", value_delimiter = ',')]
    pub hosts: Vec<HostName>,
    /// Only hosts with this label of the model: NAME=VALUE, or NAME with any value; repeated: hosts with all labels
    #[arg(long = "label", value_name = "LABEL")]
    pub labels: Vec<String>,
}

/// Arguments of `drain`.
#[derive(Debug, Clone, ClapArgs)]
#[command(group = clap::ArgGroup::new("which").args(["drained", "labels"]).required(true).multiple(true))]
pub struct DrainArgs {
    /// The hosts
    #[arg(id = "drained", value_name = "HOST")]
    pub hosts: Vec<HostName>,
    /// Only hosts with this label of the model: NAME=VALUE, or NAME with any value; repeated: hosts with all labels
    #[arg(id = "labels", long = "label", value_name = "LABEL")]
    pub labels: Vec<String>,
    /// Reboot each host when it is drained, and wait until all its services have returned
    #[arg(long)]
    pub reboot: bool,
    /// With --reboot: several hosts at a time, in the fewest waves; without --waves, one host after the other
    #[arg(long)]
    pub waves: bool,
    /// Only show the plan
    #[arg(long)]
    pub plan: bool,
    /// Time limit of each wave for the drain, and again for the return of the services
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_span)]
    pub wait: Duration,
}

/// Arguments of `stop`, `start` and `restart`.
#[derive(Debug, Clone, ClapArgs)]
pub struct StopArgs {
    /// A service, a cluster, a host, a service of a host (HOST/SERVICE), or a change object
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// The hosts that it is restricted to
    #[command(flatten)]
    pub only: Selection,
    /// Only show the plan
    #[arg(long, conflicts_with = "wait")]
    pub plan: bool,
    /// Wait until it is done, at most DURATION (without a value: 10 minutes)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "10m", value_parser = parse_span)]
    pub wait: Option<Duration>,
}

//! The texts of the commands' helps, and the groups of `cobctl --help`.

use clap::{Arg, Command, CommandFactory as _};

use super::{Args, Group};

/// The commands in groups; each command is in one of them.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Look",
        &[
            "status", "check", "watch", "page", "graph", "explain", "history", "at", "replay", "report", "outcomes",
            "logs", "output", "diff", "files",
        ],
    ),
    ("Change", &["plan", "switch", "rollback", "stop", "start", "restart", "drain", "run", "pause", "resume", "retry"]),
    ("Decide conflicts and exceptions", &["resolve", "cancel", "discard", "limit", "budget", "fence", "mark-departed"]),
    ("Keep the installation", &["notify", "bootstrap", "upgrade", "trust", "facts", "durations"]),
    ("Develop", &["demo", "test-kind", "completions", "man"]),
];

/// Commands that use few or none of the options of every command, and the used ones besides `--color`: the demo has its
/// own daemons, `test-kind` needs none, and `bootstrap` and `upgrade` reach hosts over `ssh`.
const WITHOUT_DAEMONS: [(&str, &[&str]); 6] = [
    ("bootstrap", &["depot", "config", "json"]),
    ("upgrade", &["depot", "config", "json"]),
    ("demo", &[]),
    ("test-kind", &["json"]),
    ("completions", &[]),
    ("man", &[]),
];

const NOTE: &str = "Options of every command (--depot, --host, --key, --timeout, --json and others): `cobctl --help`.";

pub(super) const OVERVIEW: &str = "\
Examples:
  cobctl status                       this host, through its socket
  cobctl --depot /srv/depot status    all hosts of the newest generation
  cobctl --host tcp://127.0.0.1:7077 status
  cobctl explain n3/lb                why it waits, and what to do
  cobctl switch latest --wait         switch all hosts, wait up to 10 minutes
  cobctl trust whoami                 your rights on each host

`cobctl COMMAND --help` explains a command, with examples.

Exit status: 0 done, or yes; 1 no (not converged, refused); 2 bad usage; 3 a host or the depot could not be reached.";

/// The command line with its helps: the top level lists the commands in groups, and the options of every command; other
/// commands only refer to these options.
pub(super) fn described(added: Option<&Group>) -> Command {
    let own = Args::command();
    let global: Vec<Arg> = own.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let names: Vec<String> = own.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = added.map_or_else(Args::command, |added| (added.add)(Args::command()));
    let template = template(&command, added.map(|added| (added.heading, names.as_slice())));
    command.help_template(template).mut_subcommands(|command| {
        let is_own = names.iter().any(|name| name == command.get_name());
        let used = match added {
            Some(added) if !is_own => Some(added.options),
            Some(_) | None => used_by(command.get_name()),
        };
        without_repetition(command, &global, used)
    })
}

/// The list of commands. Added commands have a group of their own: the ones that are not among the own commands.
fn template(command: &Command, added: Option<(&str, &[String])>) -> String {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}{after-help}\n");
    let mut list = |heading: &str, names: &[&str]| {
        text.push_str(&format!("\n{heading}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<13}  {about}\n"));
        }
    };
    for (heading, names) in GROUPS {
        list(heading, names);
    }
    if let Some((heading, own)) = added {
        let all = command.get_subcommands().map(Command::get_name);
        list(heading, &all.filter(|name| !own.iter().any(|own| own == name)).collect::<Vec<_>>());
    }
    text.push_str("\nOptions of every command:\n{options}\n");
    text
}

fn used_by(name: &str) -> Option<&'static [&'static str]> {
    WITHOUT_DAEMONS.iter().find(|(command, _)| *command == name).map(|(_, used)| *used)
}

/// Hides the options of every command, except for the ones that a command without daemons uses.
fn without_repetition(command: Command, global: &[Arg], used: Option<&[&str]>) -> Command {
    let is_shown = |arg: &Arg| {
        let id = arg.get_id().as_str();
        used.is_some_and(|used| id == "color" || used.contains(&id))
    };
    let hidden: Vec<Arg> = global.iter().filter(|arg| !is_shown(arg)).map(|arg| arg.clone().hide(true)).collect();
    let command = command.args(hidden);
    if used.is_some() { command } else { with_note(command) }
}

fn with_note(command: Command) -> Command {
    let text = match command.get_after_help() {
        Some(text) => format!("{text}\n\n{NOTE}"),
        None => NOTE.to_owned(),
    };
    command.after_help(text).mut_subcommands(with_note)
}

pub(super) const STATUS: &str = "\
Examples:
  cobctl status n1            one host
  cobctl status n1/db n2/app  two change objects; exit 0 if they are in their desired states
  cobctl status --json | jq '.hosts[] | select(.converged | not) | .name'";

pub(super) const WATCH: &str = "\
Examples:
  cobctl watch
  cobctl watch n1 n2/app
  cobctl watch --until-converged --plain
  cobctl watch --json | jq -r '.hosts[].name'

On a terminal: a full screen with the cluster, its change objects, why each waits, and the switch; `?` shows the keys. On a \
pipe, on a terminal without cursor control (TERM=dumb) and with --plain: a line per change, until Ctrl-C. With --json: the \
status as JSON after each change.";

pub(super) const NOTIFY: &str = "\
Examples:
  cobctl notify notify.toml --test    a test message to each receiver
  cobctl notify notify.toml           until it is stopped: as a service

A receiver in the file:
  [[receiver]]
  name = \"ops\"
  webhook = \"https://chat.example.org/x\"   # or command, or mail
  on = [\"failed\", \"stuck\", \"host-away\"]   # everything otherwise

Notices: switched, rolled-back, stopped, failed, conflict, drift, stuck,
host-away. The guide `get-notified` has the whole file and a unit.";

pub(super) const GRAPH: &str = "\
Examples:
  cobctl graph > cluster.svg                            all of the active generation
  cobctl graph n2/app --format dot | dot -Tpng -o app.png
  cobctl graph n1 --format mermaid

Colours and words show what each change object does now; an arrow leads to what it needs.

Exit status: 0 drawn; 1 a name is unknown; 3 a host could not be reached: its change objects are drawn as unknown.";

pub(super) const REPORT: &str = "\
Examples:
  cobctl report latest                           the switch to the newest generation
  cobctl report 8 --html switch-8.html           with a picture, for a mail or a ticket
  cobctl report 8 --json | jq '.interruptions[] | select(.ns > 1e9)'

An interruption is the time in which a change object was away from a state to which it returned.

Exit status: 0 it converged; 1 it did not, or no such switch is known; 3 a host could not be reached.";

pub(super) const PAGE: &str = "\
Examples:
  cobctl page --open                          the page of the cluster, in the browser of this machine
  cobctl page --port 7080                     at a fixed port, for `ssh -L 7080:127.0.0.1:7080 HOST`
  cobctl page --model models/ --open          the page, which also edits and publishes the model

Prints the address and serves the page until Ctrl-C. It asks the daemons as you, with your key and your rights, and listens on \
127.0.0.1 only. The address contains a key that is new at each start. The page shows what `status`, `explain`, `history`, \
`replay`, `plan`, `diff` and `outcomes` show, live; its orders are commands of `cobctl`, and end when this program ends: a \
switch goes on without it.

Exit status: 0 ended by Ctrl-C; 2 bad usage; 3 the port or the depot could not be opened.";

pub(super) const HISTORY: &str = "\
Examples:
  cobctl history --since 10m
  cobctl history --cob n1/db
  cobctl history n1/budget/web
  cobctl history --follow
  cobctl history --json --since-generation 7 | jq 'select(.ok == false)'
  cobctl history --compare-plan plan.json

Shows transitions, checks and orders; --locks adds the lock messages between change objects. An effect always follows its \
cause, even if the clocks of hosts differ; so times increase within a host, but not always between hosts. --since and \
--until use the clock of each host.";

pub(super) const PLAN: &str = "\
Examples:
  cobctl plan latest
  cobctl plan 8 --gantt plan.svg
  cobctl plan 8 --json > plan.json; cobctl switch 8; cobctl watch --plan plan.json

Runs the switch in the daemons' engine on virtual time: order and reasons of the transitions, interruptions of services and \
their lengths, irreversible transitions, total time. The plan starts from the present state of the hosts and takes durations \
from their histories. It assumes that no transition fails and that users change no file. It also plans rollbacks: \
`cobctl plan 7` before `cobctl rollback 7`. For an unpublished generation, or from another generation: `cobgen plan`.

Exit status: 0 there is a plan; 1 the switch would not end; 3 a host or the depot could not be reached. \
--json: the format of `cobgen plan --from --json` (docs/plan.md).";

pub(super) const DURATIONS: &str = "\
Examples:
  cobctl durations > durations.json
  cobgen plan models/ --operation create --durations durations.json
  cobctl durations --transitions > moves.json
  cobgen plan --from 3 --to 4 --depot depot --durations moves.json
  cobctl --depot staging history --json > monday.jsonl
  cobctl durations --transitions monday.jsonl tuesday.jsonl > moves.json

Prints the median of the last successful runs of each action of a service with `actions`, per node and for all nodes. A note \
counts the change objects of other services, which are left out. With --transitions: every transition of every change object \
and its first check after an activation, with minimum, median and 90th percentile. Saved histories, oldest first, \
replace the hosts' answers: also of hosts that exist no more, or of another cluster with the same host names. \
An entry in several files counts once.

Exit status: 0 printed; 1 no such action has succeeded yet; 3 a host could not be reached, so its durations are missing.";

pub(super) const FACTS: &str = "\
Examples:
  cobctl facts > facts.new && mv facts.new model/facts.yaml
  cobctl facts n1 --json | jq '.facts.n1.memory_bytes'

The file belongs into the model's folder: templates then know `facts.n1.cpus` and, on n1, `host.facts.cpus`. A generation \
keeps the facts of the time when it was made.

Exit status: 0 printed; 3 a host could not be reached, so its facts are missing.";

pub(super) const ROLLBACK: &str = "\
Examples:
  cobctl rollback             to the generation before
  cobctl rollback 7 --wait    to generation 7, and wait up to 10 minutes until it has converged

First looks for conflicts, as a switch does: if users have changed files that the rollback changes too, it names these \
file trees and does not start (decide with `cobctl resolve COB --generation N`, or use --despite-conflicts).

A host that is not reachable rolls back later: the other hosts tell it. Irreversible transitions stay, and `cobctl status` \
names them. Afterwards only `cobctl switch N` with the number switches to the abandoned generation again. \
For a generation that is not a rollback target: publish the older content as a new generation, and switch to it.

Exit status: 0 ordered, or with --wait converged; 1 refused, in conflict, failed or out of time; 3 a host could not be \
reached.";

pub(super) const FENCE: &str = "\
Fence a host only when it is certainly off: its locks protect change objects on other hosts that it may still use. \
Afterwards no host waits for it to depart either. Change objects that stay in the model and need a change object of the \
fenced host continue to wait: bring the host back, or remove it from the model.

--power-off has the host switched off first, also if it answers: a surviving host with an ha-set gives the order to its \
Pacemaker cluster, whose fence device cuts the power. The locks are released only after the cluster has confirmed it. It \
runs stonith_admin on that host as `cobctl run` does, so the host must allow `run`.";

pub(super) const LOGS: &str = "\
Examples:
  cobctl logs n1/app              the last 100 lines
  cobctl logs n1/app -f           and new lines, also after restarts of the service, until interrupted
  cobctl logs n1/app --previous   of the run before: why did it end?

For a service with commands, the daemon keeps the first 64 KiB and the last 512 KiB of each of the last two runs. For a unit \
of systemd, the lines come from the journal of its host, with times.";

pub(super) const RESOLVE: &str = "\
Examples:
  cobctl resolve n1/app/config --theirs                 take the model's lines, keep the user's other lines
  cobctl resolve n1/app/config --edit                   edit the merge of both in $EDITOR
  cobctl resolve n1/app/config --ours --path /etc/app.conf";

pub(super) const COMPLETIONS: &str = "\
Examples:
  cobctl completions bash > /etc/bash_completion.d/cobctl
  cobctl completions zsh cobgen > /usr/share/zsh/site-functions/_cobgen";

pub(super) const AT: &str = "\
Examples:
  cobctl at 14:03                          at the last time that clocks showed 14:03 (UTC)
  cobctl at -5m n1 n2/app                  a host and a change object, five minutes ago
  cobctl at 2026-11-21T14:03:00+01:00 --diff now

The answer comes from the hosts' histories, each by its host's clock. Gaps are shown as not known: a history may begin \
later, or its host may not be reachable.

Exit status: 0 complete (with --diff: and no changes); 1 incomplete, or changes found; 3 a host could not be reached.";

pub(super) const REPLAY: &str = "\
Examples:
  cobctl replay 8                  step by step: Enter or space continues, q quits
  cobctl replay 8 --speed 10       ten times as fast as it was
  cobctl replay 8 | less           all steps, a line each
  cobctl replay 8 --otlp - | curl --json @- http://collector:4318/v1/traces
  cobctl replay 8 --json | jq -r 'select(.event == \"start\") | [.offset_ns, .cob, .waited[0].of] | @tsv'

The steps follow the merged history: an effect always follows its cause, even if the clocks of hosts differ. A switch ends \
when all hosts have activated the generation and no entry followed for a minute.

Exit status: 0 shown; 1 the histories contain no such switch; 3 a host could not be reached.";

pub(super) const DEMO: &str = "\
Examples:
  cobctl demo                     run it and remove all traces
  cobctl demo --hub               users, templates and machines of a hub, then no traces
  cobctl demo --keep /tmp/shop    leave it running, and print how to look at it
  cobctl demo --end /tmp/shop     end the cluster that --keep left";

pub(super) const TEST_KIND: &str = "\
Examples:
  cobctl test-kind --model model.yaml flag-file
  cobctl test-kind --model model.yaml --cob n1/flag --other '{\"colour\": \"red\"}' --watch /srv/flags flag-file
  cobctl test-kind wait --content '{\"ms\": 50}'

Runs the kind's commands on this machine, as your user: choose a content that does no harm here. Data that a daemon would \
keep goes into a scratch folder.

Exit status: 0 the kind keeps the contract, 1 it breaks it, 2 bad usage or no tests. \
With --json: {\"kind\", \"backend\", \"seed\", \"holds\", \"trials\": [{\"rule\", \"about\", \"verdict\": \"held\", \"broken\" or \
\"untried\", \"what\" and \"help\", or \"why\"}]}.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_a_single_help_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Args::command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn the_list_of_commands_fits_80_columns() {
        for line in template(&Args::command(), None).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn only_the_top_level_explains_the_options_of_every_command() {
        let mut command = described(None);
        command.build();
        let top = command.render_help().to_string();
        assert!(top.contains("--token-file") && top.contains("\nLook:\n  status  "), "{top}");
        for path in [&["status"][..], &["files", "log"], &["trust", "whoami"]] {
            let mut at = &mut command;
            for name in path {
                at = at.find_subcommand_mut(name).expect("a command");
            }
            let help = at.render_help().to_string();
            assert!(!help.contains("--token-file") && help.contains("`cobctl --help`"), "{help}");
        }
    }
}

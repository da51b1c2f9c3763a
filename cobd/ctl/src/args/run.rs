//! Arguments of `run`.

use std::time::Duration;

use clap::Args as ClapArgs;
use cob_types::command_run::{LONGEST_MS, RunId};

use super::Selection;
use crate::words::parse_span;

pub(super) const RUN: &str = "\
Examples:
  cobctl run --hosts web1,web2 -- systemctl is-active nginx
  cobctl run --label rack=7 --shell 'df -h / | tail -1'
  cobctl run --hosts db1 --user postgres --time-limit 30s -- psql -c 'select 1'
  cobctl run --all --plan -- reboot
  cobctl run --all --json -- uname -r | jq -r '.hosts[] | [.host, .stdout] | @tsv'

The program runs with these arguments as they are; --shell gives a line to /bin/sh. It has no input, the environment of \
actions (PATH, HOME, LANG) and the variables of --env. Its output is shown as it comes, with the name of the host before \
each line; its standard error goes to the standard error. Of each output 1 MiB is shown, and the command goes on.

The command ends on all hosts, with every process that it has started, when cobctl ends (Ctrl-C), when the connection \
breaks, when the daemon stops, and at its time limit. For a lasting process put a service into the model.

The order needs the role `administer`. The history of each host has it with its author and its command line, so write no \
passwords there (`cobctl history`). Hosts keep the output for a while: `cobctl output --run NUMBER`. A host with \
`run = false` in its cobd.toml refuses.

Exit status: 0 it succeeded on all hosts; 1 it failed on a host, or a host refused; 2 bad usage; 3 a host could not be \
reached, or its connection broke; 130 it was interrupted. With --json: {\"run\", \"command\", \"hosts\": [{\"host\", \"outcome\": \"ended\", \"refused\", \
\"unreachable\", \"disconnected\" or \"interrupted\", \"succeeded\", \"exit\", \"took_ms\", \"cut\", \"stdout\", \"stderr\", \"error\", \
\"hint\"}]}.";

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// The hosts.
    #[command(flatten)]
    pub on: Selection,
    /// All hosts
    #[arg(long, conflicts_with_all = ["only", "labels"])]
    pub all: bool,
    /// A line for /bin/sh, instead of a program with its arguments
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    pub shell: Option<String>,
    /// The user of the process [default: the daemon's, root]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Its working folder [default: /]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// A variable of its environment; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, String)>,
    /// The time that it may take on each host, at most 1h
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time_limit)]
    pub time_limit: Duration,
    /// How many hosts at the same time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// Show hosts and command without running it
    #[arg(long)]
    pub plan: bool,
    /// The program and its arguments, behind `--`
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "shell")]
    pub command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("{text:?} is no variable: write NAME=VALUE")),
    }
}

fn time_limit(text: &str) -> Result<Duration, String> {
    let limit = parse_span(text)?;
    if limit.is_zero() {
        return Err("a command needs some time: write 30s, 5m or up to 1h".to_owned());
    }
    if limit > Duration::from_millis(LONGEST_MS) {
        return Err("a command may take up to 1h; for a longer task, put a service into the model".to_owned());
    }
    Ok(limit)
}

/// The number of a run in the command line.
pub(super) fn run_id(text: &str) -> Result<RunId, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::args::{Args, Command, RunArgs};

    fn read(words: &[&str]) -> Result<RunArgs, String> {
        let line = ["cobctl", "run"].iter().chain(words);
        let Command::Run(args) = Args::read(line).map_err(|e| e.to_string())?.command else { panic!("{words:?}") };
        Ok(*args)
    }

    #[test]
    fn hosts_and_the_command_are_read() {
        let args = read(&["--hosts", "web1,web2", "--env", "A=b=c", "--", "ls", "--all", "-l"]).expect("read");
        assert_eq!(args.on.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["web1", "web2"]);
        assert_eq!(args.command, ["ls", "--all", "-l"]);
        assert_eq!((args.variables, args.all), (vec![("A".to_owned(), "b=c".to_owned())], false));
        assert_eq!((args.time_limit, args.parallel), (Duration::from_secs(300), 20));
        let args = read(&["--label", "rack=7", "--", "ls"]).expect("read");
        assert_eq!((args.on.labels, args.on.hosts.len()), (vec!["rack=7".to_owned()], 0));
        let args = read(&["--all", "--shell", "a | b", "--time-limit", "1h", "--json"]).expect("read");
        assert_eq!((args.shell.as_deref(), args.time_limit), (Some("a | b"), Duration::from_secs(3600)));
    }

    #[test]
    fn contradictory_run_options_are_bad_usage() {
        for (words, why) in [
            (&["--all"][..], "COMMAND"),
            (&["--all", "ls"], "unexpected"),
            (&["--all", "--hosts", "a", "--", "ls"], "cannot be used"),
            (&["--all", "--label", "a", "--", "ls"], "cannot be used"),
            (&["--all", "--shell", "x", "--", "ls"], "cannot be used"),
            (&["--hosts", "a b", "--", "ls"], "invalid value"),
            (&["--all", "--env", "A", "--", "ls"], "NAME=VALUE"),
            (&["--all", "--env", "=x", "--", "ls"], "NAME=VALUE"),
            (&["--all", "--time-limit", "2h", "--", "ls"], "up to 1h"),
            (&["--all", "--time-limit", "0s", "--", "ls"], "up to 1h"),
            (&["--all", "--parallel", "0", "--", "ls"], "parallel"),
        ] {
            let error = read(words).expect_err(why);
            assert!(error.contains(why), "{words:?}: {error}");
        }
    }
}

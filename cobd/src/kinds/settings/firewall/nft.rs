//! The program `nft`: lists and loads tables.

use std::process::Command;

use crate::kinds::native::{Ran, needs_program, run_bounded};

/// The longest listing; a longer output of a program is cut.
const MAX_LISTING: usize = (1 << 20) - 1;
/// Loads its standard input, and lists the table `$1 $2`. The namespace ends with the shell.
const LOAD_AND_LIST: &str = r#"nft -f - && exec nft -s list table "$1" "$2""#;

/// A table of the host without counters. `None`: there is no such table.
pub(super) fn list(name: &str) -> Result<Option<String>, String> {
    let tables = output(run(&["list", "tables"], b"")?)?;
    let line = format!("table {name}");
    if !tables.lines().any(|found| found.trim() == line) {
        return Ok(None);
    }
    let mut arguments = vec!["-s", "list", "table"];
    arguments.extend(name.split(' '));
    output(run(&arguments, b"")?).map(Some)
}

/// A table as [`list`] would show it: loaded in a network namespace of its own, without an effect on the host.
pub(super) fn normalised(name: &str, table: &str) -> Result<String, String> {
    is_installed()?;
    let ran = run_bounded(apart().args(["sh", "-c", LOAD_AND_LIST, "sh"]).args(name.split(' ')), table.as_bytes())?;
    if ran.code != Some(0) {
        let apart = run_bounded(apart().arg("true"), b"")?.ok();
        apart.map_err(|why| format!("nftables can't try the rules in a network namespace of their own: {why}"))?;
    }
    output(ran)
}

/// A program in a network namespace of its own.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).env("LC_ALL", "C.UTF-8");
    command
}

/// Loads a text in a single transaction: all of it, or nothing.
pub(super) fn load(text: &str) -> Result<(), String> {
    output(run(&["-f", "-"], text.as_bytes())?).map(|_| ())
}

fn is_installed() -> Result<(), String> {
    needs_program("nft", "nftables")
}

fn run(arguments: &[&str], input: &[u8]) -> Result<Ran, String> {
    is_installed()?;
    run_bounded(Command::new("nft").args(arguments).env("LC_ALL", "C.UTF-8"), input)
}

/// The output after success. An error has the complaint of nftables and the rule that it is about.
fn output(ran: Ran) -> Result<String, String> {
    if ran.code == Some(0) {
        if ran.out.len() >= MAX_LISTING {
            return Err(format!("the table is longer than {} KiB", MAX_LISTING >> 10));
        }
        return Ok(ran.out);
    }
    let mut lines = ran.err.lines();
    match lines.by_ref().find_map(|line| line.split_once("Error: ")) {
        Some((_, what)) => {
            let rule = lines.next().map(str::trim).filter(|rule| !rule.is_empty() && !rule.starts_with('^'));
            Err(format!("nft: {what}{}", rule.map(|rule| format!(": `{rule}`")).unwrap_or_default()))
        }
        None => Err(ran.complaint()),
    }
}

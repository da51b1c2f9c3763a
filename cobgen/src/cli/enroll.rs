//! `cobgen enroll`: enrols new hosts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cob_depot::PublishError;
use cob_depot::enrolled::{self, Added, Former};
use cob_depot::tokens::{self, Issued};
use cob_trust::enrol::Token;
use cob_types::words::count;
use cob_types::{HostName, PublicKey};
use serde_json::json;
use zeroize::Zeroizing;

use super::serve::address;
use super::{Answer, CommandResult, Stop, Terminal, seconds};
use crate::calendar::{now, rfc3339, signed, utc};
use cob_trust::SecretKey;

/// The longest lifetime of a token, in seconds.
const LONGEST: u64 = 30 * 24 * 3600;

/// The options of `cobgen enroll`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen enroll h1 h2 h3 --depot site/depot --server tcp://10.0.0.1:7070
  cobgen enroll --list --depot site/depot
  cobgen enroll --accept h1 --depot site/depot               # a waiting key (serve --policy manual)
  cobgen enroll --accept h1 ed25519:… --depot site/depot     # a key brought by a person

Prints the command to run on each host, with a token that is valid once, for this host, until it expires. The \
holder of the token can become the host: keep it as secret as a password. A new token replaces an older unused \
token of the same host.

If a host that has enrolled before is set up anew, the key that it enrols now replaces the old key, and the next \
generation revokes the old key (--keep-old-key: both are valid). docs/how-to/replace-a-lost-host.md.

Exit status: 0 done; 1 no key of the host waits; 2 wrong names or options; 3 a file could not be written.")]
pub struct EnrollArgs {
    /// The hosts, by their names in the model; with --accept a single host, and its key if a person brought it
    #[arg(value_name = "HOST", required_unless_present = "list")]
    hosts: Vec<String>,
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Where the new hosts reach `cobgen serve`
    #[arg(long, value_name = "ADDRESS", value_parser = address, required_unless_present_any = ["list", "accept"])]
    server: Option<SocketAddr>,
    /// How long the tokens are valid: 30m, 1h, 2d; at most 30d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = lifetime)]
    expires: u64,
    /// The file of the server's key, as given to `cobgen serve`
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Keep the old key of a host that has enrolled before valid beside the new key: for a change of the key while the
    /// host runs
    #[arg(long, conflicts_with = "list")]
    keep_old_key: bool,
    /// Accept a host whose key waits, or is given
    #[arg(long, conflicts_with_all = ["list", "server"])]
    accept: bool,
    /// Show the state of the tokens, and how often a token was refused
    #[arg(long, conflicts_with = "server")]
    list: bool,
    /// Print {"commands": [{"host", "command", "token", "expires"}]}, or with --list {"unknown", "tokens": [{"host",
    /// "state", "made", "expires", "key", "refused"}]}; times in seconds since 1970-01-01 UTC
    #[arg(long)]
    pub(super) json: bool,
}

impl EnrollArgs {
    fn former(&self) -> Former {
        if self.keep_old_key { Former::Keep } else { Former::Revoke }
    }
}

pub(super) fn run(args: &EnrollArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    drop(cob_depot::Depot::open(&args.depot)?);
    if args.list {
        return list(args, terminal);
    }
    if args.accept {
        return accept(args, terminal);
    }
    let hosts: Result<Vec<HostName>, _> = args.hosts.iter().map(|name| HostName::new(name)).collect();
    let hosts = &hosts.map_err(Stop::plain)?;
    let server = args.server.ok_or_else(|| Stop::plain("--server is missing"))?;
    let key = SecretKey::of_server(&args.depot, args.key.as_deref())
        .map_err(|error| Stop::plain(format!("the server's key: {error}")))?
        .public();
    let known = enrolled::read(&args.depot)?;
    for (host, keys) in hosts.iter().filter_map(|host| Some((host, known.get(host)?))) {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let then = match args.former() {
            Former::Revoke => "the key of the host that shows this token replaces the old key, which is revoked",
            Former::Keep => "the key of the host that shows this token is valid beside the old key",
        };
        writeln!(terminal.err, "warning: {host} has enrolled before, with {}: {then}", keys.join(" and "))?;
    }
    let (now, mut commands) = (now(), Vec::new());
    for host in hosts {
        let token = Token::generate(host.clone(), key)?;
        tokens::issue(&args.depot, host, token.hash(), (now, args.expires), args.former())?;
        commands.push((host, token.reveal()));
    }
    tell(args, (server, now), &commands, terminal)
}

fn tell(
    args: &EnrollArgs,
    (server, now): (SocketAddr, u64),
    commands: &[(&HostName, Zeroizing<String>)],
    terminal: &mut Terminal<'_>,
) -> CommandResult {
    let expires = now.saturating_add(args.expires);
    let command = |token: &str| format!("cobd join tcp://{server} {token}");
    if args.json {
        let one = |(host, token): &(&HostName, Zeroizing<String>)| json!({"host": host, "command": command(token), "token": **token, "expires": expires});
        let all: Vec<_> = commands.iter().map(one).collect();
        writeln!(terminal.out, "{:#}", json!({"commands": all}))?;
        return Ok(Answer::Done);
    }
    for (host, token) in commands {
        writeln!(terminal.err, "As root on {host}, until {}:", utc(signed(expires)))?;
        writeln!(terminal.out, "{}", command(token))?;
    }
    writeln!(
        terminal.err,
        "Each token is valid once. Then `cobgen generate` puts the keys into the next generation; `cobgen enroll \
         --list --depot {}` shows which hosts have enrolled.",
        args.depot.display()
    )?;
    Ok(Answer::Done)
}

fn accept(args: &EnrollArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let (name, key) = match args.hosts.as_slice() {
        [name] => (name, None),
        [name, key] => (name, Some(key)),
        _ => return Err(Stop::plain("--accept takes a single host, and its key if a person brought it")),
    };
    let host = HostName::new(name).map_err(Stop::plain)?;
    let key = key.map(|key| key.parse::<PublicKey>()).transpose().map_err(Stop::plain)?;
    match let_in(&args.depot, &host, key, args.former())? {
        Some((key, added)) => {
            writeln!(terminal.out, "{host} is enrolled with {key}")?;
            if let Added::Replaced(keys) = added {
                for key in keys {
                    writeln!(
                        terminal.out,
                        "  its former key {key} is revoked: `cobgen generate` and `cobctl switch latest` inform all hosts"
                    )?;
                }
            }
            Ok(Answer::Done)
        }
        None => {
            let help = format!("`cobgen enroll --list` shows the waiting hosts; or give the key: --accept {host} KEY");
            Err(Stop::Plain(format!("no key of {host} waits\n  help: {help}"), Answer::No))
        }
    }
}

fn let_in(
    depot: &Path,
    host: &HostName,
    key: Option<PublicKey>,
    former: Former,
) -> Result<Option<(PublicKey, Added)>, PublishError> {
    let at = rfc3339(now());
    match key {
        Some(key) => enrolled::add(depot, host, key, &at, former).map(|added| Some((key, added))),
        None => tokens::accept(depot, host, &at, former),
    }
}

fn list(args: &EnrollArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let all = tokens::read(&args.depot)?;
    let now = now();
    if args.json {
        let one = |t: &Issued| {
            let Issued { host, made, expires, key, refused, .. } = t;
            json!({"host": host, "state": state(t, now), "made": made, "expires": expires, "key": key, "refused": refused})
        };
        let tokens: Vec<_> = all.tokens.iter().map(one).collect();
        writeln!(terminal.out, "{:#}", json!({"unknown": all.unknown, "tokens": tokens}))?;
        return Ok(Answer::Done);
    }
    for token in &all.tokens {
        let Issued { host, expires, key, refused, .. } = token;
        let key = key.map(|key| format!("  {key}")).unwrap_or_default();
        let refused = if *refused > 0 { format!("  REFUSED {}", count(*refused, "time")) } else { String::new() };
        writeln!(terminal.out, "{host}  {}  until {}{key}{refused}", state(token, now), utc(signed(*expires)))?;
    }
    if all.unknown > 0 {
        writeln!(terminal.out, "{} an unknown token was shown", count(all.unknown, "time"))?;
    }
    Ok(Answer::Done)
}

/// The state of a token, as a single word.
fn state(token: &Issued, now: u64) -> &'static str {
    match token {
        Issued { pending: true, .. } => "waits",
        Issued { key: Some(_), .. } => "enrolled",
        Issued { expires, .. } if *expires <= now => "expired",
        Issued { .. } => "open",
    }
}

/// Parses `90s`, `30m`, `1h` or `2d` to seconds.
fn lifetime(text: &str) -> Result<u64, String> {
    let seconds = seconds(text).filter(|seconds| (1..=LONGEST).contains(seconds));
    seconds.ok_or_else(|| "a time from 1s to 30d: 30m, 1h, 2d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_of_tokens_have_a_number_and_a_unit() {
        for (text, seconds) in [("1s", 1), ("30m", 1800), ("1h", 3600), ("30d", LONGEST)] {
            assert_eq!(lifetime(text), Ok(seconds));
        }
        for text in ["", "0s", "1", "h", "31d", "-1h", "1.5h", "99999999999999999999h"] {
            assert!(lifetime(text).is_err(), "{text}");
        }
    }
}

//! `cobgen enroll`: enrols new hosts.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cob_depot::PublishError;
use cob_depot::enrolled::{self, Added, Former};
use cob_depot::tokens::{self, Issued};
use cob_trust::enrol::Token;
use cob_types::words::count;
use cob_types::{HostName, PublicKey};
use serde_json::json;

use super::serve::address;
use super::{Answer, Terminal, tell_depot, tell_publish};
use crate::calendar::{rfc3339, utc};
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
    depot: PathBuf,
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
    /// Print {"commands": [{"host", "command", "expires"}]}, or with --list {"unknown", "tokens": [{"host",
    /// "state", "made", "expires", "key", "refused"}]}; times in seconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

impl EnrollArgs {
    fn former(&self) -> Former {
        if self.keep_old_key { Former::Keep } else { Former::Revoke }
    }
}

pub(super) fn run(args: &EnrollArgs, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    if let Err(error) = cob_depot::Depot::open(&args.depot) {
        return tell_depot(&error, &args.depot, args.json, terminal);
    }
    if args.list {
        return list(args, terminal);
    }
    if args.accept {
        return accept(args, terminal);
    }
    let hosts: Result<Vec<HostName>, _> = args.hosts.iter().map(|name| HostName::new(name)).collect();
    let (Ok(hosts), Some(server)) = (&hosts, args.server) else {
        let error = hosts.err().map_or_else(|| "--server is missing".to_owned(), |e| e.to_string());
        writeln!(terminal.err, "error: {error}")?;
        return Ok(Answer::Bad);
    };
    let key = match SecretKey::of_server(&args.depot, args.key.as_deref()) {
        Ok(key) => key.public(),
        Err(error) => {
            writeln!(terminal.err, "error: the server's key: {error}")?;
            return Ok(Answer::Bad);
        }
    };
    let known = match enrolled::read(&args.depot) {
        Ok(known) => known,
        Err(error) => return tell_depot(&error, &args.depot, args.json, terminal),
    };
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
        if let Err(error) = tokens::issue(&args.depot, host, token.hash(), (now, args.expires), args.former()) {
            return tell_publish(&error, &args.depot, args.json, terminal);
        }
        commands.push((host, format!("cobd join tcp://{server} {}", *token.reveal())));
    }
    tell(args, now, &commands, terminal)
}

fn tell(
    args: &EnrollArgs,
    now: u64,
    commands: &[(&HostName, String)],
    terminal: &mut Terminal<'_>,
) -> io::Result<Answer> {
    let expires = now.saturating_add(args.expires);
    if args.json {
        let one = |(host, command): &(&HostName, String)| json!({"host": host, "command": command, "expires": expires});
        let all: Vec<_> = commands.iter().map(one).collect();
        writeln!(terminal.out, "{:#}", json!({"commands": all}))?;
        return Ok(Answer::Done);
    }
    for (host, command) in commands {
        writeln!(terminal.err, "As root on {host}, until {}:", utc(signed(expires)))?;
        writeln!(terminal.out, "{command}")?;
    }
    writeln!(
        terminal.err,
        "Each token is valid once. Then `cobgen generate` puts the keys into the next generation; `cobgen enroll \
         --list --depot {}` shows which hosts have enrolled.",
        args.depot.display()
    )?;
    Ok(Answer::Done)
}

fn accept(args: &EnrollArgs, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let (name, key) = match args.hosts.as_slice() {
        [name] => (name, None),
        [name, key] => (name, Some(key)),
        _ => {
            writeln!(terminal.err, "error: --accept takes a single host, and its key if a person brought it")?;
            return Ok(Answer::Bad);
        }
    };
    let parsed = HostName::new(name).map_err(|e| e.to_string());
    let key = key.map(|key| key.parse::<PublicKey>().map_err(|e| e.to_string())).transpose();
    let (host, key) = match (parsed, key) {
        (Ok(host), Ok(key)) => (host, key),
        (Err(error), _) | (_, Err(error)) => {
            writeln!(terminal.err, "error: {error}")?;
            return Ok(Answer::Bad);
        }
    };
    match let_in(&args.depot, &host, key, args.former()) {
        Ok(Some((key, added))) => {
            writeln!(terminal.out, "{host} is enrolled with {key}")?;
            if let Added::Replaced(keys) = added {
                for key in keys {
                    writeln!(
                        terminal.out,
                        "  its former key {key} is revoked: `cobgen generate` and `cobctl switch latest` inform all \
                         hosts"
                    )?;
                }
            }
            Ok(Answer::Done)
        }
        Ok(None) => {
            writeln!(terminal.err, "error: no key of {host} waits")?;
            writeln!(
                terminal.err,
                "  help: `cobgen enroll --list` shows the waiting hosts; or give the key: --accept {host} KEY"
            )?;
            Ok(Answer::No)
        }
        Err(error) => tell_publish(&error, &args.depot, args.json, terminal),
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

fn list(args: &EnrollArgs, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let all = match tokens::read(&args.depot) {
        Ok(all) => all,
        Err(error) => return tell_depot(&error, &args.depot, args.json, terminal),
    };
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
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err("a number and s, m, h or d: 30m, 1h, 2d".to_owned()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    seconds.filter(|s| (1..=LONGEST).contains(s)).ok_or_else(|| "from 1s to 30d".to_owned())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
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

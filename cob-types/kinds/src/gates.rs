//! The kinds that run inside the daemon: `wait`, `tcp-check`, `http-check`, `noop` and `budget`.

use std::num::NonZeroU32;
use std::time::Duration;

use cob_types::secret;
use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::{Builtin, Content, Faults, Place, Time};

/// The content of `wait`: either of the two fields.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// How long.
    #[schemars(with = "Option<u32>")]
    seconds: Option<Time>,
    /// How long, in milliseconds.
    ms: Option<u32>,
}

/// The content of `tcp-check`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpCheck {
    /// Up once a connection to `HOST:PORT` is accepted.
    pub address: String,
    /// Between two tries; default: 500ms.
    #[serde(default = "interval")]
    pub interval: Time,
    /// The time limit of a try; default: 2s.
    #[serde(default = "attempt")]
    pub timeout: Time,
}

/// The content of `http-check`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// Up once a GET of this is answered as wanted.
    pub url: String,
    /// The status wanted; default: 200.
    #[serde(default = "ok")]
    #[schemars(range(min = 100, max = 599))]
    pub status: u16,
    /// The text that the page must contain.
    pub contains: Option<String>,
    /// Between two tries; default: 500ms.
    #[serde(default = "interval")]
    pub interval: Time,
    /// The time limit of a try; default: 2s.
    #[serde(default = "attempt")]
    pub timeout: Time,
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAddress {
    /// The host to connect to, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The value of the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

/// The content of `noop`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Noop {
    /// Values for dependents.
    #[serde(default)]
    pub exports: Map<String, Json>,
}

/// The content of `budget`, which `cobgen` makes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How many members may be away from their preferred states at a time.
    pub at_most: NonZeroU32,
}

fn attempt() -> Time {
    Time::from_millis(2000)
}

fn interval() -> Time {
    Time::from_millis(500)
}

fn ok() -> u16 {
    200
}

impl Content for Wait {
    const KIND: Builtin = Builtin::gate("wait");

    fn check(&self, faults: &mut Faults) {
        if self.seconds.is_some() == self.ms.is_some() {
            let what = "the content of `wait` needs either `seconds` or `ms`";
            faults.add(Place::Content, what, "write `content: {seconds: 5}`");
        } else if !Time(self.time()).is_allowed() {
            faults.add_as("bad-duration", Place::Content, "the wait is longer than 7 days", "");
        }
    }
}

impl Wait {
    /// The time to wait.
    #[must_use]
    pub fn time(&self) -> Duration {
        let ms = self.ms.map(|ms| Duration::from_millis(ms.into()));
        ms.or(self.seconds.map(|time| time.0)).unwrap_or_default()
    }
}

impl Content for TcpCheck {
    const KIND: Builtin = Builtin { interval_ms: Some(30_000), ..Builtin::gate("tcp-check") };

    fn check(&self, faults: &mut Faults) {
        let is_good = self.address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !is_good {
            let what = format!("{:?} is not an address", self.address);
            faults.add_as("bad-address", "address", what, "write HOST:PORT, for example 127.0.0.1:5432");
        }
    }
}

impl Content for HttpCheck {
    const KIND: Builtin = Builtin { interval_ms: Some(30_000), ..Builtin::gate("http-check") };

    fn check(&self, faults: &mut Faults) {
        // A secret in the URL is another fault, which `cobgen` reports.
        if let Some(why) = self.page().err().filter(|_| secret::marks(&self.url).next().is_none()) {
            let what = format!("{:?} is not a URL that can be checked: {why}", self.url);
            faults.add_as("bad-url", "url", what, "write http://HOST:PORT/PATH");
        }
        if !(100..=599).contains(&self.status) {
            faults.add("status", format!("the status {} is not between 100 and 599", self.status), "");
        }
    }
}

impl HttpCheck {
    /// The parts of the URL.
    ///
    /// # Errors
    /// Why the daemon can't fetch the page.
    pub fn page(&self) -> Result<HttpAddress, &'static str> {
        let uri: Uri = self.url.parse().map_err(|_| "it does not have the form of a URL")?;
        if uri.scheme_str() != Some("http") {
            return Err("only http:// is supported");
        }
        let authority = uri.authority().filter(|a| !a.host().is_empty()).ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("user and password are not sent");
        }
        // For `http://h:port` the parser keeps the text and knows no number.
        let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        if !rest.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err("its port is not a number from 1 to 65535");
        }
        Ok(HttpAddress {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

impl Content for Noop {
    const KIND: Builtin = Builtin { gate: true, ..Builtin::program("noop") };

    fn check(&self, _faults: &mut Faults) {}
}

impl Content for Budget {
    const KIND: Builtin = Builtin {
        states: &["open"],
        preferred: "open",
        pre_remove: "open",
        transitions: &[],
        ..Builtin::program("budget")
    };

    fn check(&self, _faults: &mut Faults) {}
}

//! The durations of transitions: recorded, with their spread, or given by a person.
//!
//! A file of lines `WHO FROM>TO: TIME`. The most specific line wins: a change object `HOST/NAME`, its name on any host
//! `*/NAME`, its kind, `*` alone. `WHO check` is a check, `message` the time to inform another host. A time is `90s`, a
//! number of seconds, or a record: `{"min": …, "median": …, "p90": …, "runs": N}`.

use std::collections::BTreeMap;
use std::path::Path;

use cob_engine::sim::Random;
use cob_types::{CobId, KindName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use cob_depot::input;
use cob_types::words::parse_duration;

/// The largest file of durations, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// The default duration of a transition.
const UNKNOWN: Spread = Spread::always(1_000_000);
/// The default duration of a check: about the time that a shell needs.
const CHECK: Spread = Spread::always(20_000);
/// The default time to write a grant and send it to another host.
const MESSAGE: Spread = Spread::always(1000);

/// A summary of several times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The shortest.
    pub min: u64,
    /// The middle of the times.
    pub median: u64,
    /// Nine of ten times are no longer.
    pub p90: u64,
}

impl Spread {
    /// A constant time.
    #[must_use]
    pub const fn always(us: u64) -> Self {
        Self { min: us, median: us, p90: us }
    }

    /// Whether the time is constant.
    #[must_use]
    pub const fn is_fixed(&self) -> bool {
        self.min == self.p90
    }

    /// Draws a random time: linear interpolation through the three known points, and extrapolation beyond.
    fn draw(&self, random: &mut Random) -> u64 {
        let at = random.below(1000);
        let (low, high) = (self.median - self.min, self.p90 - self.median);
        match at {
            0..500 => self.min + low * at / 500,
            500.. => self.median + high * (at - 500) / 400,
        }
    }
}

/// The subject of a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timed {
    /// `FROM>TO`.
    Transition(String, String),
    /// A check.
    Check,
    /// Any transition.
    Any,
}

impl Timed {
    fn transition(&self) -> Option<(&str, &str)> {
        match self {
            Timed::Transition(from, to) => Some((from, to)),
            Timed::Check | Timed::Any => None,
        }
    }
}

/// The known durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    /// By `HOST/NAME`, `*/NAME`, kind, or `*`.
    of: BTreeMap<String, BTreeMap<Timed, Spread>>,
    /// Durations of other change objects of a kind, if the input has no line for the kind.
    gathered: BTreeMap<KindName, BTreeMap<Timed, Spread>>,
    message: Option<Spread>,
}

/// The result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) spread: Spread,
    /// The time is recorded or given.
    pub(crate) known: bool,
    /// The time is from other change objects of the kind.
    pub(crate) of_others: bool,
}

impl Looked {
    /// A time from the change object itself.
    pub(crate) fn known(spread: Spread) -> Self {
        Self { spread, known: true, of_others: false }
    }
}

/// Reads a file of durations, or with `-` the standard input.
///
/// # Errors
/// The fault in words.
pub fn read(path: &Path) -> Result<Durations, String> {
    let text = input::read_given(path, MAX_FILE).map_err(|e| format!("can't read {}: {e}", path.display()))?;
    Durations::of_text(&text).map_err(|what| format!("{}: {what}", path.display()))
}

impl Durations {
    /// Parses the text of a file of durations.
    ///
    /// # Errors
    /// The fault in words.
    pub fn of_text(text: &str) -> Result<Self, String> {
        // Output of programs is JSON, and may have far more lines than a person's YAML.
        let printed = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
        let lines: BTreeMap<String, Value> = match printed {
            Some(lines) => lines,
            None => serde_saphyr::from_str(text).map_err(|e| e.to_string())?,
        };
        let mut all = Self::default();
        for (key, value) in &lines {
            let spread = spread(key, value)?;
            let words: Vec<&str> = key.split_whitespace().collect();
            let (who, of) = match words[..] {
                ["message"] => {
                    all.message = Some(spread);
                    continue;
                }
                ["*"] => ("*", Timed::Any),
                ["check"] => ("*", Timed::Check),
                [who, "check"] => (who, Timed::Check),
                [who, transition] => match transition.split_once('>') {
                    Some((from, to)) if !from.is_empty() && !to.is_empty() => {
                        (who, Timed::Transition(from.to_owned(), to.to_owned()))
                    }
                    Some(_) | None => return Err(form(key)),
                },
                _ => return Err(form(key)),
            };
            all.of.entry(who.to_owned()).or_default().insert(of, spread);
        }
        Ok(all)
    }

    /// Adds durations for kinds without their own line: the medians over their known change objects.
    pub(crate) fn gather_kinds<'a>(&mut self, kind_of: impl Fn(&str) -> Option<&'a KindName>) {
        let mut gathered: BTreeMap<(&KindName, &Timed), Vec<Spread>> = BTreeMap::new();
        for (who, times) in &self.of {
            let Some(kind) = kind_of(who) else { continue };
            for (of, spread) in times {
                gathered.entry((kind, of)).or_default().push(*spread);
            }
        }
        let middle = |mut times: Vec<u64>| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        };
        let summed: Vec<(KindName, Timed, Spread)> = gathered
            .into_iter()
            .map(|((kind, of), all)| {
                let min = all.iter().map(|s| s.min).min().unwrap_or_default();
                let median = middle(all.iter().map(|s| s.median).collect());
                // A single recorded run has no spread; the spread is between change objects.
                let mut longest: Vec<u64> = all.iter().map(|s| s.p90).collect();
                longest.sort_unstable();
                let p90 = longest[(longest.len() * 9).div_ceil(10) - 1].max(median);
                (kind.clone(), of.clone(), Spread { min: min.min(median), median, p90 })
            })
            .collect();
        for (kind, of, spread) in summed {
            if !self.of.get(kind.as_str()).is_some_and(|said| said.contains_key(&of)) {
                self.gathered.entry(kind).or_default().insert(of, spread);
            }
        }
    }

    /// The subject and transition of each line; `None` for a check, or for any transition.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, Option<(&str, &str)>)> {
        let all = self.of.iter().flat_map(|(who, times)| times.keys().map(move |of| (who, of)));
        all.map(|(who, of)| (who.as_str(), of.transition()))
    }

    /// The duration of a transition.
    pub(crate) fn transition(&self, cob: &CobId, kind: Option<&KindName>, from: &str, to: &str) -> Looked {
        let transition = Timed::Transition(from.to_owned(), to.to_owned());
        let any = || Some(Looked::known(*self.of.get("*")?.get(&Timed::Any)?));
        let unknown = Looked { spread: UNKNOWN, known: false, of_others: false };
        self.find(cob, kind, &transition).or_else(any).unwrap_or(unknown)
    }

    /// The duration of a check.
    pub(crate) fn check(&self, cob: &CobId, kind: Option<&KindName>) -> Spread {
        self.find(cob, kind, &Timed::Check).map_or(CHECK, |looked| looked.spread)
    }

    /// The duration of a message.
    pub(crate) fn message(&self) -> Spread {
        self.message.unwrap_or(MESSAGE)
    }

    fn find(&self, cob: &CobId, kind: Option<&KindName>, of: &Timed) -> Option<Looked> {
        if self.of.is_empty() {
            return None;
        }
        let said = |who: &str| Some(Looked::known(*self.of.get(who)?.get(of)?));
        let anywhere = format!("*/{}", cob.name());
        let whose = [Some(cob.as_str()), Some(anywhere.as_str()), kind.map(KindName::as_str)];
        let of_others = || {
            let spread = *self.gathered.get(kind?)?.get(of)?;
            Some(Looked { of_others: true, ..Looked::known(spread) })
        };
        whose.into_iter().flatten().find_map(said).or_else(of_others).or_else(|| said("*"))
    }
}

pub(crate) fn draw(spread: Spread, random: Option<&mut Random>) -> u64 {
    match random {
        Some(random) if !spread.is_fixed() => spread.draw(random),
        Some(_) | None => spread.median,
    }
}

fn form(key: &str) -> String {
    format!(
        "`{key}`: write `HOST/NAME FROM>TO`, `*/NAME FROM>TO`, `KIND FROM>TO`, `WHO check`, `message` or `*`; \
         `cobctl durations --transitions` prints such a file"
    )
}

fn spread(key: &str, value: &Value) -> Result<Spread, String> {
    if let Value::Object(fields) = value {
        let of = |name: &str| fields.get(name).map(|value| time(key, value)).transpose();
        let Some(median) = of("median")? else {
            return Err(format!("`{key}`: `median` is missing"));
        };
        let (min, p90) = (of("min")?.unwrap_or(median), of("p90")?.unwrap_or(median));
        if min > median || median > p90 {
            return Err(format!("`{key}`: `min` must not exceed `median`, and `median` must not exceed `p90`"));
        }
        return Ok(Spread { min, median, p90 });
    }
    time(key, value).map(Spread::always)
}

/// Parses `90s`, `350us`, or a number of seconds, to microseconds.
fn time(key: &str, value: &Value) -> Result<u64, String> {
    let of_text = |text: &str| {
        let micros = text.strip_suffix("us").and_then(|number| number.parse::<u64>().ok());
        micros.or_else(|| parse_duration(text).map(|ms| ms.saturating_mul(1000)))
    };
    let seconds = || value.as_u64().map(|seconds| seconds.saturating_mul(1_000_000));
    let wrong = || {
        format!(
            "`{key}`: {value} is not a time of at most a year; write a number with its unit: 350us, 500ms, 30s, 2m, \
             1h"
        )
    };
    // Sums of times up to a year cannot overflow.
    const LONGEST: u64 = 365 * 24 * 3600 * 1_000_000;
    value.as_str().and_then(of_text).or_else(seconds).filter(|us| *us <= LONGEST).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> CobId {
        CobId::new(text).expect("an id")
    }

    fn median(durations: &Durations, cob: &str, transition: &str) -> u64 {
        let (from, to) = transition.split_once('>').expect("FROM>TO");
        durations.transition(&id(cob), Some(&"simple".parse().expect("a kind")), from, to).spread.median
    }

    #[test]
    fn the_more_exact_line_wins() {
        let text =
            "\"*\": 7s\nsimple down>up: 6s\n\"*/db down>up\": 5s\nn1/db down>up: {min: 1s, median: 2s, p90: 4s}\n";
        let durations = Durations::of_text(text).expect("right");
        let cases = [("n1/db", "down>up", 2), ("n2/db", "down>up", 5), ("n1/a", "down>up", 6), ("n1/a", "up>down", 7)];
        for (cob, transition, seconds) in cases {
            assert_eq!(median(&durations, cob, transition), seconds * 1_000_000, "{cob} {transition}");
        }
        let unknown = Looked { spread: UNKNOWN, known: false, of_others: false };
        assert_eq!(Durations::default().transition(&id("n/a"), None, "x", "y"), unknown);
    }

    #[test]
    fn durations_of_a_large_cluster_are_parsed() {
        let line = |n: u32| format!("\"n1/c{n} down>up\":{{\"median\":\"{n}us\",\"min\":\"0us\",\"p90\":\"9s\"}}");
        let text = format!("{{{}}}", (0..60_000).map(line).collect::<Vec<_>>().join(","));
        let durations = Durations::of_text(&text).expect("read");
        assert_eq!(median(&durations, "n1/c59999", "down>up"), 59_999);
        // YAML that starts like JSON.
        let durations = Durations::of_text("{n1/db down>up: 2s}").expect("read");
        assert_eq!(median(&durations, "n1/db", "down>up"), 2_000_000);
    }

    #[test]
    fn unknown_durations_are_estimated_from_the_same_kind() {
        let mut durations =
            Durations::of_text("n1/a down>up: 1s\nn2/a down>up: 3s\nn3/a down>up: 2s\nn1/a check: 5ms").expect("right");
        let kind: KindName = "simple".parse().expect("a kind");
        durations.gather_kinds(|who| who.contains('/').then_some(&kind));
        let spread = durations.transition(&id("n9/z"), Some(&kind), "down", "up").spread;
        assert_eq!((spread.min, spread.p90), (1_000_000, 3_000_000), "the spread is between them");
        assert_eq!(median(&durations, "n9/z", "down>up"), 2_000_000);
        assert_eq!(median(&durations, "n1/a", "down>up"), 1_000_000);
        assert_eq!(durations.check(&id("n9/z"), Some(&kind)).median, 5000);
    }

    #[test]
    fn draws_keep_to_the_three_times() {
        let spread = Spread { min: 100, median: 200, p90: 600 };
        let mut random = Random::new(3);
        let mut drawn: Vec<u64> = (0..2000).map(|_| spread.draw(&mut random)).collect();
        drawn.sort_unstable();
        assert!(drawn[0] >= 100 && drawn[1999] <= 700, "{} {}", drawn[0], drawn[1999]);
        assert!((190..=215).contains(&drawn[1000]), "{}", drawn[1000]);
        assert!((560..=640).contains(&drawn[1800]), "{}", drawn[1800]);
    }

    #[test]
    fn wrong_lines_are_told() {
        for (text, wrong) in [
            ("install db n1: 3m", "write `HOST/NAME FROM>TO`"),
            ("n1/db down: 3m", "write `HOST/NAME FROM>TO`"),
            ("n1/db down>up: soon", "is not a time"),
            ("n1/db down>up: {min: 1s}", "`median` is missing"),
            ("n1/db down>up: {min: 9s, median: 1s}", "`min` must not exceed `median`"),
            ("n1/db down>up: {median: 1s, p90: 0s}", "`median` must not exceed `p90`"),
            ("- 1", ""),
        ] {
            let told = Durations::of_text(text).expect_err(text);
            assert!(told.contains(wrong), "{text}: {told}");
        }
    }
}

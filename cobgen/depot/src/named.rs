//! Generation names on the command line.

use std::fmt;
use std::str::FromStr;

use cob_types::GenerationNumber;

use crate::{Depot, DepotError};

/// A generation as users name it: `7`, `latest`, or `-1` for the generation before the latest of a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationName {
    /// The generation with this number; 0 is the empty generation before the first one.
    Number(GenerationNumber),
    /// The generation that is this many generations older than the latest one; 0: the latest generation.
    Back(usize),
}

impl GenerationName {
    /// The latest generation.
    pub const LATEST: Self = Self::Back(0);

    /// Finds the number of the generation. A generation named by its number is not looked up in the depot.
    ///
    /// # Errors
    /// If the depot can't be read, or has fewer generations.
    pub fn find(self, depot: &Depot) -> Result<GenerationNumber, DepotError> {
        let back = match self {
            Self::Number(number) => return Ok(number),
            // Fails if a newer generation was lost.
            Self::Back(0) => return depot.latest()?.ok_or(DepotError::TooFewGenerations { back: 0, has: 0 }),
            Self::Back(back) => back,
        };
        let all = depot.newest_first()?;
        all.get(back).copied().ok_or(DepotError::TooFewGenerations { back, has: all.len() })
    }
}

impl fmt::Display for GenerationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Back(0) => f.write_str("latest"),
            Self::Back(back) => write!(f, "-{back}"),
        }
    }
}

impl FromStr for GenerationName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a generation: write its number, `latest`, or `-1` for the generation before the \
                latest"
            )
        };
        match (text, text.strip_prefix('-')) {
            ("latest", _) => Ok(Self::LATEST),
            ("active", _) => Err("a depot does not know the active generation; `cobctl status` shows it".to_owned()),
            (_, Some(back)) => back.parse().ok().filter(|back| *back > 0).map(Self::Back).ok_or_else(wrong),
            (number, None) => number.parse().map(|number| Self::Number(GenerationNumber(number))).map_err(|_| wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{publication, sketch_of};

    #[test]
    fn names_are_read_and_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let depot = Depot::create_or_open(folder.path()).expect("a depot");
        let find = |text: &str| text.parse::<GenerationName>().expect("a name").find(&depot);
        assert!(matches!(find("latest"), Err(DepotError::TooFewGenerations { has: 0, .. })));
        for number in 1..=3 {
            depot.publish(&publication(&sketch_of(number, &[("n1", number)]), "")).expect("published");
        }
        let found = |text: &str| find(text).expect("found").0;
        assert_eq!([found("latest"), found("-1"), found("-2"), found("0"), found("9")], [3, 2, 1, 0, 9]);
        let error = find("-3").expect_err("too far").to_string();
        assert_eq!(error, "there is no generation -3: the depot has 3 generations");
        for text in ["-0", "", "-", "+1x", "Latest", "--1", "1.5", "active"] {
            assert!(text.parse::<GenerationName>().is_err(), "{text}");
        }
        assert_eq!(
            ["latest", "-2", "7"].map(|t| t.parse::<GenerationName>().expect("a name").to_string()),
            ["latest", "-2", "7"]
        );
    }
}

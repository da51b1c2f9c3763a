//! The kind back end `firewall`: a table of nftables, now and after every boot.
//!
//! [`text`] writes the table, [`nft`] runs the program, [`boot`] has the files for the next boot. nftables shows rules
//! in its own way, so a check loads the desired table into a network namespace of its own and compares the two listings.

mod boot;
#[cfg(test)]
mod firewall_test;
mod nft;
mod text;

use cob_kinds::Firewall;
use serde_json::{Value, json};

use self::boot::Boot;
use super::{Entry, Spec};

/// The key of the table in a note.
const TABLE: &str = "table";
/// The value of [`TABLE`] if the host has the desired table.
const AS_WANTED: &str = "as in the content";
/// The most lines of a difference that are named.
const MAX_NAMED: usize = 8;

impl Entry<Firewall> {
    fn boot(&self) -> Boot<'_> {
        Boot { host: &self.host, content: &self.content }
    }

    /// The difference of the table of the host from the desired table.
    fn compare(&self) -> Result<String, String> {
        let name = self.content.full_name();
        let wanted = nft::normalised(&name, &text::table(&self.content))?;
        Ok(match nft::list(&name)? {
            None => "not there".to_owned(),
            Some(found) if found == wanted => AS_WANTED.to_owned(),
            Some(found) => lines_that_differ(&wanted, &found),
        })
    }
}

/// The lines that only one of two listings has.
fn lines_that_differ(wanted: &str, found: &str) -> String {
    let rest = |of: &str, without: &str| {
        let mut without: Vec<&str> = without.lines().map(str::trim).collect();
        let mut rest: Vec<String> = Vec::new();
        for line in of.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "}") {
            match without.iter().position(|other| *other == line) {
                Some(at) => drop(without.swap_remove(at)),
                None => rest.push(format!("`{line}`")),
            }
        }
        let more = rest.len().saturating_sub(MAX_NAMED);
        rest.truncate(MAX_NAMED);
        if more > 0 {
            rest.push(format!("{more} more"));
        }
        rest.join(", ")
    };
    let (lacks, has) = (rest(wanted, found), rest(found, wanted));
    match (lacks.is_empty(), has.is_empty()) {
        (true, true) => "the rules are in another order".to_owned(),
        (false, true) => format!("lacks {lacks}"),
        (true, false) => format!("has besides {has}"),
        (false, false) => format!("lacks {lacks}; has besides {has}"),
    }
}

impl Spec for Entry<Firewall> {
    fn target(&self) -> String {
        format!("table {}", self.content.full_name())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = self.boot().look()?;
        found[TABLE] = json!(self.compare()?);
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        // Others may load an equal table at boot in another way.
        let mut seen = self.wanted();
        seen[TABLE] = json!(self.compare()?);
        Ok(Some(seen))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let mut before = self.boot().before()?;
        before[TABLE] = json!(nft::list(&self.content.full_name())?);
        Ok(Some(before))
    }

    fn wanted(&self) -> Value {
        let mut wanted = self.boot().wanted();
        wanted[TABLE] = json!(AS_WANTED);
        wanted
    }

    fn hindered(&self) -> Result<(), String> {
        // A rule that nftables does not understand is found before any change.
        nft::normalised(&self.content.full_name(), &text::table(&self.content)).map(|_| ())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        nft::load(&text::replacing(&self.content.full_name(), &text::table(&self.content)))?;
        self.boot().apply()
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.boot().restore(before)?;
        let table = before.and_then(|before| before[TABLE].as_str()).unwrap_or_default();
        nft::load(&text::replacing(&self.content.full_name(), table))
    }
}

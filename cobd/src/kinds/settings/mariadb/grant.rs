//! The kind back end `mariadb-grant`.
//!
//! Privileges are in the words of SHOW GRANTS. A privilege on columns, which no content names, is noted and restored
//! without a change.

use std::collections::BTreeSet;

use cob_kinds::{MariadbGrant, MariadbServer};

use super::super::sql::grants::{Change, Found, Granted, Grants, Object, Privileges};
use super::super::{Entry, Setting, Spec};
use super::{account, client};

/// All privileges, in the words of the server.
const ALL: &str = "ALL PRIVILEGES";
/// The right to pass privileges on.
const GRANT_OPTION: &str = "GRANT OPTION";

/// The back end `mariadb-grant`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct GrantSetting;

impl Setting for GrantSetting {
    type Content = MariadbGrant;

    fn spec(&self, Entry { content, .. }: Entry<MariadbGrant>) -> Result<Box<dyn Spec>, String> {
        Ok(Box::new(Granted(Grant(content))))
    }
}

/// The desired privileges.
#[derive(Debug)]
struct Grant(MariadbGrant);

/// The privileges on an object, in the words of SHOW GRANTS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The object in statements. `None`: the line gives a role.
    object: Option<String>,
    privileges: Privileges,
}

impl Line {
    /// Whether it gives no privileges.
    pub(super) fn is_empty(&self) -> bool {
        self.object.is_some() && self.privileges.is_empty()
    }
}

/// The lines of SHOW GRANTS.
pub(super) fn grants(server: &MariadbServer, account: &str) -> Result<Vec<Line>, String> {
    let shown = client::run(server, &format!("SHOW GRANTS FOR {account};"))?;
    Ok(shown.lines().filter_map(|line| read(line, account)).collect())
}

/// Reads a line: ``GRANT SELECT (`a`), INSERT ON `d`.`t` TO `u`@`h` WITH GRANT OPTION``.
fn read(line: &str, account: &str) -> Option<Line> {
    let text = line.strip_prefix("GRANT ")?;
    let (given, rest) = text.split_once(&format!(" TO {account}"))?;
    let Some(on) = outside(given, " ON ").into_iter().next() else {
        return Some(Line { object: None, privileges: Privileges::new() });
    };
    let (given, object) = (&given[..on], &given[on + " ON ".len()..]);
    let mut privileges = Privileges::new();
    let mut start = 0;
    for end in outside(given, ", ").into_iter().chain([given.len()]) {
        privileges.insert(given[start..end].to_owned());
        start = end + ", ".len();
    }
    privileges.remove("USAGE");
    // The hash of the password and other texts are between the account and the options.
    let options: String = rest.split('\'').step_by(2).collect();
    if options.contains(" WITH GRANT OPTION") {
        privileges.insert(GRANT_OPTION.to_owned());
    }
    Some(Line { object: Some(object.to_owned()), privileges })
}

/// The places of a mark outside of names and of lists of columns.
fn outside(text: &str, mark: &str) -> Vec<usize> {
    let (mut in_name, mut in_list) = (false, false);
    let mut places = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '`' => in_name = !in_name,
            '(' if !in_name => in_list = true,
            ')' if !in_name => in_list = false,
            _ if !in_name && !in_list && text[at..].starts_with(mark) => places.push(at),
            _ => {}
        }
    }
    places
}

impl Grant {
    fn account(&self) -> String {
        client::account(&self.0.user, self.0.host())
    }

    /// The object in statements. In the name of a database, `_` and `%` would be patterns; others may have granted
    /// privileges on a pattern: the second object.
    fn named(&self) -> Vec<String> {
        match (&self.0.database, &self.0.table) {
            (Some(database), Some(table)) => vec![format!("{}.{}", client::name(database), client::name(table))],
            (Some(database), None) => {
                let exact = database.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%");
                let both = BTreeSet::from([exact.clone(), database.clone()]);
                let mut both: Vec<String> = both.into_iter().filter(|name| *name != exact).collect();
                both.insert(0, exact);
                both.iter().map(|name| format!("{}.*", client::name(name))).collect()
            }
            (None, _) => vec!["*.*".to_owned()],
        }
    }
}

impl Grants for Grant {
    fn target(&self) -> String {
        let user = format!("{}@{}", self.0.user, self.0.host());
        format!("privileges of {user} on {} at {}", self.0.place(), self.0.server().name())
    }

    fn is_installed(&self) -> Result<(), String> {
        client::is_installed()
    }

    fn privileges(&self) -> Privileges {
        let given = self.0.privileges.iter().map(|privilege| if privilege == "ALL" { ALL } else { privilege });
        given.chain(self.0.grant_option.then_some(GRANT_OPTION)).map(str::to_owned).collect()
    }

    fn find(&self, _noted: &BTreeSet<&str>) -> Result<Option<Found>, String> {
        let server = self.0.server();
        if account::attributes(&server, &self.0.user, self.0.host())?.is_none() {
            return Ok(None);
        }
        let lines = grants(&server, &self.account())?;
        let held = |key: &str| lines.iter().find(|line| line.object.as_deref() == Some(key));
        let objects = self.named().into_iter().enumerate().map(|(at, key)| {
            let held = held(&key).map(|line| line.privileges.clone()).unwrap_or_default();
            let wanted = if at == 0 { self.privileges() } else { Privileges::new() };
            Object { key, held, wanted: Some(wanted), inherits: None }
        });
        Ok(Some(Found { objects: objects.collect(), missing: Vec::new(), given: self.privileges() }))
    }

    fn grantee(&self) -> String {
        format!("the user {}@{}", self.0.user, self.0.host())
    }

    fn change(&self, changes: &[Change]) -> Result<(), String> {
        let account = self.account();
        let mut statements = String::new();
        for change in changes {
            let (key, mut from) = (&change.key, change.from.clone());
            // Others are parts of all privileges.
            if change.to.contains(ALL) {
                from.retain(|privilege| privilege == GRANT_OPTION);
            } else if from.remove(ALL) {
                statements.push_str(&format!("REVOKE {ALL} ON {key} FROM {account};\n"));
            }
            // A privilege on a table that is revoked takes the same privilege on columns along.
            for privilege in from.difference(&change.to) {
                statements.push_str(&format!("REVOKE {privilege} ON {key} FROM {account};\n"));
            }
            for privilege in change.to.difference(&from) {
                statements.push_str(&match privilege.as_str() {
                    GRANT_OPTION => format!("GRANT USAGE ON {key} TO {account} WITH GRANT OPTION;\n"),
                    privilege => format!("GRANT {privilege} ON {key} TO {account};\n"),
                });
            }
        }
        client::run(&self.0.server(), &statements).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(privileges: &[&str]) -> Privileges {
        privileges.iter().map(|privilege| (*privilege).to_owned()).collect()
    }

    #[test]
    fn lines_of_show_grants_are_read() {
        let account = "`it's`@`%`";
        for (line, object, privileges) in [
            (
                "GRANT PROCESS, BINLOG MONITOR ON *.* TO `it's`@`%` IDENTIFIED BY PASSWORD '*76' REQUIRE SSL WITH GRANT \
                 OPTION MAX_QUERIES_PER_HOUR 4",
                Some("*.*"),
                &["PROCESS", "BINLOG MONITOR", GRANT_OPTION][..],
            ),
            ("GRANT USAGE ON *.* TO `it's`@`%` IDENTIFIED VIA x USING ' WITH GRANT OPTION'", Some("*.*"), &[]),
            (
                "GRANT SELECT (`a, ON ``x`, (`b)`), INSERT ON `d`.`t ON ``x` TO `it's`@`%`",
                Some("`d`.`t ON ``x`"),
                &["SELECT (`a, ON ``x`, (`b)`)", "INSERT"],
            ),
            ("GRANT ALL PRIVILEGES ON `my\\_db`.* TO `it's`@`%`", Some("`my\\_db`.*"), &[ALL]),
            ("GRANT `role` TO `it's`@`%`", None, &[]),
        ] {
            let expected = Line { object: object.map(str::to_owned), privileges: set(privileges) };
            assert_eq!(read(line, account), Some(expected), "{line}");
        }
        assert_eq!(read("SET DEFAULT ROLE `role` FOR `it's`@`%`", account), None);
    }
}

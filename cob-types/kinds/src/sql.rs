//! Checks that the kinds of database servers share.

use super::Faults;

/// The end of the name under which an absent object waits.
const ASIDE: &str = ".cob-before";

/// The name under which an absent role, user or database of a server waits.
#[must_use]
pub fn aside_name(name: &str) -> String {
    format!("{name}{ASIDE}")
}

/// Checks the name of an object on a server; `max`: the most bytes.
pub(super) fn check_name(key: &'static str, name: &str, max: usize, faults: &mut Faults) {
    if name.is_empty() || name.len() > max || name.chars().any(char::is_control) || name.ends_with(ASIDE) {
        let what = format!("{name:?} can't be a name on a database server");
        faults.add(key, what, format!("1 to {max} bytes, without control characters and without {ASIDE} at the end"));
    }
}

/// Checks the account of the host that speaks with a server.
pub(super) fn check_account(account: &str, faults: &mut Faults) {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == ':';
    if account.is_empty() || account.starts_with('-') || account.contains(is_odd) {
        faults.add("account", format!("{account:?} is not an account"), "write it as in /etc/passwd");
    }
}

/// Checks that a content with `absent: true` has no other keys.
pub(super) fn check_absent(others: &[(&'static str, bool)], faults: &mut Faults) {
    for (key, _) in others.iter().filter(|(_, given)| *given) {
        faults.add(*key, format!("`{key}` has no meaning with `absent: true`"), "remove either key");
    }
}

/// Checks that an absent name can be put aside.
pub(super) fn check_aside(name: &str, max: usize, faults: &mut Faults) {
    if name.len() + ASIDE.len() > max {
        let what = format!("{name:?} is too long to be put aside");
        faults.add("name", what, format!("an absent name has at most {} bytes", max - ASIDE.len()));
    }
}

/// Checks the privileges of a grant; `known`: all of the objects in it.
pub(super) fn check_privileges(privileges: &[String], absent: bool, known: &[&str], faults: &mut Faults) {
    if privileges.is_empty() && !absent {
        faults.add("privileges", "there are no privileges", "write a list, for example [SELECT], or `absent: true`");
    }
    for privilege in privileges {
        if privilege != "ALL" && !known.contains(&privilege.as_str()) {
            let help = format!("these objects have ALL, {}", known.join(", "));
            faults.add(("privileges", privilege), format!("{privilege:?} is no privilege of these objects"), help);
        }
    }
    if privileges.len() > 1 && privileges.iter().any(|privilege| privilege == "ALL") {
        faults.add("privileges", "ALL includes the other privileges", "write [ALL], or a list without it");
    }
}

//! The kind back end `host-entry`: names of an address in `/etc/hosts`.
//!
//! The entry is a separate line, marked with the change object's id. It precedes the first line of others that maps one
//! of its names to an address of the same sort, because the first line counts. Other lines stay as they are, also
//! concurrent changes. Lines of other change objects stay beside it: the model wants all of these lines.

use std::net::IpAddr;

use cob_kinds::HostEntry;
use cob_types::CobId;
use serde_json::{Value, json};

use super::{Entry, Setting, Spec};
use crate::kinds::native::{Host, insert_line, lines};

const FILE: &str = HostEntry::FILE;
/// The name of the file lock for its changes.
const TURN: &str = "hosts";
/// The text before the id of a line's change object.
const MARK: &str = "# cob ";

/// The back end `host-entry`.
#[derive(Debug)]
pub(super) struct HostEntrySetting;

#[derive(Debug)]
struct NameLine {
    host: Host,
    address: IpAddr,
    names: Vec<String>,
    line: String,
    mark: String,
}

impl Setting for HostEntrySetting {
    type Content = HostEntry;

    fn spec(&self, Entry { content, host, cob, .. }: Entry<HostEntry>) -> Result<Box<dyn Spec>, String> {
        let address = content.ip().ok_or_else(|| format!("content: {:?} is not an address", content.address))?;
        let mark = format!("{MARK}{cob}");
        let line = format!("{address} {} {mark}", content.names.join(" "));
        Ok(Box::new(NameLine { host, address, names: content.names, line, mark }))
    }
}

impl NameLine {
    fn is_ours(&self, line: &str) -> bool {
        line.trim_end().ends_with(&self.mark) && !line.trim_start().starts_with('#')
    }

    /// Whether a line maps one of the names to an address of the same sort, and belongs to no other change object.
    fn speaks_of(&self, line: &str) -> bool {
        let mut said = line.split('#').next().unwrap_or_default().split_whitespace();
        let is_rival = said.next().and_then(|word| word.parse().ok()).is_some_and(|it| is_same_sort(self.address, it));
        let is_name = |word: &str| self.names.iter().any(|name| name.eq_ignore_ascii_case(word));
        is_rival && said.any(is_name) && !self.is_of_another(line)
    }

    /// The answer to a query for this name and the same sort of address, from any line.
    fn answer(&self, text: &str, name: &str) -> Option<IpAddr> {
        text.lines().find_map(|line| {
            let mut said = line.split('#').next().unwrap_or_default().split_whitespace();
            let address = said.next()?.parse().ok().filter(|address| is_same_sort(self.address, *address))?;
            said.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        })
    }

    /// Whether a line belongs to another change object of this host.
    fn is_of_another(&self, line: &str) -> bool {
        let cob = |text: &str| CobId::new(text.trim_end().rsplit_once(MARK)?.1).ok();
        let (its, own) = (cob(line), cob(&self.mark));
        its != own && its.zip(own).is_some_and(|(its, own)| its.host_str() == own.host_str())
    }

    fn without_ours(&self, text: &str) -> Vec<String> {
        lines(text).into_iter().filter(|line| !self.is_ours(line)).map(str::to_owned).collect()
    }
}

/// Whether both addresses answer the same query. Queries have an address family, and an IPv6 loopback or IPv4-mapped
/// address answers both families.
fn is_same_sort(one: IpAddr, other: IpAddr) -> bool {
    let is_of_4 = |address: IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => address.is_loopback() || address.to_ipv4_mapped().is_some(),
    };
    (is_of_4(one) && is_of_4(other)) || (one.is_ipv6() && other.is_ipv6())
}

impl Spec for NameLine {
    fn target(&self) -> String {
        FILE.to_owned()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn shared(&self) -> Option<(&str, &'static str)> {
        Some((FILE, TURN))
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.host.read(FILE)?;
        let ours: Vec<_> = text.lines().filter(|line| self.is_ours(line)).collect();
        let first = text.lines().find(|line| self.speaks_of(line));
        Ok(match ours.as_slice() {
            [] => None,
            [line] if first == Some(line) => Some(json!(line)),
            _ => Some(json!({ "lines": ours, "first": first })),
        })
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let text = self.host.read(FILE)?;
        match self.names.iter().all(|name| self.answer(&text, name) == Some(self.address)) {
            true => Ok(Some(self.wanted())),
            false => self.look(None),
        }
    }

    fn wanted(&self) -> Value {
        json!(self.line)
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let with_ours = |text: &str| {
            let mut lines = self.without_ours(text);
            let place = lines.iter().position(|line| self.speaks_of(line)).unwrap_or(lines.len());
            insert_line(&mut lines, place, &self.line);
            Some(lines.concat()).filter(|new| new != text)
        };
        self.host.edit(FILE, 0o644, &with_ours).map(|_| ())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        // Original lines of this change object: it departed earlier, and the lines stayed.
        let kept: Vec<&str> = match before {
            Some(Value::String(line)) => vec![line],
            Some(found) => found["lines"].as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        // A file without our line stays as it is.
        let restored = |text: &str| {
            let place = lines(text).iter().position(|line| self.is_ours(line));
            let mut others = self.without_ours(text);
            for (at, line) in kept.iter().enumerate().filter(|_| place.is_some()) {
                insert_line(&mut others, place.unwrap_or_default() + at, line);
            }
            Some(others.concat()).filter(|new| new != text)
        };
        self.host.edit(FILE, 0o644, &restored).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::spec_in;
    use super::*;

    #[test]
    fn what_others_have_written_stays_byte_for_byte() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("etc/hosts");
        fs::create_dir(root.path().join("etc")).expect("made");
        let content = format!(r#"{{"root":{:?},"address":"10.0.0.1","names":["db"]}}"#, root.path());
        let spec = spec_in(&HostEntrySetting, &content, "n1/db").expect("good");
        for theirs in [
            b"10.0.0.9 db # b\xFCro\n".as_slice(),
            b"127.0.0.1 localhost\r\n10.0.0.9 db\r\n",
            b"127.0.0.1 localhost\n10.0.0.9 other",
            b"127.0.0.1 localhost\r\n10.0.0.9 db",
            b"",
        ] {
            fs::write(&file, theirs).expect("written");
            spec.apply(None).expect("applied");
            assert_eq!(spec.look(None).expect("seen"), Some(spec.wanted()));
            let now = fs::read(&file).expect("read");
            assert_eq!(now.len(), theirs.len() + b"10.0.0.1 db # cob n1/db\n".len(), "{now:?}");
            spec.restore(None).expect("restored");
            assert_eq!(fs::read(&file).expect("read"), theirs);
        }
        // A line that stayed after a departure is there after the next departure, too.
        let kept = "127.0.0.1 localhost\n10.0.0.9 other\n10.0.0.7 db # cob n1/db\n";
        fs::write(&file, kept).expect("written");
        let before = spec.look(None).expect("seen");
        spec.apply(None).expect("applied");
        spec.restore(before.as_ref()).expect("restored");
        assert_eq!(fs::read_to_string(&file).expect("read"), kept);
    }
}

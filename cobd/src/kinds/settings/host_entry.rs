//! The kind back end `host-entry`: names of an address in `/etc/hosts`.
//!
//! The entry is a separate line, marked with the change object's id. It precedes the first line of others that maps one
//! of its names to an address of the same sort, because the first line counts. Other lines stay as they are, also
//! concurrent changes. Lines of other change objects stay beside it: the model wants all of these lines.
//!
//! With `absent` the names are taken out of the lines of others instead, and put back at the departure.

use std::net::IpAddr;

use cob_kinds::HostEntry;
use cob_types::CobId;
use serde_json::{Value, json};

use super::cut::{Cut, Rest, bare};
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

/// Names that must not have an address. No names: any name; no address: any address.
#[derive(Debug)]
struct NoEntry {
    host: Host,
    address: Option<IpAddr>,
    names: Vec<String>,
    mark: String,
}

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

    fn is_short(&self) -> bool {
        true
    }

    fn spec(&self, Entry { content, host, cob, .. }: Entry<HostEntry>) -> Result<Box<dyn Spec>, String> {
        let mark = format!("{MARK}{cob}");
        if content.absent {
            let address = content.ip();
            return Ok(Box::new(NoEntry { host, address, names: content.names, mark }));
        }
        let address = content.ip().ok_or_else(|| format!("content: {:?} is not an address", content.address))?;
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
        is_rival && said.any(is_name) && !is_of_another(line, &self.mark)
    }

    /// The answer to a query for this name and the same sort of address, from any line.
    fn answer(&self, text: &str, name: &str) -> Option<IpAddr> {
        text.lines().find_map(|line| {
            let mut said = line.split('#').next().unwrap_or_default().split_whitespace();
            let address = said.next()?.parse().ok().filter(|address| is_same_sort(self.address, *address))?;
            said.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        })
    }

    fn without_ours(&self, text: &str) -> Vec<String> {
        lines(text).into_iter().filter(|line| !self.is_ours(line)).map(str::to_owned).collect()
    }
}

/// Whether a line belongs to another change object of this host.
fn is_of_another(line: &str, mark: &str) -> bool {
    let cob = |text: &str| CobId::new(text.trim_end().rsplit_once(MARK)?.1).ok();
    let (its, own) = (cob(line), cob(mark));
    its != own && its.zip(own).is_some_and(|(its, own)| its.host_str() == own.host_str())
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

    fn shared(&self) -> Option<&str> {
        Some(FILE)
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

impl NoEntry {
    /// The part of a line that stays: other names keep the address, and a line without a name goes.
    fn rest(&self, line: &str) -> Rest {
        let text = &bare(line)[..bare(line).find('#').unwrap_or(bare(line).len())];
        let mut words = text.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { return Rest::Whole };
        let is_meant = self.address.is_none_or(|meant| meant == address);
        if !is_meant || is_of_another(line, &self.mark) {
            return Rest::Whole;
        }
        let goes = |word: &str| self.names.is_empty() || self.names.iter().any(|name| name.eq_ignore_ascii_case(word));
        if !words.clone().any(goes) {
            return Rest::Whole;
        }
        if words.all(goes) {
            return Rest::Nothing;
        }
        // Each name goes with the blanks before it; the rest stays byte for byte.
        let (mut kept, mut at) = (String::new(), 0);
        for word in text.split_whitespace() {
            let start = at + text[at..].find(word).unwrap_or_default();
            let end = start + word.len();
            if kept.is_empty() || !goes(word) {
                kept.push_str(&line[at..end]);
            }
            at = end;
        }
        Rest::Part(kept + &line[at..])
    }
}

impl Spec for NoEntry {
    fn target(&self) -> String {
        let address = self.address.map(|address| address.to_string()).unwrap_or_default();
        format!("no {address} {} in {FILE}", self.names.join(" "))
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn shared(&self) -> Option<&str> {
        Some(FILE)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.host.read(FILE)?;
        let found = lines(&text).into_iter().filter(|line| self.rest(line) != Rest::Whole);
        Ok(Some(json!(found.map(bare).collect::<Vec<_>>())))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(Some(json!(Cut::of(&self.host.read(FILE)?, &|line| self.rest(line)))))
    }

    fn wanted(&self) -> Value {
        json!([])
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let without = |text: &str| Some(Cut::out_of(text, &|line| self.rest(line))).filter(|new| new != text);
        self.host.edit(FILE, 0o644, &without).map(|_| ())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let cut: Cut = before.and_then(|cut| serde_json::from_value(cut.clone()).ok()).unwrap_or_default();
        let is_there = |line: &str, gone: &str| bare(line) == bare(gone);
        let with = |text: &str| Some(cut.put_back(text, &is_there, &|_, _| None)).filter(|new| new != text);
        if cut.is_empty() { Ok(()) } else { self.host.edit(FILE, 0o644, &with).map(|_| ()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::spec_in;
    use super::*;

    #[test]
    fn lines_of_others_stay_byte_for_byte() {
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
    #[test]
    fn names_that_must_not_exist_go_and_return_byte_for_byte() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("etc/hosts");
        fs::create_dir(root.path().join("etc")).expect("made");
        let cases: &[(&str, &[u8], &[u8])] = &[
            (
                r#""names":["db"]"#,
                b"::1 localhost\n10.0.0.9 db\n10.0.0.8\tweb  DB db.x # db\n",
                b"::1 localhost\n10.0.0.8\tweb db.x # db\n",
            ),
            (r#""names":["db"]"#, b"10.0.0.9 db # b\xFCro\n1.1.1.1 b # \xFC db", b"1.1.1.1 b # \xFC db"),
            (r#""names":["db"],"address":"10.0.0.9""#, b"10.0.0.9 db\r\n10.0.0.8 db\r\n", b"10.0.0.8 db\r\n"),
            (r#""address":"10.0.0.9""#, b"10.0.0.9 db web\n#10.0.0.9 db\n10.0.0.9", b"#10.0.0.9 db\n10.0.0.9"),
            (
                r#""names":["db"]"#,
                b"1.1.1.1 db # cob n1/other\n2.2.2.2 db # cob n2/other\n",
                b"1.1.1.1 db # cob n1/other\n",
            ),
            (r#""names":["10.0.0.9"]"#, b"10.0.0.9 db\n", b"10.0.0.9 db\n"),
            (r#""names":["db"]"#, b"", b""),
        ];
        for (keys, theirs, without) in cases {
            let content = format!(r#"{{"root":{:?},"absent":true,{keys}}}"#, root.path());
            let spec = spec_in(&HostEntrySetting, &content, "n1/no-db").expect("good");
            fs::write(&file, theirs).expect("written");
            let before = spec.before().expect("seen");
            for (is_back, expected) in [(false, without), (true, theirs)] {
                for _ in 0..2 {
                    if is_back { spec.restore(before.as_ref()) } else { spec.apply(before.as_ref()) }.expect("done");
                    let now = fs::read(&file).expect("read");
                    assert_eq!(String::from_utf8_lossy(&now), String::from_utf8_lossy(expected), "{keys} {is_back}");
                }
                assert_eq!(spec.look(None).expect("seen") == Some(spec.wanted()), !is_back || without == theirs);
            }
        }
        // A file that does not exist is not made.
        fs::remove_file(&file).expect("removed");
        let spec = spec_in(
            &HostEntrySetting,
            &format!(r#"{{"root":{:?},"absent":true,"names":["db"]}}"#, root.path()),
            "n1/x",
        );
        let spec = spec.expect("good");
        let before = spec.before().expect("seen");
        spec.apply(before.as_ref()).expect("applied");
        spec.restore(before.as_ref()).expect("restored");
        assert!(!file.exists());
    }
}

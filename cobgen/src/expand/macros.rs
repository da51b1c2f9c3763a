//! Coopr's macros in the configuration of a cluster: `%host.service.zookeeper[0]%`.
//!
//! | macro | gives |
//! | --- | --- |
//! | `host.service.X`, `ip.service.X`, `ip.TYPE.service.X` | names or addresses of the nodes with X, with commas; with `[n]` only the nth, from 0 |
//! | `num.service.X` | the number of these nodes |
//! | `instance.self.service.X` | the position of this node in that list, from 1 |
//! | `host.self`, `ip.self`, also with `.service.X` | this node's |
//! | `cluster.owner` | the owner of the cluster |
//! | `join(M, ', ')`, `join(map(M, 'tcp://$:80'), ',')` | the list with another separator, each in the place of `$` |
//!
//! A text between two percent signs that starts with no word of this table is no macro and stays unchanged. A macro
//! about a service that the cluster lacks stays unchanged too, as with Coopr.

use super::Report;
use crate::diagnostic::Diagnostic;
use crate::model::{Key, Map, Node, Value};

/// A node from the view of macros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// `None`: the model has no address for it.
    pub(super) ip: Option<String>,
}

/// The surroundings that macros refer to.
pub(super) trait Around {
    /// The nodes with a service, in order; `None`: the cluster lacks the service.
    fn with(&self, service: &str) -> Option<Vec<Member>>;
    /// The node that the configuration belongs to.
    fn me(&self) -> Member;
    /// The owner of the cluster.
    fn owner(&self) -> Option<String>;
}

/// The words that a macro starts with.
const WORDS: [&str; 7] = ["host.", "ip.", "num.", "instance.", "cluster.owner", "join(", "map("];

/// Whether a text may contain macros.
pub(super) fn is_macro(text: &str) -> bool {
    pieces(text).iter().any(|piece| matches!(piece, Piece::Macro(_)))
}

/// Replaces the macros in all texts of a value; a text with a fault is reported and stays unchanged.
pub(super) fn in_node(node: &Node, around: &dyn Around, report: &mut Report<'_>) -> Node {
    let value = match &node.value {
        Value::Text(text) => match replaced(text, around) {
            Ok(replaced) => {
                if let Some((inner, number)) = numbered_outside(text) {
                    let what = format!("`%{inner}%[{number}]` is the whole of `%{inner}%` with `[{number}]` after it");
                    let help = format!("to select an entry, put the number inside: `%{inner}[{number}]%`");
                    report.push(node.mark, Diagnostic::warning("macro", what).help(help));
                }
                Value::Text(replaced)
            }
            Err(what) => {
                let fault = Diagnostic::error("macro", what);
                report.push(node.mark, fault.note(None, format!("for the node {}", around.me().name)));
                Value::Text(text.clone())
            }
        },
        Value::List(items) => Value::List(items.iter().map(|item| in_node(item, around, report)).collect()),
        Value::Map(map) => {
            let entries = map.entries.iter().map(|(key, value)| {
                let key = Key { mark: key.mark, text: key.text.clone() };
                (key, in_node(value, around, report))
            });
            Value::Map(Map { entries: entries.collect() })
        }
        Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => node.value.clone(),
    };
    Node { mark: node.mark, value }
}

/// The faults in the macros of a text that can be found without a cluster.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let macros = pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Macro(inner) => Some(inner),
        Piece::Text(_) => None,
    });
    macros.filter_map(|inner| parse(inner).err()).collect()
}

/// The first macro of hosts or addresses followed by an index that was surely meant to be inside.
fn numbered_outside(text: &str) -> Option<(&str, &str)> {
    let pieces = pieces(text);
    pieces.windows(2).find_map(|pair| match pair {
        [Piece::Macro(inner), Piece::Text(after)] => {
            let (number, _) = after.strip_prefix('[')?.split_once(']')?;
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            let of = parse(inner).ok()?;
            let takes_one = matches!(of.of, Of::Hosts { index: None, .. } | Of::Ips { index: None, .. });
            (digits && takes_one && of.format.is_none() && of.separator.is_none()).then_some((*inner, number))
        }
        _ => None,
    })
}

fn replaced(text: &str, around: &dyn Around) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Macro(inner) => match parse(inner)?.value(inner, around)? {
                Some(value) => out.push_str(&value),
                None => out.extend(["%", inner, "%"]),
            },
        }
    }
    Ok(out)
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    /// The text between the signs.
    Macro(&'a str),
}

/// Splits a text; two signs in a row do not start a macro.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut begun, mut at) = (0, 0);
    while let Some(sign) = next_sign(text, at) {
        at = sign + 1;
        let Some(end) = next_sign(text, at) else { break };
        let inner = &text[at..end];
        if WORDS.iter().any(|word| inner.trim_start().starts_with(word)) {
            pieces.push(Piece::Text(&text[begun..sign]));
            pieces.push(Piece::Macro(inner));
            (begun, at) = (end + 1, end + 1);
        }
    }
    pieces.push(Piece::Text(&text[begun..]));
    pieces.retain(|piece| *piece != Piece::Text(""));
    pieces
}

fn next_sign(text: &str, mut at: usize) -> Option<usize> {
    loop {
        let sign = at + text[at..].find('%')?;
        if !text[sign + 1..].starts_with('%') {
            return Some(sign);
        }
        at = sign + 2;
    }
}

/// A macro.
#[derive(Debug, PartialEq, Eq)]
struct Macro {
    of: Of,
    format: Option<String>,
    separator: Option<String>,
}

/// The value that a macro asks for.
#[derive(Debug, PartialEq, Eq)]
enum Of {
    Hosts {
        service: String,
        index: Option<usize>,
    },
    Ips {
        service: String,
        index: Option<usize>,
    },
    Number(String),
    Instance(String),
    /// This node's name or address; with a service only if the node has it.
    MyHost(Option<String>),
    MyIp(Option<String>),
    Owner,
}

impl Macro {
    /// The value; `None`: the macro stays unchanged.
    fn value(&self, text: &str, around: &dyn Around) -> Result<Option<String>, String> {
        let ip = |member: &Member| {
            let unknown =
                || format!("`%{text}%` needs the address of {}, but the model has no address for it", member.name);
            member.ip.clone().ok_or_else(unknown)
        };
        let mine = |service: &Option<String>| {
            let me = around.me();
            let has = service.as_ref().is_none_or(|s| around.with(s).is_some_and(|all| all.contains(&me)));
            has.then_some(me)
        };
        let parts = match &self.of {
            Of::Hosts { service, index } => match around.with(service) {
                Some(nodes) => picked(&nodes, *index, text)?.iter().map(|m| m.name.clone()).collect(),
                None => return Ok(None),
            },
            Of::Ips { service, index } => match around.with(service) {
                Some(nodes) => picked(&nodes, *index, text)?.iter().map(ip).collect::<Result<_, _>>()?,
                None => return Ok(None),
            },
            Of::Number(service) => vec![around.with(service).map_or(0, |nodes| nodes.len()).to_string()],
            Of::Instance(service) => {
                let me = around.me();
                let at = around.with(service).and_then(|nodes| nodes.iter().position(|n| *n == me));
                match at {
                    Some(at) => vec![(at + 1).to_string()],
                    None => return Ok(None),
                }
            }
            Of::Owner => {
                vec![
                    around
                        .owner()
                        .ok_or_else(|| format!("`%{text}%`: the cluster has no `owner`; set it in `clusters`"))?,
                ]
            }
            Of::MyHost(service) => match mine(service) {
                Some(me) => vec![me.name],
                None => return Ok(None),
            },
            Of::MyIp(service) => match mine(service) {
                Some(me) => vec![ip(&me)?],
                None => return Ok(None),
            },
        };
        let formatted: Vec<String> = parts.into_iter().map(|part| self.formatted(&part)).collect();
        Ok(Some(formatted.join(self.separator.as_deref().unwrap_or(","))))
    }

    /// Replaces `$` by the value and `$$` by `$`.
    fn formatted(&self, part: &str) -> String {
        match &self.format {
            None => part.to_owned(),
            Some(format) => {
                let pieces: Vec<String> = format.split("$$").map(|piece| piece.replace('$', part)).collect();
                pieces.join("$")
            }
        }
    }
}

fn picked<'a>(nodes: &'a [Member], index: Option<usize>, text: &str) -> Result<&'a [Member], String> {
    let Some(index) = index else { return Ok(nodes) };
    let last = nodes.len().saturating_sub(1);
    let outside = || format!("`%{text}%` requests number {index}, but the numbers go from 0 to {last}");
    nodes.get(index..=index).ok_or_else(outside)
}

/// Parses the text between the signs.
fn parse(text: &str) -> Result<Macro, String> {
    let mut rest = Rest { text, at: 0 };
    let joined = rest.takes("join(");
    let mapped = rest.takes("map(");
    let of = rest.basic()?;
    let format = if mapped { Some(rest.literal_in_brackets()?) } else { None };
    let separator = if joined { Some(rest.literal_in_brackets()?) } else { None };
    rest.blanks();
    if rest.at < text.len() {
        return Err(rest.fault("the end of the macro"));
    }
    Ok(Macro { of, format, separator })
}

struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl Rest<'_> {
    fn blanks(&mut self) {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
    }

    fn takes(&mut self, word: &str) -> bool {
        self.blanks();
        let there = self.text[self.at..].starts_with(word);
        if there {
            self.at += word.len();
        }
        there
    }

    fn fault(&self, expected: &str) -> String {
        format!("`%{}%` is not a macro: {expected} is expected after `{}`", self.text, &self.text[..self.at])
    }

    /// `host.service.NAME[0]`
    fn basic(&mut self) -> Result<Of, String> {
        self.blanks();
        let rest = &self.text[self.at..];
        let allowed = |c: char| c.is_alphanumeric() || ['_', '-', '.'].contains(&c);
        let name = &rest[..rest.find(|c| !allowed(c)).unwrap_or(rest.len())];
        self.at += name.len();
        let index = self.index()?;
        let service = |service: &str| match service {
            "" => Err(format!("`%{}%` names no service", self.text)),
            name => Ok(name.to_owned()),
        };
        let parts: Vec<&str> = name.splitn(2, ".service.").collect();
        let of = match parts.as_slice() {
            ["host.self"] => Of::MyHost(None),
            ["ip.self"] => Of::MyIp(None),
            ["host.self", name] => Of::MyHost(Some(service(name)?)),
            ["ip.self", name] => Of::MyIp(Some(service(name)?)),
            ["host", name] => Of::Hosts { service: service(name)?, index },
            ["ip", name] => Of::Ips { service: service(name)?, index },
            ["num", name] => Of::Number(service(name)?),
            ["instance.self" | "num.self", name] => Of::Instance(service(name)?),
            [kind] if kind.strip_prefix("ip.").and_then(|k| k.strip_suffix(".self")).is_some_and(is_word) => {
                Of::MyIp(None)
            }
            [kind, name] if kind.strip_prefix("ip.").is_some_and(is_word) => Of::Ips { service: service(name)?, index },
            ["cluster.owner"] => Of::Owner,
            _ => {
                let known = "host.service.X, ip.service.X, num.service.X, instance.self.service.X, host.self, ip.self and cluster.owner";
                return Err(format!("`%{}%` is not a macro; known macros are {known}", self.text));
            }
        };
        Ok(of)
    }

    /// `[0]`
    fn index(&mut self) -> Result<Option<usize>, String> {
        if !self.takes("[") {
            return Ok(None);
        }
        let digits = self.text[self.at..].chars().take_while(char::is_ascii_digit).count();
        let number = self.text[self.at..self.at + digits].parse().map_err(|_| self.fault("a number"))?;
        self.at += digits;
        if self.takes("]") { Ok(Some(number)) } else { Err(self.fault("`]`")) }
    }

    /// `, 'text')`
    fn literal_in_brackets(&mut self) -> Result<String, String> {
        if !self.takes(",") {
            return Err(self.fault("`,`"));
        }
        self.blanks();
        let rest = &self.text[self.at..];
        let quote =
            rest.chars().next().filter(|c| ['\'', '"'].contains(c)).ok_or_else(|| self.fault("a text in quotes"))?;
        let end = rest[1..].find(quote).ok_or_else(|| self.fault("the end of the quotes"))?;
        let literal = rest[1..=end].to_owned();
        self.at += end + 2;
        if self.takes(")") { Ok(literal) } else { Err(self.fault("`)`")) }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three nodes with zookeeper, this node the second; a single node with the namenode; no database.
    struct Hadoop;

    impl Around for Hadoop {
        fn with(&self, service: &str) -> Option<Vec<Member>> {
            let members = |numbers: &[u32]| Some(numbers.iter().map(|n| member(*n)).collect());
            match service {
                "zookeeper-server" => members(&[2, 3, 4]),
                "namenode" => members(&[1]),
                "lost" => Some(vec![Member { name: "h9".to_owned(), ip: None }]),
                _ => None,
            }
        }
        fn me(&self) -> Member {
            member(3)
        }
        fn owner(&self) -> Option<String> {
            None
        }
    }

    fn member(n: u32) -> Member {
        Member { name: format!("h{n}.local"), ip: Some(format!("10.0.0.{n}")) }
    }

    #[test]
    fn macros_expand_as_in_coopr() {
        for (text, right) in [
            ("hdfs://%host.service.namenode%", "hdfs://h1.local"),
            ("%ip.service.zookeeper-server%", "10.0.0.2,10.0.0.3,10.0.0.4"),
            ("%ip.bind_v4.service.namenode%:%ip.access_v4.service.namenode%", "10.0.0.1:10.0.0.1"),
            ("%host.service.zookeeper-server[2]%:2888:3888", "h4.local:2888:3888"),
            ("%ip.bind_v4.service.zookeeper-server[0]%", "10.0.0.2"),
            ("%num.service.zookeeper-server%", "3"),
            ("%num.service.mysql%", "0"),
            ("id %instance.self.service.zookeeper-server%", "id 2"),
            ("%num.self.service.zookeeper-server%", "2"),
            ("%host.self% %ip.self% %ip.bind_v4.self%", "h3.local 10.0.0.3 10.0.0.3"),
            ("%host.self.service.zookeeper-server%", "h3.local"),
            (
                "%join(map(host.service.zookeeper-server,'$:2181'),',')%/ns",
                "h2.local:2181,h3.local:2181,h4.local:2181/ns",
            ),
            ("%join(ip.service.zookeeper-server, ' ')%", "10.0.0.2 10.0.0.3 10.0.0.4"),
            ("%map(host.service.namenode,\"$$1 $\")%", "$1 h1.local"),
            // Macros of missing services and texts that are no macros stay unchanged.
            ("jdbc:mysql://%host.service.mysql%:3306", "jdbc:mysql://%host.service.mysql%:3306"),
            ("%host.self.service.namenode%", "%host.self.service.namenode%"),
            ("%instance.self.service.namenode%", "%instance.self.service.namenode%"),
            ("from 10% to 20%, %date%, %%host.self%%", "from 10% to 20%, %date%, %%host.self%%"),
            ("10% of %host.self%", "10% of h3.local"),
            ("", ""),
            ("%", "%"),
        ] {
            assert_eq!(replaced(text, &Hadoop).as_deref(), Ok(right), "{text}");
        }
        assert!(is_macro("10% of %host.self%") && is_macro("%host.service.mysql%"));
        assert!(!is_macro("from 10% to 20%, %date%, %%host.self%%"));
    }

    #[test]
    fn a_number_outside_is_found() {
        for text in ["%host.service.x%[0]", "a %host.service.x%[0]:1", "%host.self% %host.service.x%[0]"] {
            assert_eq!(numbered_outside(text), Some(("host.service.x", "0")), "{text}");
        }
        assert_eq!(numbered_outside("%ip.a.service.x%[12]"), Some(("ip.a.service.x", "12")));
        for text in ["%host.service.x[0]%", "%host.service.x[0]%[1]", "%host.service.x% [0]", "%host.service.x%[a]"] {
            assert_eq!(numbered_outside(text), None, "{text}");
        }
        for text in ["%num.service.x%[0]", "%host.self%[0]", "%host.service.x%[", "%date%[0]", "[0]"] {
            assert_eq!(numbered_outside(text), None, "{text}");
        }
    }

    #[test]
    fn wrong_macros_are_told() {
        for (text, wrong) in [
            ("%host.service.zookeeper-server[3]%", "requests number 3, but the numbers go from 0 to 2"),
            ("%ip.service.lost%", "needs the address of h9, but the model has no address for it"),
            ("%host.service.%", "names no service"),
            ("%host.serice.namenode%", "is not a macro; known macros are"),
            ("%ip.a.b.service.namenode%", "is not a macro; known macros are"),
            ("%cluster.owner%", "the cluster has no `owner`"),
            ("%join(host.service.namenode)%", "`,` is expected after `join(host.service.namenode`"),
            ("%join(host.service.namenode,',%", "the end of the quotes is expected"),
            ("%join(host.service.namenode,x)%", "a text in quotes is expected"),
            ("%host.service.namenode[x]%", "a number is expected"),
            ("%host.service.namenode[0%", "`]` is expected"),
            ("%host.service.namenode more%", "the end of the macro is expected"),
        ] {
            let told = replaced(text, &Hadoop).expect_err(text);
            assert!(told.contains(wrong), "{text}: {told}");
        }
        assert_eq!(faults("%host.service.x% %cluster.owner% %cluster.owner.name%").len(), 1);
    }
}

//! The kind `nfs-export`: a folder that NFS clients may mount, in a separate file below `/etc/exports.d`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source;
use super::{Builtin, Content, Faults, Footprint};

/// The longest name of a file, without its end.
const MAX_NAME: usize = 200;

/// The content of `nfs-export`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NfsExport {
    /// The exported folder: an absolute path.
    pub path: String,
    /// The clients, each with its options: `{10.0.0.0/8: [rw]}`.
    pub clients: BTreeMap<String, Vec<String>>,
    /// Options of all clients. The options of a client have precedence.
    #[serde(default)]
    pub options: Vec<String>,
    /// The name of its file in `/etc/exports.d`, without `.exports`; default: made of the change object's id.
    pub name: Option<String>,
    /// A folder that is to become a host, instead of the host itself: the file alone.
    pub root: Option<PathBuf>,
}

/// The options of a client that differ from the default of NFS, each with its value.
pub type NfsOptions = BTreeMap<String, String>;

/// Options without a value, each with the opposite option, which is the default.
const SWITCHES: [(&str, &str); 15] = [
    ("rw", "ro"),
    ("async", "sync"),
    ("subtree_check", "no_subtree_check"),
    ("no_root_squash", "root_squash"),
    ("all_squash", "no_all_squash"),
    ("insecure", "secure"),
    ("crossmnt", "nocrossmnt"),
    ("nohide", "hide"),
    ("no_wdelay", "wdelay"),
    ("insecure_locks", "secure_locks"),
    ("no_acl", "acl"),
    ("pnfs", "no_pnfs"),
    ("nordirplus", ""),
    ("security_label", ""),
    ("mountpoint", ""),
];
/// Switches that a file always has: `exportfs` warns if they are missing, or a reader has to know the default.
const ALWAYS: [&str; 3] = ["rw", "async", "subtree_check"];
/// Options with a value, each with the default.
const VALUES: [(&str, &str); 5] =
    [("anonuid", "65534"), ("anongid", "65534"), ("sec", "sys"), ("fsid", ""), ("mountpoint", "")];

impl Content for NfsExport {
    const KIND: Builtin = Builtin::setting("nfs-export");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("path", &self.path, faults);
        if self.clients.is_empty() {
            faults.add("clients", "`clients` is empty", "write at least a client: `{10.0.0.0/8: [rw]}`");
        }
        for (client, own) in &self.clients {
            if let Err((what, help)) = check_client(client) {
                faults.add(("clients", client), what, help);
            }
            if let Err((what, help)) = own_options(own) {
                faults.add(("clients", client), what, help);
            }
        }
        if let Err((what, help)) = own_options(&self.options) {
            faults.add("options", what, help);
        }
        if let Some(name) = self.name.as_ref().filter(|name| !is_file_name(name)) {
            let what = format!("{name:?} is not the name of a file with exports");
            faults.add("name", what, "letters, digits, - and _, without `.exports`");
        }
    }

    fn footprint(&self, cob: &CobId) -> Footprint {
        Footprint::of("exported path", &self.path).with_own([self.file(cob.as_str())])
    }
}

impl NfsExport {
    /// The folder of tables that `exportfs` reads besides `/etc/exports`.
    pub const FOLDER: &'static str = "/etc/exports.d";

    /// The file of a change object.
    #[must_use]
    pub fn file(&self, cob: &str) -> String {
        let plain = |c: char| if is_file_name(c.encode_utf8(&mut [0; 4])) { c } else { '-' };
        let own = || format!("cob-{}", cob.chars().map(plain).collect::<String>());
        format!("{}/{}.exports", Self::FOLDER, self.name.clone().unwrap_or_else(own))
    }

    /// The options of a client, with the options of all clients that it does not override.
    ///
    /// # Errors
    /// The fault of an option, as text.
    pub fn options_of(&self, client: &str) -> Result<NfsOptions, String> {
        let own = self.clients.get(client).map_or(&[][..], Vec::as_slice);
        let read = |words: &[String]| own_options(words).map_err(|(what, help)| format!("content: {what}; {help}"));
        let mut all = read(&self.options)?;
        all.extend(read(own)?);
        all.retain(|name, value| !is_default(name, value));
        Ok(all)
    }

    /// Reads the options of a table. An option that a content can't have stays as it is written.
    #[must_use]
    pub fn read_options(text: &str) -> NfsOptions {
        let mut all = NfsOptions::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = named(word).unwrap_or_else(|_| (word.to_owned(), String::new()));
            all.insert(name, value);
        }
        all.retain(|name, value| !is_default(name, value));
        all
    }

    /// The options in the notation of a table.
    #[must_use]
    pub fn write_options(options: &NfsOptions) -> String {
        let switch = |(set, unset): &(&str, &str)| match options.get(*set) {
            Some(value) if value.is_empty() => Some((*set).to_owned()),
            Some(_) => None,
            None => ALWAYS.contains(set).then(|| (*unset).to_owned()),
        };
        let valued = options.iter().filter(|(_, value)| !value.is_empty());
        let words = SWITCHES.iter().filter_map(switch).chain(valued.map(|(name, value)| format!("{name}={value}")));
        words.collect::<Vec<_>>().join(",")
    }
}

/// The value of a switch that a list sets to its default.
const UNSET: &str = "unset";

fn is_default(name: &str, value: &str) -> bool {
    value == UNSET || (!value.is_empty() && VALUES.contains(&(name, value)))
}

/// The options of a list. A switch with its default has the value [`UNSET`], so that it overrides.
fn own_options(words: &[String]) -> Result<NfsOptions, (String, String)> {
    let mut all = NfsOptions::new();
    for word in words {
        let (name, value) = named(word)?;
        if let Some(other) = all.insert(name, value.clone()) {
            let what = format!("the option {word:?} is there twice, or contradicts another option");
            let help = if other == value { "remove the repetition" } else { "remove either option" };
            return Err((what, help.to_owned()));
        }
    }
    Ok(all)
}

/// The name and the value of an option.
fn named(word: &str) -> Result<(String, String), (String, String)> {
    for (set, unset) in SWITCHES {
        if word == set {
            return Ok((set.to_owned(), String::new()));
        }
        if word == unset && !word.is_empty() {
            return Ok((set.to_owned(), UNSET.to_owned()));
        }
    }
    let fault = |help: &str| Err((format!("{word:?} is not an option of an export"), help.to_owned()));
    let Some((name, value)) = word.split_once('=') else {
        return fault(
            "write an option of exports(5) in its full name, for example `rw`, `no_root_squash`, `sec=krb5p`",
        );
    };
    let is_number = value.parse::<u32>().is_ok() && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_uuid = value.len() >= 32 && value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    match name {
        "anonuid" | "anongid" if is_number => Ok((name.to_owned(), value.to_owned())),
        "anonuid" | "anongid" => fault("the value is the number of an account or group"),
        "fsid" if value == "root" => Ok((name.to_owned(), "0".to_owned())),
        "fsid" if is_number || is_uuid => Ok((name.to_owned(), value.to_owned())),
        "fsid" => fault("the value is `root`, a number or a UUID"),
        "sec" if value.split(':').all(|each| ["sys", "krb5", "krb5i", "krb5p", "none"].contains(&each)) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        "sec" => fault("the value is `sys`, `krb5`, `krb5i`, `krb5p`, `none`, or several with colons between"),
        "mountpoint" if value.starts_with('/') && !value.contains([',', '"', '#', '(', ')', '\\', ' ', '\t', '\n']) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        "mountpoint" => fault("the value is an absolute path without blanks and quotes"),
        _ => fault("the options with a value are `anonuid`, `anongid`, `fsid`, `mountpoint` and `sec`"),
    }
}

fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain)
}

/// Checks a client: an address, a network, a name, a name with `*` or `?`, or a netgroup.
fn check_client(client: &str) -> Result<(), (String, String)> {
    let fault = |help: &str| Err((format!("{client:?} is not a client of NFS"), help.to_owned()));
    if let Some((address, mask)) = client.split_once('/') {
        let is_mask = |longest: u8| mask.parse::<u8>().is_ok_and(|bits| bits <= longest);
        return match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) if is_mask(32) || mask.parse::<std::net::Ipv4Addr>().is_ok() => Ok(()),
            Ok(IpAddr::V6(_)) if is_mask(128) => Ok(()),
            Ok(IpAddr::V4(_) | IpAddr::V6(_)) | Err(_) => fault("write a network as in 10.0.0.0/8 or fd00::/64"),
        };
    }
    if client.contains(':') {
        return match client.parse::<IpAddr>() {
            Ok(_) => Ok(()),
            Err(_) => fault("write an address as in 10.0.0.1 or fd00::1"),
        };
    }
    let name = client.strip_prefix('@').unwrap_or(client);
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (!client.starts_with('@') && "*?[]".contains(c));
    if name.is_empty() || name.len() > 255 || name.starts_with('-') || !name.chars().all(is_plain) {
        return fault("write an address, a network, a name of a host, `*.example.org`, `@netgroup` or `*`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_client_override_options_of_all() {
        let content = r#"{"path": "/srv/x", "options": ["rw", "sec=krb5p"],
            "clients": {"*": ["ro", "sec=sys"], "a": [], "b": ["no_root_squash", "fsid=root", "anonuid=65534"]}}"#;
        let export: NfsExport = crate::read(content).expect("good");
        let shown = |client: &str| NfsExport::write_options(&export.options_of(client).expect("good"));
        assert_eq!(shown("*"), "ro,sync,no_subtree_check");
        assert_eq!(shown("a"), "rw,sync,no_subtree_check,sec=krb5p");
        assert_eq!(shown("b"), "rw,sync,no_subtree_check,no_root_squash,fsid=0,sec=krb5p");
        for client in ["*", "a", "b"] {
            assert_eq!(NfsExport::read_options(&shown(client)), export.options_of(client).expect("good"), "{client}");
        }
        let shown = "sync,wdelay,hide,no_subtree_check,mountpoint=/srv/a,sec=sys,ro,root_squash,no_all_squash";
        assert_eq!(
            NfsExport::write_options(&NfsExport::read_options(shown)),
            "ro,sync,no_subtree_check,mountpoint=/srv/a"
        );
        assert_eq!(NfsExport::read_options("rw,refer=/a@b"), NfsExport::read_options("refer=/a@b,rw"));
    }
}

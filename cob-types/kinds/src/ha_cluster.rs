//! The kind `ha-cluster`: the membership of a host in a cluster of Corosync and Pacemaker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cob_types::{CobId, secret};
use schemars::JsonSchema;
use serde::Deserialize;

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Place, TIMEOUT_MS};

/// The lengths of a key in bytes that Corosync takes.
const KEY_LENGTHS: std::ops::RangeInclusive<usize> = 128..=4096;
/// The most links between nodes.
const MAX_LINKS: usize = 8;
/// The most nodes.
const MAX_NODES: usize = 32;
/// The characters of a name.
const WORD: &str = "letters, digits, `.`, `_` and `-`, no `-` or `.` at the beginning";
/// The parameters of `totem`. `true`: a running Corosync can't change it.
const TOTEM: [(&str, bool); 16] = [
    ("token", false),
    ("token_coefficient", false),
    ("token_retransmit", false),
    ("token_retransmits_before_loss_const", false),
    ("hold", false),
    ("join", false),
    ("send_join", false),
    ("consensus", false),
    ("merge", false),
    ("downcheck", false),
    ("fail_recv_const", false),
    ("seqno_unchanged_const", false),
    ("window_size", false),
    ("max_messages", false),
    ("miss_count_const", false),
    ("netmtu", true),
];

/// The content of `ha-cluster`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaCluster {
    /// The name of the cluster.
    pub name: String,
    /// All nodes, with their names as keys: a node has the name of its host.
    pub nodes: BTreeMap<String, HaNode>,
    /// How nodes send: `knet` (default), `udpu` or `udp`.
    #[serde(default)]
    pub transport: HaTransport,
    /// The common key of the nodes, a secret of 128 to 4096 characters: `"{{ secret('corosync') }}"`. Without it the
    /// nodes trust the network.
    pub authkey: Option<String>,
    /// The encryption with the key; default: `{cipher: aes256, hash: sha256}`.
    pub crypto: Option<HaCrypto>,
    /// The rules about votes.
    #[serde(default)]
    pub quorum: HaQuorum,
    /// Times and limits of the protocol, as in `man corosync.conf`: `{token: 5000}`.
    #[serde(default)]
    pub totem: BTreeMap<String, u32>,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaNode {
    /// Its number, from 1, which never changes.
    pub id: u32,
    /// Its addresses, one for each link.
    pub addresses: Vec<String>,
}

/// A way to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HaTransport {
    /// Up to eight links, with encryption.
    #[default]
    Knet,
    /// UDP to each node.
    Udpu,
    /// Multicast.
    Udp,
}

/// The encryption between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaCrypto {
    /// The cipher.
    pub cipher: HaCipher,
    /// The hash.
    pub hash: HaHash,
}

/// A cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HaCipher {
    /// Messages are signed and not encrypted.
    None,
    /// AES with 128 bits.
    Aes128,
    /// AES with 192 bits.
    Aes192,
    /// AES with 256 bits.
    Aes256,
}

/// A hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HaHash {
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// The rules about votes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaQuorum {
    /// Of two nodes, each may go on alone; needs fence devices.
    #[serde(default)]
    pub two_node: bool,
    /// After a boot, the nodes have no quorum until all have been there at the same time once; default: as `two_node`.
    /// `false`: also a new cluster does not wait for all.
    pub wait_for_all: Option<bool>,
}

impl HaTransport {
    /// Its name for Corosync.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Knet => "knet",
            Self::Udpu => "udpu",
            Self::Udp => "udp",
        }
    }
}

impl HaCrypto {
    const DEFAULT: Self = Self { cipher: HaCipher::Aes256, hash: HaHash::Sha256 };

    /// The names of cipher and hash for Corosync.
    #[must_use]
    pub fn words(self) -> (&'static str, &'static str) {
        let cipher = match self.cipher {
            HaCipher::None => "none",
            HaCipher::Aes128 => "aes128",
            HaCipher::Aes192 => "aes192",
            HaCipher::Aes256 => "aes256",
        };
        let hash = match self.hash {
            HaHash::Sha1 => "sha1",
            HaHash::Sha256 => "sha256",
            HaHash::Sha384 => "sha384",
            HaHash::Sha512 => "sha512",
        };
        (cipher, hash)
    }
}

impl HaCluster {
    /// The configuration of Corosync.
    pub const CONFIGURATION: &'static str = "/etc/corosync/corosync.conf";
    /// The common key.
    pub const KEY: &'static str = "/etc/corosync/authkey";

    /// The names of cipher and hash.
    #[must_use]
    pub fn crypto(&self) -> (&'static str, &'static str) {
        match &self.authkey {
            Some(_) => self.crypto.unwrap_or(HaCrypto::DEFAULT).words(),
            None => ("none", "none"),
        }
    }

    /// The names of the parameters of `totem`, each with whether a running Corosync can't change it.
    pub fn parameters() -> impl Iterator<Item = (&'static str, bool)> {
        TOTEM.into_iter()
    }

    /// Whether each of the two nodes may go on alone. An intermediate list of nodes may be shorter or longer.
    #[must_use]
    pub fn has_rule_for_two(&self) -> bool {
        self.quorum.two_node && self.nodes.len() == 2
    }

    /// Whether there is no quorum after a boot before all nodes have been there.
    #[must_use]
    pub fn waits_for_all(&self) -> bool {
        self.quorum.wait_for_all.unwrap_or_else(|| self.has_rule_for_two())
    }

    /// The votes that a cluster of so many nodes needs.
    #[must_use]
    pub fn needed(&self, nodes: usize) -> usize {
        if self.quorum.two_node && nodes == 2 { 1 } else { nodes / 2 + 1 }
    }

    /// The text of the configuration.
    #[must_use]
    pub fn text(&self) -> String {
        let (cipher, hash) = self.crypto();
        let mut text = format!(
            "# Written by cobd.\ntotem {{\n  version: 2\n  cluster_name: {}\n  transport: {}\n  crypto_cipher: \
             {cipher}\n  crypto_hash: {hash}\n",
            self.name,
            self.transport.word()
        );
        for (name, value) in &self.totem {
            let _ = writeln!(text, "  {name}: {value}");
        }
        text.push_str("}\nnodelist {\n");
        for (name, node) in &self.nodes {
            text.push_str("  node {\n");
            for (link, address) in node.addresses.iter().enumerate() {
                let _ = writeln!(text, "    ring{link}_addr: {address}");
            }
            let _ = write!(text, "    name: {name}\n    nodeid: {}\n  }}\n", node.id);
        }
        // A running Corosync keeps the value of a key that leaves the file.
        let two_node = u8::from(self.has_rule_for_two());
        let wait = u8::from(self.waits_for_all());
        let _ = writeln!(
            text,
            "}}\nquorum {{\n  provider: corosync_votequorum\n  two_node: {two_node}\n  wait_for_all: {wait}"
        );
        text.push_str("}\nlogging {\n  to_syslog: yes\n}\n");
        text
    }

    fn check_nodes(&self, faults: &mut Faults) {
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            faults.add("nodes", format!("there are {} nodes", self.nodes.len()), format!("1 to {MAX_NODES} nodes"));
        }
        let links = self.nodes.values().next().map_or(0, |node| node.addresses.len());
        let most = if self.transport == HaTransport::Knet { MAX_LINKS } else { 1 };
        let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for (name, node) in &self.nodes {
            let at = |key: &str| Place::Path(["nodes", name, key].map(str::to_owned).to_vec());
            if !is_word(name) {
                faults.add(("nodes", name), format!("{name:?} is not a name of a node"), WORD);
            }
            if node.id == 0 || !ids.insert(node.id) {
                let what = format!("{} is 0, or the number of another node", node.id);
                faults.add(at("id"), what, "write another number");
            }
            let number = node.addresses.len();
            if number != links || !(1..=most).contains(&number) {
                let what = format!("{name} has {number} addresses, and there is one for each link");
                faults.add(at("addresses"), what, format!("write as many for each node, 1 to {most}"));
            }
            for address in &node.addresses {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
                if address.is_empty() || address.starts_with('-') || !address.chars().all(is_plain) {
                    faults.add(at("addresses"), format!("{address:?} is not an address"), "write for example 10.0.0.1");
                } else if !addresses.insert(address) {
                    faults.add(at("addresses"), format!("{address} is there twice"), "each address is of one node");
                }
            }
        }
        if self.quorum.two_node && self.nodes.len() != 2 {
            let at = Place::Path(["quorum", "two_node"].map(str::to_owned).to_vec());
            faults.add(at, format!("there are {} nodes", self.nodes.len()), "it is a rule for two nodes");
        }
    }
}

fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty() && text.len() <= 255 && !text.starts_with(['-', '.']) && text.chars().all(is_plain)
}

impl Content for HaCluster {
    const KIND: Builtin =
        Builtin { interval_ms: Some(30_000), timeout_ms: 2 * TIMEOUT_MS, ..Builtin::setting("ha-cluster") };

    fn check(&self, faults: &mut Faults) {
        if !is_word(&self.name) {
            faults.add("name", format!("{:?} is not a name of a cluster", self.name), WORD);
        }
        self.check_nodes(faults);
        for name in self.totem.keys().filter(|name| TOTEM.iter().all(|(known, _)| known != name)) {
            let names = TOTEM.map(|(name, _)| name).join(", ");
            faults.add(
                ("totem", name),
                format!("{name:?} is not a parameter of this kind"),
                format!("write one of {names}"),
            );
        }
        if let Some(key) = &self.authkey {
            if self.transport != HaTransport::Knet {
                faults.add(
                    "authkey",
                    format!("{} has no encryption", self.transport.word()),
                    "write `transport: knet`",
                );
            }
            if secret::marks(key).next().is_none() {
                let is_plain = key.chars().all(|c| c.is_ascii_graphic());
                if !KEY_LENGTHS.contains(&key.len()) || !is_plain {
                    let help = "128 to 4096 printable ASCII characters: `openssl rand -hex 64`";
                    faults.add("authkey", "it is not a key", help);
                } else {
                    let what = "all readers of the model see the key";
                    faults.warn("open-secret", "authkey", what, "write a secret: `\"{{ secret('NAME') }}\"`");
                }
            }
        } else if self.crypto.is_some() {
            faults.add("crypto", "without a key nothing is encrypted", "write `authkey`, or remove `crypto`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let files = [Self::CONFIGURATION, Self::KEY].map(str::to_owned);
        let mut footprint = Footprint::of("membership in", "a cluster of Corosync").with_own(files);
        let units = ["corosync.service", "pacemaker.service"];
        footprint.parts.extend(units.map(|unit| Subject { sort: Subject::UNIT, name: unit.to_owned() }));
        footprint
    }
}

//! Access rights under the active generation.
//!
//! A caller proves its identity by its Unix socket (which tells the user), by the key of its TLS connection, or by a
//! bearer token. The caller's own claims prove no identity.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cob_types::canonical::blob_hash;
use cob_types::generation::Security;
use cob_types::trust::{Operator, PublicKey, Role};
use cob_types::{BlobHash, HostName, Manifest};

use super::api::Caller;
use super::refusal::{Refusal, RefusalKind};
use cob_types::link::parse_address;

/// The longest valid bearer token.
const MAX_TOKEN: usize = 512;
/// The longest kept claim of a caller about its identity.
const MAX_CLAIM: usize = 64;

/// The callers with access besides root on this host, who always has access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Access {
    /// Only root: no generation names operators.
    #[default]
    Nobody,
    /// Every caller on this machine: `security: loopback-only`.
    LoopbackOnly,
    /// The operators of the active generation, over TLS.
    Operators(Operators),
}

/// The operators of a generation, and further known keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operators {
    named: BTreeMap<String, Operator>,
    /// Keys of hosts: they are known but give no role.
    hosts: BTreeMap<PublicKey, HostName>,
    revoked: BTreeSet<PublicKey>,
    /// The addresses of this host: valid values of a `Host` header.
    addresses: BTreeSet<IpAddr>,
}

/// An identified caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The name of an operator, `root`, `uid 1000`, or an address.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The proof of identity.
    pub proof: Proof,
}

/// The proof of a caller's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The Unix socket tells its user.
    UnixSocket,
    /// The key of its TLS connection.
    Key,
    /// A bearer token.
    Token,
    /// No proof is needed: `security: loopback-only`.
    Nothing,
}

/// The data of a bearer token that are necessary to recognize it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    hash: BlobHash,
    is_too_long: bool,
}

impl Token {
    /// From the text after `Bearer`.
    pub(super) fn new(bearer: &[u8]) -> Self {
        Self { hash: blob_hash(bearer), is_too_long: bearer.len() > MAX_TOKEN }
    }
}

/// Why a caller is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) refusal: Refusal,
    /// The caller sent an unknown token: it may have been a guess.
    pub(super) guess: bool,
}

impl Access {
    /// The rights under the active generation. A pending generation can revoke keys, but does not add any yet.
    ///
    /// Without a generation, a host without trusted publishers can only take part in a cluster under `security:
    /// loopback-only`, so it has the same open access. A host with trusted publishers is closed.
    #[must_use]
    pub fn of(me: &HostName, trusts: bool, active: Option<&Manifest>, coming: Option<&Manifest>) -> Self {
        let all = || [active, coming].into_iter().flatten();
        match active.or(coming).map(|m| m.security) {
            None if trusts => Self::Nobody,
            None | Some(Security::LoopbackOnly) => Self::LoopbackOnly,
            Some(Security::Identities) => {
                let Some(active) = active else { return Self::Nobody };
                let keys =
                    all().flat_map(|m| &m.hosts).flat_map(|(name, host)| host.keys.iter().map(move |k| (k, name)));
                let address = |m: &Manifest| parse_address(m.hosts.get(me)?.address.as_ref()?).ok();
                Self::Operators(Operators {
                    named: active.operators.clone(),
                    hosts: keys.map(|(key, name)| (*key, name.clone())).collect(),
                    revoked: all().flat_map(|m| &m.revoked).copied().collect(),
                    addresses: all().filter_map(address).map(|a| a.ip().to_canonical()).collect(),
                })
            }
        }
    }

    /// Identifies a caller, with its token if it sent one.
    pub(super) fn identify(&self, caller: &Caller, token: Option<&Token>) -> Result<Who, Denied> {
        match (caller, self) {
            (Caller::Unix { uid }, _) => local(*uid),
            (Caller::Tcp { peer }, Self::LoopbackOnly) => {
                // The port differs for each request and identifies no caller.
                Ok(Who { name: peer.ip().to_string(), role: Role::Administer, proof: Proof::Nothing })
            }
            (Caller::Tcp { .. }, Self::Operators(_)) => Err(forbidden(
                "this host takes no request without TLS: its generation says `security: identities`",
                "use TLS with your key, as `cobctl --key` does, or the daemon's unix socket as root",
            )),
            (Caller::Tls { key, .. }, Self::Operators(operators)) => operators.identify(key.as_ref(), token),
            (Caller::Tls { .. }, Self::LoopbackOnly) => Err(forbidden(
                "this host knows no keys: its generation says `security: loopback-only`",
                "ask from the host itself, without TLS",
            )),
            (Caller::Tcp { .. } | Caller::Tls { .. }, Self::Nobody) => Err(forbidden(
                "this host has no generation yet that names its operators: no generation is active, and no generation \
                 in its depot has enough signatures of trusted publishers",
                "publish a signed generation (`cobgen generate MODEL --depot DIR --sign-with FILE`): as soon as this host \
                 has fetched it, its operators may give the first order. Root on this host may order at any time",
            )),
        }
    }

    /// Whether this is the key of an operator.
    pub(super) fn is_operator(&self, key: &PublicKey) -> bool {
        match self {
            Self::Operators(operators) => {
                !operators.revoked.contains(key) && operators.named.values().any(|who| who.keys.contains(key))
            }
            Self::Nobody | Self::LoopbackOnly => false,
        }
    }

    /// Whether this is an address of this host, for the `Host` header of a request over TLS.
    pub(super) fn is_here(&self, ip: IpAddr) -> bool {
        match self {
            Self::Operators(operators) => operators.addresses.contains(&ip.to_canonical()),
            Self::Nobody | Self::LoopbackOnly => false,
        }
    }
}

impl Operators {
    fn identify(&self, key: Option<&PublicKey>, token: Option<&Token>) -> Result<Who, Denied> {
        if let Some(key) = key.filter(|k| self.revoked.contains(k)) {
            return Err(forbidden(
                &format!("the key {key} is revoked"),
                "make a new key with `cobctl trust key --create`, and have an administrator put it into the model",
            ));
        }
        if let Some(who) = key.and_then(|key| self.by_key(key)) {
            return Ok(who);
        }
        if let Some(token) = token {
            return self.by_token(token).ok_or_else(|| Denied {
                refusal: Refusal::new(
                    RefusalKind::Unauthorized,
                    "no operator has this token",
                    "its SHA-256 must be the `token_sha256` of an operator in the active generation",
                ),
                guess: true,
            });
        }
        let hint = "have an administrator name it under `operators` in the model, and switch to that generation";
        match key {
            Some(key) => match self.hosts.get(key) {
                Some(host) => Err(forbidden(
                    &format!("the key {key} is that of host {host}: hosts neither ask nor order"),
                    "use an operator's key",
                )),
                None => Err(forbidden(&format!("the key {key} is no operator's here"), hint)),
            },
            None => Err(Denied {
                refusal: Refusal::new(
                    RefusalKind::Unauthorized,
                    "the request has neither a key nor a token, so its author is not known",
                    "show an operator's key (`cobctl --key FILE`) or token (`cobctl --token-file FILE`)",
                ),
                guess: false,
            }),
        }
    }

    fn by_key(&self, key: &PublicKey) -> Option<Who> {
        let theirs = |(_, o): &(&String, &Operator)| o.keys.contains(key);
        let (name, operator) = self.named.iter().filter(theirs).max_by_key(|(_, o)| o.role)?;
        Some(Who { name: name.clone(), role: operator.role, proof: Proof::Key })
    }

    /// Compares with every token, so that the time does not depend on the match.
    fn by_token(&self, given: &Token) -> Option<Who> {
        let mut found = None;
        for (name, operator) in &self.named {
            let Some(token) = &operator.token else { continue };
            if same(&token.0, &given.hash.0) && !given.is_too_long {
                found = Some(Who { name: name.clone(), role: operator.role, proof: Proof::Token });
            }
        }
        found
    }
}

/// Compares without a branch that depends on the data.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let different = a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y));
    std::hint::black_box(different) == 0
}

/// Root and the user of the daemon have all rights through the Unix socket.
fn local(uid: u32) -> Result<Who, Denied> {
    let me = rustix::process::geteuid().as_raw();
    if uid != 0 && uid != me {
        return Err(forbidden(
            &format!("user {uid} is neither root nor the daemon's own user"),
            "become root, or use an operator's key over TLS",
        ));
    }
    let name = if uid == 0 { "root".to_owned() } else { format!("uid {uid}") };
    Ok(Who { name, role: Role::Administer, proof: Proof::UnixSocket })
}

fn forbidden(error: &str, hint: &str) -> Denied {
    Denied { refusal: Refusal::new(RefusalKind::Forbidden, error, hint), guess: false }
}

impl Who {
    /// The author in the history: the proved identity and, beside it, the caller's own claim.
    pub(super) fn author(&self, claimed: Option<&str>) -> String {
        let known = match self.proof {
            Proof::UnixSocket => format!("{} (unix socket)", self.name),
            Proof::Key | Proof::Token => format!("{} ({})", self.name, self.role),
            Proof::Nothing => format!("{} (no key)", self.name),
        };
        let claimed: String = claimed.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_CLAIM).collect();
        if claimed.is_empty() || claimed == self.name { known } else { format!("{known}, for {claimed:?}") }
    }

    /// Refuses a request beyond the caller's role.
    pub(super) fn may(&self, needed: Role) -> Result<(), Refusal> {
        if self.role >= needed {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalKind::Forbidden,
            format!("{} may {}; this needs the role {needed}", self.name, self.role),
            "ask an operator with that role; roles are under `operators` in the model",
        ))
    }
}

impl Proof {
    /// A word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Proof::UnixSocket => "unix socket",
            Proof::Key => "key",
            Proof::Token => "token",
            Proof::Nothing => "no key",
        }
    }
}

#[cfg(test)]
mod tests {
    use cob_types::generation::ManifestHost;
    use cob_types::{BlobHash, GenerationNumber};

    use super::*;

    fn manifest(security: Security) -> Manifest {
        let host = ManifestHost {
            address: Some("tcp://10.0.0.1:7077".to_owned()),
            keys: vec![PublicKey([1; 32])],
            bundle: BlobHash([0; 32]),
            cobs: 0,
        };
        let mut manifest = Manifest::empty(GenerationNumber(7), GenerationNumber(6), security);
        manifest.hosts.insert(me(), host);
        let alice = Operator { role: Role::Operate, keys: vec![PublicKey([2; 32])], token: Some(blob_hash(b"sesame")) };
        manifest.operators.insert("alice".to_owned(), alice);
        manifest
    }

    fn me() -> HostName {
        HostName::new("n1").expect("a name")
    }

    #[test]
    fn a_host_without_a_generation_is_open_only_if_it_trusts_no_publisher() {
        assert_eq!(Access::of(&me(), true, None, None), Access::Nobody);
        assert_eq!(Access::of(&me(), false, None, None), Access::LoopbackOnly);
        let coming = manifest(Security::Identities);
        assert_eq!(Access::of(&me(), true, None, Some(&coming)), Access::Nobody);
        assert_eq!(Access::of(&me(), true, Some(&manifest(Security::LoopbackOnly)), None), Access::LoopbackOnly);
    }

    #[test]
    fn a_prepared_generation_revokes_keys_and_gives_none() {
        let active = manifest(Security::Identities);
        let mut coming = active.clone();
        coming.revoked.insert(PublicKey([2; 32]));
        let bob = Operator { role: Role::Administer, keys: vec![PublicKey([3; 32])], token: None };
        coming.operators.insert("bob".to_owned(), bob);
        let caller = |key| Caller::Tls { peer: ([10, 0, 0, 9], 1).into(), key: Some(PublicKey([key; 32])) };
        let alone = Access::of(&me(), true, Some(&active), None);
        assert_eq!(alone.identify(&caller(2), None).map(|w| w.author(None)), Ok("alice (operate)".to_owned()));
        let both = Access::of(&me(), true, Some(&active), Some(&coming));
        let why = |key| both.identify(&caller(key), None).expect_err("refused").refusal.error;
        assert!(why(2).contains("revoked"), "{}", why(2));
        assert!(why(3).contains("no operator's"), "{}", why(3));
        assert!(why(1).contains("host n1"), "{}", why(1));
        assert!(both.is_here(IpAddr::from([10, 0, 0, 1])) && !both.is_here(IpAddr::from([10, 0, 0, 2])));
    }

    #[test]
    fn a_token_does_not_make_a_revoked_key_valid() {
        let mut active = manifest(Security::Identities);
        active.revoked.insert(PublicKey([2; 32]));
        let access = Access::of(&me(), true, Some(&active), None);
        let caller = |key| Caller::Tls { peer: ([10, 0, 0, 9], 1).into(), key };
        assert!(access.identify(&caller(Some(PublicKey([2; 32]))), Some(&Token::new(b"sesame"))).is_err());
        let who = access.identify(&caller(None), Some(&Token::new(b"sesame"))).expect("known");
        assert_eq!((who.name.as_str(), who.proof), ("alice", Proof::Token));
        assert!(access.identify(&caller(None), Some(&Token::new(b"sesam"))).expect_err("a guess").guess);
    }

    #[test]
    fn an_author_has_a_proved_name_before_a_claimed_name() {
        let root = local(0).expect("root");
        assert_eq!(root.author(None), "root (unix socket)");
        assert_eq!(root.author(Some("root")), "root (unix socket)");
        assert_eq!(root.author(Some("ann\u{1b}[31m")), "root (unix socket), for \"ann[31m\"");
        assert_eq!(
            root.author(Some("ann\", by bob (administer)")),
            "root (unix socket), for \"ann\\\", by bob (administer)\""
        );
        assert_eq!(root.author(Some(&"x".repeat(1000))).len(), "root (unix socket), for \"\"".len() + MAX_CLAIM);
        let me = rustix::process::geteuid().as_raw();
        assert!(local(me).is_ok());
        assert!(local(me.wrapping_add(4711)).expect_err("another").refusal.error.contains("neither root"));
    }
}

//! Enrolment tokens: a secret for a single host, with the key of the server that accepts it.
//!
//! A person makes the token on the server's machine and carries it to the new host. Each side then knows the other: the
//! host trusts only the server whose key is in the token, and the server only a host that presents the secret. There is
//! no trust on first use.
//!
//! Written `cob1.KEY.SECRET.HOST`: 43 and 32 letters of base64 (RFC 4648, section 5), and the name.

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cob_types::canonical::blob_hash;
use cob_types::trust::PublicKey;
use cob_types::{BlobHash, HostName};
use zeroize::Zeroizing;

/// The prefix of a token.
const SCHEME: &str = "cob1";
/// Length of the secret: 192 bits can't be guessed.
const SECRET: usize = 24;
/// The longest token as text, in bytes.
const MAX_TOKEN: usize = 512;

/// A token for a new host. Erased from memory on drop; shown only by [`Token::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    host: HostName,
    server: PublicKey,
    secret: Zeroizing<[u8; SECRET]>,
}

/// The error for a text that is not a token. It does not contain the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a complete token of `cobgen enroll` ({0}); copy all of it: `cob1.` and three more parts, \
    separated by points"
)]
pub struct TokenError(&'static str);

impl Token {
    /// Generates a token with a new secret.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate(host: HostName, server: PublicKey) -> io::Result<Self> {
        let mut secret = Zeroizing::new([0; SECRET]);
        getrandom::fill(secret.as_mut()).map_err(io::Error::other)?;
        Ok(Self { host, server, secret })
    }

    /// The token's host.
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The key of the server that accepts it.
    #[must_use]
    pub fn server(&self) -> PublicKey {
        self.server
    }

    /// The hash that the server stores; the token can't be derived from it.
    #[must_use]
    pub fn hash(&self) -> BlobHash {
        blob_hash(self.secret.as_ref())
    }

    /// The token as text, for the person that carries it.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let secret = Zeroizing::new(encode(self.secret.as_ref()));
        Zeroizing::new(format!("{SCHEME}.{}.{}.{}", encode(&self.server.0), *secret, self.host))
    }

    /// The bytes that the new host signs: this server, this token, this key. Not valid in any other context.
    #[must_use]
    pub fn statement(&self, key: &PublicKey) -> Vec<u8> {
        [&self.server.0[..], &self.hash().0, &key.0, self.host.as_str().as_bytes()].concat()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError("it is too long"));
        }
        let mut parts = text.splitn(4, '.');
        let mut part = || parts.next().ok_or(TokenError("a part is missing"));
        if part()? != SCHEME {
            return Err(TokenError("it does not begin with `cob1.`"));
        }
        let (server, secret, host) = (part()?, part()?, part()?);
        let mut key = [0; 32];
        decode(server, &mut key).ok_or(TokenError("its second part is not a key"))?;
        let mut bytes = Zeroizing::new([0; SECRET]);
        decode(secret, bytes.as_mut()).ok_or(TokenError("its third part is not a secret"))?;
        let host = HostName::new(host).map_err(|_| TokenError("its last part is not the name of a host"))?;
        Ok(Self { host, server: PublicKey(key), secret: bytes })
    }
}

/// Decodes to exactly this length; the decoder is strict, so that a token has a single text.
fn decode(text: &str, to: &mut [u8]) -> Option<()> {
    let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
    (bytes.len() == to.len()).then(|| to.copy_from_slice(&bytes))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("host", &self.host).field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    #[test]
    fn a_token_is_shown_only_when_asked() {
        let token = Token::generate(host("h1.example"), PublicKey([7; 32])).expect("made");
        let text = token.reveal();
        assert!(!format!("{token:?}").contains(text.split('.').nth(2).expect("the secret")));
        assert_ne!(token.hash(), Token::generate(host("h1.example"), PublicKey([7; 32])).expect("made").hash());
        let error = "cob1.short.mysecretmysecret.h1".parse::<Token>().expect_err("no token").to_string();
        assert!(!error.contains("mysecret"), "{error}");
    }

    proptest! {
        #[test]
        fn a_printed_token_is_read_back(server in any::<[u8; 32]>(), name in "[A-Za-z0-9_-]([A-Za-z0-9_.-]{0,60}[A-Za-z0-9])?") {
            let token = Token::generate(host(&name), PublicKey(server)).expect("made");
            let read: Token = token.reveal().parse().expect("read");
            prop_assert_eq!(read.reveal(), token.reveal());
            prop_assert_eq!(read, token);
        }

        #[test]
        fn any_text_is_a_token_or_refused(text in "(cob1[.])?[A-Za-z0-9_.-]{0,120}|.{0,200}") {
            if let Ok(token) = text.parse::<Token>() {
                let again = token.reveal();
                prop_assert_eq!(again.as_str(), text.as_str());
            }
        }

        #[test]
        fn a_changed_letter_is_refused_or_makes_another_token(at in any::<prop::sample::Index>(), letter in "[A-Za-z0-9_.-]") {
            let token = Token::generate(host("h1"), PublicKey([7; 32])).expect("made");
            let text = token.reveal();
            let at = at.index(text.len());
            let changed = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
            if let Ok(other) = changed.parse::<Token>() {
                prop_assert_eq!(other == token, changed.as_str() == text.as_str());
            }
        }
    }
}

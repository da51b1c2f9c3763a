//! Who may use the page: the browser that the operator opened, and no other page.
//!
//! [`Origins`] knows the own page from others; a question also needs the secret that only the operator's terminal has shown.

use axum::http::{HeaderMap, header};
use cob_api_server::page::Origins;
use cob_types::canonical;

/// The secret of a page, and its address.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    secret: String,
    address: String,
    origins: Origins,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It is not for this address, or comes from another page.
    Foreign,
    /// It does not have the secret.
    Secret,
}

impl Door {
    /// A door with a new secret, for a server on this port of the loopback address.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(crate) fn new(port: u16) -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; 24];
        getrandom::fill(&mut bytes)?;
        let secret = hex::encode(bytes);
        Ok(Self { secret, address: format!("http://127.0.0.1:{port}"), origins: Origins::loopback(port) })
    }

    /// The address for the browser, with the secret in its fragment: a browser never sends a fragment.
    pub(crate) fn address(&self) -> String {
        format!("{}/#key={}", self.address, self.secret)
    }

    /// Checks a request for the page itself, which has no secrets.
    pub(crate) fn visitor(&self, headers: &HeaderMap) -> Result<(), Denied> {
        if self.origins.is_host(headers) { Ok(()) } else { Err(Denied::Foreign) }
    }

    /// Checks a question or an order.
    pub(crate) fn operator(&self, headers: &HeaderMap) -> Result<(), Denied> {
        if !self.origins.is_own(headers) {
            return Err(Denied::Foreign);
        }
        let mut shown = headers.get_all(header::AUTHORIZATION).iter();
        let token = shown.next().filter(|_| shown.next().is_none()).and_then(|value| value.to_str().ok());
        // Hashes are compared, so that the time tells nothing about the secret.
        let is_right =
            |token: &str| canonical::blob_hash(token.as_bytes()) == canonical::blob_hash(self.secret.as_bytes());
        match token.and_then(|token| token.strip_prefix("Bearer ")) {
            Some(token) if is_right(token) => Ok(()),
            Some(_) | None => Err(Denied::Secret),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn only_the_own_page_with_the_secret_may_ask() {
        let door = Door::new(4000).expect("random bytes");
        let key = format!("Bearer {}", door.secret);
        let ask = |of: &[(&'static str, &str)]| door.operator(&headers(of));
        assert_eq!(ask(&[("host", "127.0.0.1:4000"), ("authorization", &key)]), Ok(()));
        let own = [("host", "localhost:4000"), ("origin", "http://localhost:4000"), ("sec-fetch-site", "same-origin")];
        assert_eq!(ask(&[&own[..], &[("authorization", key.as_str())]].concat()), Ok(()));
        assert_eq!(ask(&own), Err(Denied::Secret));
        assert_eq!(ask(&[("host", "evil.example:4000"), ("authorization", &key)]), Err(Denied::Foreign));
        let foreign = [("host", "127.0.0.1:4000"), ("authorization", &key), ("origin", "http://evil.example")];
        assert_eq!(ask(&foreign), Err(Denied::Foreign));
        for wrong in ["", "Bearer ", "Bearer 00", "Basic abc", &key.to_lowercase()] {
            assert_eq!(ask(&[("host", "127.0.0.1:4000"), ("authorization", wrong)]), Err(Denied::Secret), "{wrong}");
        }
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(Door::new(1).expect("random bytes").address(), Door::new(1).expect("random bytes").address());
    }
}

//! Passwords as PostgreSQL stores them (RFC 5803): the server never gets the password itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The iterations of a new verifier, as many as PostgreSQL uses.
const ITERATIONS: u32 = 4096;
/// The most iterations that a check computes.
const MAX_ITERATIONS: u32 = 1_000_000;
/// The length of a block of the hash.
const BLOCK: usize = 64;

/// The text that PostgreSQL stores for a password.
pub(super) fn verifier(password: &str, salt: &[u8]) -> String {
    stored(password, salt, ITERATIONS)
}

/// Whether a stored text is that of this password.
pub(super) fn verifies(text: &str, password: &str) -> bool {
    let parse = || {
        let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
        let (salt, _) = rest.split_once('$')?;
        Some((iterations.parse::<u32>().ok()?, STANDARD.decode(salt).ok()?))
    };
    parse().is_some_and(|(iterations, salt)| {
        (1..=MAX_ITERATIONS).contains(&iterations) && stored(password, &salt, iterations) == text
    })
}

fn stored(password: &str, salt: &[u8], iterations: u32) -> String {
    let salted = salted(password.as_bytes(), salt, iterations);
    let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"]));
    let server_key = hmac(&salted, &[b"Server Key"]);
    let [salt, stored_key, server_key] = [salt, &stored_key[..], &server_key[..]].map(|bytes| STANDARD.encode(bytes));
    format!("SCRAM-SHA-256${iterations}:{salt}${stored_key}:{server_key}")
}

/// The function `Hi` of RFC 5802.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &1_u32.to_be_bytes()]);
    let mut result = last;
    for _ in 1..iterations {
        last = hmac(password, &[&last]);
        result.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
    }
    result
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let hash = |pad: u8, parts: &[&[u8]]| -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(block.map(|byte| byte ^ pad));
        parts.iter().for_each(|part| hash.update(part));
        hash.finalize().into()
    };
    hash(0x5c, &[&hash(0x36, parts)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_is_that_of_postgresql() {
        // The example of RFC 7677: user `user`, password `pencil`.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let text = verifier("pencil", &salt);
        assert_eq!(
            text,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        assert!(verifies(&text, "pencil") && !verifies(&text, "pencils"));
        for odd in ["", "md5abc", "SCRAM-SHA-256$0:AAAA$a:b", "SCRAM-SHA-256$4096:?$a:b", "SCRAM-SHA-256$4096"] {
            assert!(!verifies(odd, "pencil"), "{odd}");
        }
    }
}

//! The text that identifies a wanted tree, in a short form.

use std::fmt;

/// The `spec` of a version ([`Info`](super::Info)). It is usually a fingerprint in hex digits, of which each change
/// object has an instance: stored as bytes, it takes half the space and no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spec {
    Print([u8; 16]),
    /// A text that is not a fingerprint.
    Other(Box<str>),
}

impl Spec {
    pub(crate) fn is(&self, text: &str) -> bool {
        *self == Self::from(text)
    }
}

impl From<&str> for Spec {
    fn from(text: &str) -> Self {
        let mut print = [0; 16];
        let has_capitals = text.bytes().any(|b| b.is_ascii_uppercase());
        if !has_capitals && hex::decode_to_slice(text, &mut print).is_ok() {
            Self::Print(print)
        } else {
            Self::Other(text.into())
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Print(print) => f.write_str(&hex::encode(print)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was() {
        let print = "00112233445566778899aabbccddeeff";
        for text in [print, "", "old", &print[..31], &print.replace('a', "A"), &format!("{print}0"), &"ü".repeat(16)] {
            let spec = Spec::from(text);
            assert_eq!(spec.to_string(), text);
            assert!(spec.is(text) && !spec.is("another") && !spec.is(&print.replace('f', "e")));
            assert_eq!(matches!(spec, Spec::Print(_)), text == print);
        }
    }
}

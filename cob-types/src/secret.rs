//! Secrets in contents and files: a mark in the place of the value.
//!
//! A mark names the secret by its id. The id is a keyed hash of the value, so that another value gives another content,
//! and thus another fingerprint, while the id reveals nothing without the key. The value itself travels in the bundle,
//! encrypted for its host ([`crate::Bundle::secrets`]), and replaces the mark at the moment of use.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a value of a secret: the first 16 bytes of a keyed hash, in hex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId(pub [u8; 16]);

/// The start of a mark. U+2983 is a bracket that no configuration file uses by accident.
const OPEN: &str = "\u{2983}cob-secret:";
/// The end of a mark.
const CLOSE: &str = "\u{2984}";
/// The letters of an id.
const LETTERS: usize = 32;

/// The error for a text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the id of a secret has {LETTERS} lower-case hex digits")]
pub struct SecretIdError;

impl SecretId {
    /// The mark for the value.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("{OPEN}{self}{CLOSE}")
    }
}

/// The ids of all marks in a text, in order, with repetitions.
pub fn marks(text: &str) -> impl Iterator<Item = SecretId> + '_ {
    pieces(text).filter_map(|piece| match piece {
        Piece::Text(_) => None,
        Piece::Mark(id) => Some(id),
    })
}

/// A part of a text with marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Plain text.
    Text(&'a str),
    /// The mark of a secret's value.
    Mark(SecretId),
}

/// Splits a text at its marks. Text that only resembles a mark is plain text.
pub fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    let mut next = None;
    std::iter::from_fn(move || {
        if let Some(id) = next.take() {
            return Some(Piece::Mark(id));
        }
        if rest.is_empty() {
            return None;
        }
        let found = rest.match_indices(OPEN).find_map(|(at, _)| {
            let id = rest.get(at + OPEN.len()..at + OPEN.len() + LETTERS)?;
            let end = at + OPEN.len() + LETTERS;
            rest[end..].starts_with(CLOSE).then_some(())?;
            Some((at, end + CLOSE.len(), id.parse::<SecretId>().ok()?))
        });
        let Some((start, end, id)) = found else { return Some(Piece::Text(std::mem::take(&mut rest))) };
        let before = &rest[..start];
        rest = &rest[end..];
        if before.is_empty() {
            return Some(Piece::Mark(id));
        }
        next = Some(id);
        Some(Piece::Text(before))
    })
}

/// Whether a text has a mark, or the rest of an altered mark.
#[must_use]
pub fn is_suspect(text: &str) -> bool {
    text.contains(['\u{2983}', '\u{2984}']) || text.to_ascii_lowercase().contains("cob-secret:")
}

/// Replaces every mark in the texts of a JSON value by the result of `value`; keys stay as they are.
///
/// # Errors
/// The first id that `value` does not know.
pub fn replace(
    json: &mut serde_json::Value,
    value: &mut impl FnMut(SecretId) -> Option<String>,
) -> Result<(), SecretId> {
    match json {
        serde_json::Value::String(text) => *text = replace_text(text, value)?,
        serde_json::Value::Array(items) => items.iter_mut().try_for_each(|item| replace(item, value))?,
        serde_json::Value::Object(fields) => fields.values_mut().try_for_each(|field| replace(field, value))?,
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
    Ok(())
}

/// Replaces every mark in a text by the result of `value`.
///
/// # Errors
/// The first id that `value` does not know.
pub fn replace_text(text: &str, value: &mut impl FnMut(SecretId) -> Option<String>) -> Result<String, SecretId> {
    let mut whole = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => whole.push_str(text),
            Piece::Mark(id) => whole.push_str(&value(id).ok_or(id)?),
        }
    }
    Ok(whole)
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for SecretId {
    type Err = SecretIdError;

    fn from_str(text: &str) -> Result<Self, SecretIdError> {
        let mut bytes = [0; LETTERS / 2];
        if text.bytes().any(|b| b.is_ascii_uppercase()) || hex::decode_to_slice(text, &mut bytes).is_err() {
            return Err(SecretIdError);
        }
        Ok(Self(bytes))
    }
}

impl Serialize for SecretId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The name of a secret for people; if it is unknown, the begin of its id.
#[must_use]
pub fn name_of(id: SecretId, names: &BTreeMap<SecretId, String>) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string()[..8].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_its_marks() {
        let (a, b) = (SecretId([1; 16]), SecretId([0xAB; 16]));
        let text = format!("x{}{}y {OPEN}nothing{CLOSE}", a.mark(), b.mark());
        let cut: Vec<_> = pieces(&text).collect();
        let end = format!("y {OPEN}nothing{CLOSE}");
        assert_eq!(cut, [Piece::Text("x"), Piece::Mark(a), Piece::Mark(b), Piece::Text(&end)]);
        assert_eq!(marks(&text).collect::<Vec<_>>(), [a, b]);
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn marks_are_replaced_wherever_a_value_has_texts() {
        let id = SecretId([7; 16]);
        let mut json = serde_json::json!({"a": [format!("<{}>", id.mark()), 1], "b": {"c": id.mark()}});
        replace(&mut json, &mut |_| Some("\"x\"".to_owned())).expect("known");
        assert_eq!(json, serde_json::json!({"a": ["<\"x\">", 1], "b": {"c": "\"x\""}}));
        assert_eq!(replace_text(&id.mark(), &mut |_| None), Err(id));
        for text in [id.mark().to_uppercase(), id.mark()[..9].to_owned(), id.mark().replace('\u{2983}', "")] {
            assert!(is_suspect(&text), "{text}");
        }
        assert!(!is_suspect("a secret {} of a cob"));
    }

    #[test]
    fn an_id_has_only_one_accepted_form() {
        let id = SecretId([0x0F; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("0F".repeat(16).parse::<SecretId>(), Err(SecretIdError));
        assert_eq!("é".repeat(16).parse::<SecretId>(), Err(SecretIdError));
    }
}

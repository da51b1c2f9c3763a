//! Files of the host as text, without loss of any byte.
//!
//! Other programs may write bytes into `/etc/hosts` and similar files that are not UTF-8. These bytes must stay when a
//! line of ours is added. A byte that belongs to no character becomes a stand-in: a private-use character from the very
//! end of Unicode. If a file contains these characters itself, their bytes become stand-ins, too.

use std::borrow::Cow;

/// The stand-in of byte 0. Bytes below 0x80 need none.
const FIRST: u32 = 0x10_FF00;
/// The range of all stand-ins.
const STAND_INS: std::ops::RangeInclusive<char> = '\u{10_FF80}'..='\u{10_FFFF}';

/// Decodes bytes to text.
pub(in crate::kinds) fn text_of(bytes: Vec<u8>) -> String {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) if !text.contains(is_stand_in) => return text,
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    let stand_in = |byte: &u8| char::from_u32(FIRST + u32::from(*byte)).expect("below the last character");
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match is_stand_in(char) {
                true => text.extend(char.encode_utf8(&mut [0; 4]).as_bytes().iter().map(stand_in)),
                false => text.push(char),
            }
        }
        text.extend(chunk.invalid().iter().map(stand_in));
    }
    text
}

/// Encodes the text to the original bytes.
pub(in crate::kinds) fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(is_stand_in) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for char in text.chars() {
        match u8::try_from(u32::from(char).wrapping_sub(FIRST)) {
            Ok(byte) if is_stand_in(char) => bytes.push(byte),
            Ok(_) | Err(_) => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

fn is_stand_in(char: char) -> bool {
    STAND_INS.contains(&char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let odd = "plain \u{10_FF80}\u{10_FFFF}\u{10_FF7F} ü".as_bytes();
        for bytes in [b"127.0.0.1 localhost\n".as_slice(), b"J\xFCrgen", b"\xE2\x82", &all, odd] {
            let text = text_of(bytes.to_vec());
            assert_eq!(bytes_of(&text), bytes, "{text:?}");
            // The note of the original file stores the text as JSON.
            let kept: String = serde_json::from_str(&serde_json::json!(text).to_string()).expect("read");
            assert_eq!(kept, text);
        }
        assert_eq!(text_of("Jürgen".into()), "Jürgen");
        assert_eq!(text_of(b"J\xFCrgen".to_vec()), "J\u{10_FFFC}rgen");
    }
}

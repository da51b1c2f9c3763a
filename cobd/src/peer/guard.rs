//! The frame validator: decides which bytes of another host may reach `zeromq`.
//!
//! The relay checks every piece from the network with it before passing the piece on. `zeromq` reserves a frame's whole
//! announced length when it sees the header, keeps the parts of an endless message, and accepts an identity from any
//! peer; the validator blocks all of these.
//!
//! Allowed are: a greeting of 64 bytes (ZMTP 3, mechanism NULL); exactly one command, READY, of at most 512 bytes with
//! at most 8 properties, from a DEALER and without an identity; then messages of a single frame each, no longer than
//! the limit. It does no input or output and buffers only the READY.

/// The length of a ZMTP greeting.
const GREETING: usize = 64;
/// The longest READY command.
const MAX_READY: u64 = 512;
/// The most properties of a READY.
const MAX_PROPERTIES: usize = 8;

/// Follows one direction of a connection.
#[derive(Debug)]
pub(super) struct Guard {
    stage: Stage,
    max_frame: u64,
}

#[derive(Debug)]
enum Stage {
    Greeting { bytes: [u8; GREETING], seen: usize },
    Header { header: Header, ready_seen: bool },
    Ready { body: Vec<u8>, length: usize },
    Body { left: u64 },
}

/// The flags, and a length of one or eight bytes.
#[derive(Debug, Default)]
struct Header {
    bytes: [u8; 9],
    seen: usize,
}

/// The reason why the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the greeting is not that of ZMTP 3 without security")]
    Greeting,
    #[error("a frame with flags {0:#04x} where the handshake needs a READY")]
    NoReady(u8),
    #[error("a READY of {0} bytes; at most {MAX_READY} are allowed")]
    LongReady(u64),
    #[error("the READY is malformed")]
    MalformedReady,
    #[error("a command that is not READY")]
    Command,
    #[error("a READY with more than {MAX_PROPERTIES} properties")]
    Properties,
    #[error("a READY that names an identity")]
    Identity,
    #[error("a READY from a socket that is no DEALER")]
    SocketType,
    #[error("a frame with flags {0:#04x}; after the handshake only whole messages are allowed")]
    Flags(u8),
    #[error("a frame of {length} bytes; at most {max} are allowed")]
    Length { length: u64, max: u64 },
}

impl Guard {
    /// A validator at the start of a connection.
    pub(super) fn new(max_frame: usize) -> Self {
        let stage = Stage::Greeting { bytes: [0; GREETING], seen: 0 };
        Self { stage, max_frame: max_frame as u64 }
    }

    /// Checks the next bytes. If it refuses a byte, none of the bytes may be passed on.
    pub(super) fn check(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let taken = match &mut self.stage {
                Stage::Greeting { bytes: greeting, seen } => {
                    let taken = bytes.len().min(GREETING - *seen);
                    greeting[*seen..*seen + taken].copy_from_slice(&bytes[..taken]);
                    *seen += taken;
                    check_greeting(&greeting[..*seen])?;
                    if *seen == GREETING {
                        self.stage = Stage::Header { header: Header::default(), ready_seen: false };
                    }
                    taken
                }
                Stage::Header { header, ready_seen } => {
                    header.bytes[header.seen] = bytes[0];
                    header.seen += 1;
                    let ready_seen = *ready_seen;
                    let flags = header.bytes[0];
                    match (ready_seen, flags) {
                        (false, 4 | 6) | (true, 0 | 2) => {}
                        (false, _) => return Err(Refusal::NoReady(flags)),
                        (true, _) => return Err(Refusal::Flags(flags)),
                    }
                    if let Some(length) = header.length() {
                        self.stage = self.after_header(ready_seen, length)?;
                    }
                    1
                }
                Stage::Ready { body, length } => {
                    let taken = bytes.len().min(*length - body.len());
                    body.extend_from_slice(&bytes[..taken]);
                    if body.len() == *length {
                        check_ready(body)?;
                        self.stage = Stage::Header { header: Header::default(), ready_seen: true };
                    }
                    taken
                }
                Stage::Body { left } => {
                    let taken = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    *left -= taken as u64;
                    if *left == 0 {
                        self.stage = Stage::Header { header: Header::default(), ready_seen: true };
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn after_header(&self, ready_seen: bool, length: u64) -> Result<Stage, Refusal> {
        if !ready_seen {
            if length > MAX_READY {
                return Err(Refusal::LongReady(length));
            }
            return match usize::try_from(length) {
                Ok(length) if length > 0 => Ok(Stage::Ready { body: Vec::with_capacity(length), length }),
                Ok(_) | Err(_) => Err(Refusal::MalformedReady),
            };
        }
        if length > self.max_frame {
            return Err(Refusal::Length { length, max: self.max_frame });
        }
        Ok(match length {
            0 => Stage::Header { header: Header::default(), ready_seen },
            left => Stage::Body { left },
        })
    }
}

impl Header {
    /// The length, once all bytes of the header are there.
    fn length(&self) -> Option<u64> {
        let long = self.bytes[0] & 2 != 0;
        match (long, self.seen) {
            (false, 2) => Some(u64::from(self.bytes[1])),
            (true, 9) => {
                let [_, length @ ..] = self.bytes;
                Some(u64::from_be_bytes(length))
            }
            (false | true, _) => None,
        }
    }
}

/// Checks the partial greeting, so that a stranger is refused at its first byte.
fn check_greeting(seen: &[u8]) -> Result<(), Refusal> {
    let mechanism = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let expected = |at: usize, byte: u8| match at {
        0 => byte == 0xFF,
        9 => byte == 0x7F,
        10 => byte == 3,
        12..32 => byte == mechanism[at - 12],
        _ => true,
    };
    if seen.iter().enumerate().all(|(at, &byte)| expected(at, byte)) { Ok(()) } else { Err(Refusal::Greeting) }
}

fn check_ready(body: &[u8]) -> Result<(), Refusal> {
    let (name, mut rest) = split_short(body).ok_or(Refusal::MalformedReady)?;
    if name != b"READY" {
        return Err(Refusal::Command);
    }
    let mut properties = 0;
    let mut dealer = false;
    while !rest.is_empty() {
        properties += 1;
        if properties > MAX_PROPERTIES {
            return Err(Refusal::Properties);
        }
        let (name, value, after) = split_property(rest).ok_or(Refusal::MalformedReady)?;
        if name.eq_ignore_ascii_case(b"Identity") {
            return Err(Refusal::Identity);
        }
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            if value != b"DEALER" {
                return Err(Refusal::SocketType);
            }
            dealer = true;
        }
        rest = after;
    }
    if dealer { Ok(()) } else { Err(Refusal::SocketType) }
}

/// A name, its value, and the remaining bytes.
fn split_property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, rest) = split_short(bytes)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((name, value, rest))
}

/// A text after its length of one byte, and the remaining bytes.
fn split_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const CAP: usize = 1000;

    fn greeting() -> Vec<u8> {
        let mut bytes = vec![0; GREETING];
        bytes[0] = 0xFF;
        bytes[9] = 0x7F;
        bytes[10] = 3;
        bytes[12..16].copy_from_slice(b"NULL");
        bytes
    }

    fn property(name: &str, value: &str) -> Vec<u8> {
        let mut bytes = vec![name.len() as u8];
        bytes.extend(name.as_bytes());
        bytes.extend((value.len() as u32).to_be_bytes());
        bytes.extend(value.as_bytes());
        bytes
    }

    fn command(name: &str, properties: &[u8]) -> Vec<u8> {
        let mut body = vec![name.len() as u8];
        body.extend(name.as_bytes());
        body.extend(properties);
        let mut bytes = vec![6];
        bytes.extend((body.len() as u64).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn handshake() -> Vec<u8> {
        [greeting(), command("READY", &property("Socket-Type", "DEALER"))].concat()
    }

    fn message(flags: u8, length: u64, body: usize) -> Vec<u8> {
        let mut bytes = vec![flags];
        match flags & 2 {
            0 => bytes.push(length as u8),
            _ => bytes.extend(length.to_be_bytes()),
        }
        bytes.resize(bytes.len() + body, 7);
        bytes
    }

    #[track_caller]
    fn refused(bytes: &[u8], why: Refusal) {
        assert_eq!(Guard::new(CAP).check(bytes), Err(why.clone()));
        let mut guard = Guard::new(CAP);
        let found = bytes.chunks(1).find_map(|byte| guard.check(byte).err());
        assert_eq!(found, Some(why), "byte by byte");
    }

    #[test]
    fn an_ordinary_conversation_passes() {
        let bytes = [
            handshake(),
            message(0, 0, 0),
            message(0, 255, 255),
            message(2, 3, 3),
            message(2, CAP as u64, CAP),
            message(0, 9, 4),
        ]
        .concat();
        assert_eq!(Guard::new(CAP).check(&bytes), Ok(()));
    }

    #[test]
    fn a_strange_greeting_is_refused_at_its_first_wrong_byte() {
        assert_eq!(Guard::new(CAP).check(b"\x16\x03\x01"), Err(Refusal::Greeting));
        for at in [0, 9, 10, 12, 15, 16, 31] {
            let mut bytes = greeting();
            bytes[at] ^= 1;
            refused(&bytes[..=at], Refusal::Greeting);
        }
    }

    #[test]
    fn a_wrong_handshake_is_refused() {
        let after_greeting = |rest: Vec<u8>| [greeting(), rest].concat();
        let dealer = property("Socket-Type", "DEALER");
        let with = |more: Vec<u8>| [dealer.clone(), more].concat();
        refused(&after_greeting(message(0, 1, 1)), Refusal::NoReady(0));
        refused(&after_greeting(vec![5]), Refusal::NoReady(5));
        refused(&after_greeting(message(6, 1 << 46, 0)), Refusal::LongReady(1 << 46));
        refused(&after_greeting(message(6, u64::MAX, 0)), Refusal::LongReady(u64::MAX));
        refused(&after_greeting(message(4, 0, 0)), Refusal::MalformedReady);
        refused(&after_greeting(command("PING", &[])), Refusal::Command);
        refused(&after_greeting(command("READY", &[])), Refusal::SocketType);
        refused(&after_greeting(command("READY", &property("Socket-Type", "ROUTER"))), Refusal::SocketType);
        refused(&after_greeting(command("READY", &with(property("identity", "n1")))), Refusal::Identity);
        refused(&after_greeting(command("READY", &with(property("x", "").repeat(8)))), Refusal::Properties);
        refused(&after_greeting(command("READY", &with(vec![200, b'x']))), Refusal::MalformedReady);
        refused(&after_greeting(command("READY", &with(b"\x01x\xFF\xFF\xFF\xFF".to_vec()))), Refusal::MalformedReady);
    }

    #[test]
    fn after_the_handshake_only_whole_short_messages_pass() {
        let after = |rest: Vec<u8>| [handshake(), rest].concat();
        refused(&after(message(1, 1, 1)), Refusal::Flags(1));
        refused(&after(message(3, 1, 1)), Refusal::Flags(3));
        refused(&after(command("READY", &property("Socket-Type", "DEALER"))), Refusal::Flags(6));
        refused(&after(message(0x80, 0, 0)), Refusal::Flags(0x80));
        for length in [CAP as u64 + 1, 1 << 30, 1 << 63, u64::MAX] {
            refused(&after(message(2, length, 0)), Refusal::Length { length, max: CAP as u64 });
        }
    }

    fn conversation() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![0usize..20, 200usize..300, Just(CAP)], 0..6).prop_map(|lengths| {
            let messages = lengths.iter().map(|&length| match length {
                0..=255 => message(0, length as u64, length),
                256.. => message(2, length as u64, length),
            });
            [handshake(), messages.collect::<Vec<_>>().concat()].concat()
        })
    }

    /// The validator's verdict on these bytes, given in pieces of these lengths.
    fn verdict(bytes: &[u8], splits: &[usize]) -> Result<(), Refusal> {
        let mut guard = Guard::new(CAP);
        let mut rest = bytes;
        for &split in splits.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(split.min(rest.len()));
            guard.check(piece)?;
            rest = after;
        }
        Ok(())
    }

    /// The same rules for whole frames; `None` while bytes of a frame are missing.
    fn reference(bytes: &[u8]) -> Option<bool> {
        let mut rest = bytes.get(GREETING..)?;
        if check_greeting(&bytes[..GREETING]).is_err() {
            return Some(false);
        }
        let mut ready_seen = false;
        loop {
            let (&flags, after) = rest.split_first()?;
            let allowed = if ready_seen { [0, 2] } else { [4, 6] };
            if !allowed.contains(&flags) {
                return Some(false);
            }
            let (length, after) = match flags & 2 {
                0 => after.split_first().map(|(&length, after)| (u64::from(length), after))?,
                _ => after.split_first_chunk::<8>().map(|(length, after)| (u64::from_be_bytes(*length), after))?,
            };
            if length > if ready_seen { CAP as u64 } else { MAX_READY } {
                return Some(false);
            }
            let (body, after) = after.split_at_checked(length as usize)?;
            if !ready_seen && check_ready(body).is_err() {
                return Some(false);
            }
            ready_seen = true;
            rest = after;
        }
    }

    proptest! {
        #[test]
        fn the_split_of_bytes_does_not_change_the_verdict(
            bytes in conversation(),
            splits in vec(1usize..70, 1..10),
        ) {
            prop_assert_eq!(verdict(&bytes, &splits), Ok(()));
        }

        #[test]
        fn mutated_streams_get_the_verdict_of_the_rules(
            mut bytes in conversation(),
            mutations in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
            splits in vec(1usize..70, 1..10),
        ) {
            for (at, to) in &mutations {
                let at = at.index(bytes.len());
                bytes[at] = *to;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let whole = verdict(&bytes, &[usize::MAX]);
            prop_assert_eq!(&verdict(&bytes, &splits), &whole);
            prop_assert_eq!(&verdict(&bytes, &[1]), &whole);
            match reference(&bytes) {
                Some(allowed) => prop_assert_eq!(whole.is_ok(), allowed),
                // A refusal may come before the frame is complete; here only within the greeting.
                None => prop_assert!(whole.is_ok() || bytes.len() < GREETING, "{:?}", whole),
            }
        }
    }
}

//! Random bytes that nobody can guess.

/// New random bytes.
///
/// # Errors
/// The kernel gives none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(bytes)
}

/// 128 random bits in hexadecimal.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn id() -> Result<String, String> {
    bytes::<16>().map(hex::encode)
}

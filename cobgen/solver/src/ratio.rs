//! Exact shares: the meaning of a `ratio` in a model, without floating point.

use std::cmp::Ordering;
use std::fmt;

/// A share of all nodes, as a fraction.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    numerator: u64,
    denominator: u64,
}

impl Ratio {
    /// A fraction; `None` if the denominator is 0.
    #[must_use]
    pub fn new(numerator: u64, denominator: u64) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let divisor = gcd(numerator, denominator);
        Some(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// Parses a decimal number (`0.25`, `1`) or a fraction (`1/3`), digit by digit.
    ///
    /// `None` if the text is not a number like this, is negative, or has more digits than 64 bits hold.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((numerator, denominator)) = text.split_once('/') {
            return Self::new(digits(numerator)?, digits(denominator)?);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let denominator = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let whole = if whole.is_empty() { 0 } else { digits(whole)? };
        let part = if fraction.is_empty() { 0 } else { digits(fraction)? };
        Self::new(whole.checked_mul(denominator)?.checked_add(part)?, denominator)
    }

    /// The smallest number of nodes that is at least this share of `nodes`.
    #[must_use]
    pub fn at_least(self, nodes: u64) -> u64 {
        clamp(self.product(nodes).div_ceil(u128::from(self.denominator)))
    }

    /// The largest number of nodes that is at most this share of `nodes`.
    #[must_use]
    pub fn at_most(self, nodes: u64) -> u64 {
        clamp(self.product(nodes) / u128::from(self.denominator))
    }

    fn product(self, nodes: u64) -> u128 {
        u128::from(self.numerator) * u128::from(nodes)
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = u128::from(self.numerator) * u128::from(other.denominator);
        left.cmp(&(u128::from(other.numerator) * u128::from(self.denominator)))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(f, "{}", self.numerator)
        } else {
            write!(f, "{}/{}", self.numerator, self.denominator)
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn clamp(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let tenth = Ratio::parse("0.1").expect("a ratio");
        assert_eq!((tenth.at_least(30), tenth.at_most(30)), (3, 3));
        assert_eq!((tenth.at_least(31), tenth.at_most(31)), (4, 3));
        assert_eq!(Ratio::parse("0.250"), Ratio::new(1, 4));
        assert_eq!(Ratio::parse(".5"), Ratio::new(1, 2));
        assert_eq!(Ratio::parse("1."), Ratio::new(1, 1));
        assert_eq!(Ratio::parse("1/3"), Ratio::new(2, 6));
        assert_eq!(Ratio::parse("1/3").expect("a ratio").to_string(), "1/3");
    }

    #[test]
    fn texts_that_are_not_a_ratio_are_refused() {
        for text in ["", ".", "-1", "+1", "1e3", "1/0", "x", "0.00000000000000000001", "99999999999999999999", "1 "] {
            assert_eq!(Ratio::parse(text), None, "{text}");
        }
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let huge = Ratio::new(u64::MAX, 1).expect("a ratio");
        assert_eq!(huge.at_least(u64::MAX), u64::MAX);
        assert!(Ratio::new(1, 3) < Ratio::new(1, 2));
    }
}

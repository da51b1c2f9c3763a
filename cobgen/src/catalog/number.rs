//! Numbers without rounding: costs in millionths, shares as fractions.
//!
//! A layout must be the same on every machine, so no floating-point number takes part in its decisions.

/// A number that is not negative, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decimal(pub(crate) u64);

/// A share: a fraction from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) numerator: u64,
    pub(crate) denominator: u64,
}

const PLACES: usize = 6;
const MILLION: u64 = 1_000_000;

impl Decimal {
    /// Parses `3` or `0.044`, with at most 6 decimal places.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > PLACES {
            return None;
        }
        let part = format!("{part:0<PLACES$}").parse::<u64>().ok()?;
        whole.parse::<u64>().ok()?.checked_mul(MILLION)?.checked_add(part).map(Self)
    }
}

impl Share {
    /// Parses `0.25`, `1/4` or `25%`, with as many decimal places as 64 bits hold.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (numerator, denominator) = if let Some((top, bottom)) = text.split_once('/') {
            (top.trim().parse::<u32>().ok()?.into(), bottom.trim().parse::<u32>().ok()?.into())
        } else if let Some(percent) = text.strip_suffix('%') {
            let (numerator, denominator) = fraction(percent.trim_end())?;
            (numerator, denominator.checked_mul(100)?)
        } else {
            fraction(text)?
        };
        let divisor = common_divisor(numerator, denominator);
        let share = Self { numerator: numerator.checked_div(divisor)?, denominator: denominator.checked_div(divisor)? };
        (share.denominator > 0 && share.numerator <= share.denominator).then_some(share)
    }

    pub(crate) fn is_more_than(self, other: Self) -> bool {
        u128::from(self.numerator) * u128::from(other.denominator)
            > u128::from(other.numerator) * u128::from(self.denominator)
    }
}

/// Parses a decimal number, digit by digit.
fn fraction(text: &str) -> Option<(u64, u64)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let part = part.trim_end_matches('0');
    let denominator = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = if part.is_empty() { 0 } else { part.parse().ok()? };
    Some((whole.parse::<u64>().ok()?.checked_mul(denominator)?.checked_add(part)?, denominator))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact() {
        for (text, millionths) in [("3", 3_000_000), ("0.044", 44_000), ("1.5", 1_500_000), ("0.000001", 1), ("0", 0)] {
            assert_eq!(Decimal::parse(text), Some(Decimal(millionths)), "{text}");
        }
        for text in ["", "-1", "1e3", ".5", "0.0000001", "1,5", "99999999999999999999"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_fractions_from_0_to_1() {
        for (text, top, bottom) in [
            ("0.25", 1, 4),
            ("1/3", 1, 3),
            ("25%", 1, 4),
            ("1", 1, 1),
            ("2 / 4", 1, 2),
            ("0", 0, 1),
            ("0.250000000000000000000", 1, 4),
        ] {
            assert_eq!(Share::parse(text), Some(Share { numerator: top, denominator: bottom }), "{text}");
        }
        // Programs write thirds like this: each digit counts.
        let third = Share { numerator: 333_333_333_333_333_333, denominator: 1_000_000_000_000_000_000 };
        assert_eq!(Share::parse("0.333333333333333333"), Some(third));
        assert_eq!(Share::parse("33.3333333%"), Some(Share { numerator: 333_333_333, denominator: 1_000_000_000 }));
        for text in ["0.33333333333333333333", "1e-1", "1.1", "4/3", "1/0", "0/0", "x", "-0.1", "101%"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        let share = |text| Share::parse(text).expect("a share");
        assert!(share("1/3").is_more_than(share("0.3")) && !share("1/3").is_more_than(share("1/3")));
    }
}

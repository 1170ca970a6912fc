//! Decimal numbers as exact fractions.

/// Most digits behind the point of a rate: a permit in eleven days.
const DECIMALS_MAX: usize = 6;

/// `permits` a second in the format of documents: `100/s`, and `1/2s` for 0.5. `None` if it is not such a number.
pub(crate) fn per_second(permits: &str) -> Option<String> {
    match decimal(permits)? {
        (permits, 1) => Some(format!("{permits}/s")),
        (permits, seconds) => Some(format!("{permits}/{seconds}s")),
    }
}

/// `2.50` as `5/2`: a fraction in lowest terms.
pub(crate) fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = whole == "0" || !whole.starts_with('0');
    if !is_number(whole) || !is_number(decimals) || !is_plain {
        return None;
    }
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > DECIMALS_MAX {
        return None;
    }
    let per = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    let units: u64 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let units = whole.parse::<u64>().ok()?.checked_mul(per)?.checked_add(units)?;
    let (mut divisor, mut rest) = (per, units % per);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Some((units / divisor, per / divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_fractions() {
        for (text, expected) in [
            ("100", Some((100, 1))),
            ("20.00", Some((20, 1))),
            ("0.5", Some((1, 2))),
            ("2.50", Some((5, 2))),
            ("0.000001", Some((1, 1_000_000))),
            ("0", Some((0, 1))),
            ("0.3333333", None),
            ("1e3", None),
            ("-1", None),
            ("+1", None),
            ("05", None),
            (".5", None),
            ("5.", None),
            ("", None),
            ("99999999999999999999", None),
            ("18446744073709551615.5", None),
        ] {
            assert_eq!(decimal(text), expected, "{text}");
        }
    }
}

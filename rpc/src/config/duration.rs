//! Durations as operators write them, in the form that PD's own configuration uses (Go's):
//! numbers with units, largest first or not, as `3s`, `300ms`, `1m30s`, `1.5h`.

use std::time::Duration;

/// The longest time that anything here lasts: a year.
const LONGEST: Duration = Duration::from_secs(8_760 * 3_600);

/// Text that is no duration, or a longer one than a year.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a time of a year at most; give a number above zero with its unit, as 20s, 500ms, 1m or 1m30s"
)]
pub struct InvalidDuration;

/// Reads a duration above zero.
///
/// # Errors
/// [`InvalidDuration`] for anything else: no unit, an unknown unit, zero, a sign, or more than a year: times are added
/// to other times, and there is none beyond the end of time.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(InvalidDuration);
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or(InvalidDuration)?;
        let number: f64 = rest[..digits].parse().map_err(|_| InvalidDuration)?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(InvalidDuration),
        };
        rest = &rest[unit..];
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| InvalidDuration)?;
        total = total.checked_add(part).ok_or(InvalidDuration)?;
    }
    if total.is_zero() || total > LONGEST {
        return Err(InvalidDuration);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_pd_writes_them() {
        for (text, expected) in [
            ("3s", Duration::from_secs(3)),
            ("300ms", Duration::from_millis(300)),
            ("1m30s", Duration::from_secs(90)),
            ("1.5h", Duration::from_secs(5400)),
            (" 10s ", Duration::from_secs(10)),
            ("8760h", LONGEST),
            ("250us", Duration::from_micros(250)),
            ("250µs", Duration::from_micros(250)),
            ("7ns", Duration::from_nanos(7)),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "3",
            "s",
            "3 s",
            "-3s",
            "3d",
            "0s",
            "1.2.3s",
            "1e400s",
            "99999999999999999999h",
            "8761h",
            "3s5",
        ] {
            assert_eq!(parse_duration(text), Err(InvalidDuration), "{text:?}");
        }
    }
}

//! Quantities with units, for flags.

use std::time::Duration;

use chappe_machine::time_unit;

/// Parses a duration such as `500ms`, `3s` or `2m`.
///
/// # Errors
/// The text is not a number with a unit of time.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let length = match unit {
        "" => Some(Duration::from_secs(1)),
        _ => time_unit(unit),
    };
    let Some(length) = length else {
        return Err(format!(
            "unit {unit:?} is unknown; use ns, us, ms, s, m, h or d"
        ));
    };
    Duration::try_from_secs_f64(number * length.as_secs_f64()).map_err(|error| error.to_string())
}

/// Parses a rate in bits such as `250kbit` or `10Mbit/s`, into bytes a second.
///
/// # Errors
/// The text is not a number with a unit of bits, or the rate is out of range.
pub fn bytes_per_s(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text.trim_end_matches("/s"))?;
    let bits = match unit {
        "bit" => number,
        "kbit" => number * 1e3,
        "Mbit" => number * 1e6,
        "Gbit" => number * 1e9,
        _ => {
            return Err(format!(
                "unit {unit:?} is unknown; use bit, kbit, Mbit or Gbit"
            ));
        }
    };
    let bytes = (bits / 8.0) as u64;
    if bytes == 0 || bits > 1e12 {
        return Err(format!("{text:?} is not between 8 bit and 1,000 Gbit"));
    }
    Ok(bytes)
}

/// A number of things for a person: `1 stream`, `2 streams`, `0 entities`. `one` is the word for one of them.
#[must_use]
pub fn counted(count: impl TryInto<u64>, one: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    match (count, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {one}s"),
    }
}

/// A measured number for machine-readable tables: nine significant digits without the noise of binary fractions, so
/// that 13.999999999999998 becomes 14.
#[must_use]
pub fn measured(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
    rounded.to_string()
}

/// The number at the start of a text, and the unit after it.
fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number
        .parse()
        .map_err(|_| format!("{text:?} does not start with a number"))?;
    Ok((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        let words = [
            counted(1_u64, "dead letter"),
            counted(0_u64, "stream"),
            counted(2_usize, "entity"),
        ];
        assert_eq!(words, ["1 dead letter", "0 streams", "2 entities"]);
    }

    #[test]
    fn durations_take_units() {
        assert_eq!(duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86_400)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert!(duration("3 days").is_err() && duration("s").is_err() && duration("-1s").is_err());
    }

    #[test]
    fn measured_numbers_have_nine_digits() {
        for (value, text) in [
            (13.999_999_999_999_998, "14"),
            (0.1 + 0.2, "0.3"),
            (1_234.567_890_123, "1234.56789"),
            (-2.0e-9, "-0.000000002"),
            (0.0, "0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(measured(value), text);
        }
    }

    #[test]
    fn rates_are_bits_and_become_bytes() {
        assert_eq!(bytes_per_s("10Mbit"), Ok(1_250_000));
        assert_eq!(bytes_per_s("250kbit/s"), Ok(31_250));
        for wrong in ["10MB", "Mbit", "0bit", "2000Gbit", "-1Mbit"] {
            assert!(bytes_per_s(wrong).is_err(), "{wrong}");
        }
    }
}

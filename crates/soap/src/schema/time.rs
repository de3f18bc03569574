//! `xs:duration` and `xs:dateTime` as nanoseconds (XML Schema part 2, sections 3.2.6 and 3.2.7).
//!
//! A year counts 365 days and a month 30 days, since both vary and only a bound is needed. A time
//! without zone is UTC. Years before 1678 and after 2261 are out of range.

use chappe_xml::trim;

use super::LexicalError;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Longest accepted text in characters.
const LEXICAL_MAX: usize = 64;

/// The nanoseconds of an `xs:duration`.
///
/// ```
/// use chappe_soap::schema::parse_duration;
/// assert_eq!(parse_duration("PT1M0.5S"), Ok(60_500_000_000));
/// assert_eq!(parse_duration("-P1D"), Ok(-86_400_000_000_000));
/// assert!(parse_duration("P").is_err());
/// ```
///
/// # Errors
/// [`LexicalError`] if the text is not a duration, or exceeds 292 years.
pub fn parse_duration(text: &str) -> Result<i64, LexicalError> {
    let invalid = || LexicalError::new("xs:duration", text);
    let trimmed = trim(text);
    if trimmed.len() > LEXICAL_MAX {
        return Err(invalid());
    }
    let (sign, rest) = match trimmed.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, trimmed),
    };
    let rest = rest.strip_prefix('P').ok_or_else(invalid)?;
    let (date, time) = match rest.split_once('T') {
        Some((date, time)) if !time.is_empty() => (date, time),
        Some(_) => return Err(invalid()),
        None => (rest, ""),
    };
    if date.is_empty() && time.is_empty() {
        return Err(invalid());
    }
    let date = sum(
        date,
        &[('Y', 365 * DAY), ('M', 30 * DAY), ('D', DAY)],
        false,
    );
    let time = sum(
        time,
        &[('H', 3_600 * SECOND), ('M', 60 * SECOND), ('S', SECOND)],
        true,
    );
    let total = date
        .zip(time)
        .and_then(|(date, time)| date.checked_add(time));
    total.map(|total| sign * total).ok_or_else(invalid)
}

/// Sums numbers with designators, which occur at most once and in this order.
fn sum(mut text: &str, units: &[(char, i64)], fraction: bool) -> Option<i64> {
    let mut units = units.iter();
    let mut total = 0_i64;
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(end);
        let designator = rest.chars().next()?;
        let (_, unit) = units.find(|(known, _)| *known == designator)?;
        let (whole, part) = match number.split_once('.') {
            Some((whole, part)) if fraction && designator == 'S' => (whole, nanoseconds(part)?),
            Some(_) => return None,
            None => (number, 0),
        };
        let whole: i64 = whole.parse().ok()?;
        total = total
            .checked_add(whole.checked_mul(*unit)?)?
            .checked_add(part)?;
        text = &rest[designator.len_utf8()..];
    }
    Some(total)
}

/// Parses the digits after the decimal point, truncated to nanoseconds.
fn nanoseconds(digits: &str) -> Option<i64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut padded: String = digits.chars().take(9).collect();
    while padded.len() < 9 {
        padded.push('0');
    }
    padded.parse().ok()
}

/// The shortest `xs:duration` in days, hours, minutes and seconds.
///
/// ```
/// use chappe_soap::schema::format_duration;
/// assert_eq!(format_duration(3_600_000_000_000), "PT1H");
/// assert_eq!(format_duration(1_500_000_000), "PT1.5S");
/// assert_eq!(format_duration(0), "PT0S");
/// ```
#[must_use]
pub fn format_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    let (seconds, part) = (total / 1_000_000_000, total % 1_000_000_000);
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    let mut text = format!("{sign}P");
    if days > 0 {
        text += &format!("{days}D");
    }
    if total == 0 {
        text += "T0S";
    } else if hours > 0 || minutes > 0 || seconds > 0 || part > 0 {
        text.push('T');
        if hours > 0 {
            text += &format!("{hours}H");
        }
        if minutes > 0 {
            text += &format!("{minutes}M");
        }
        if seconds > 0 || part > 0 {
            text += &format!("{seconds}{}S", fraction(part));
        }
    }
    text
}

fn fraction(nanoseconds: u64) -> String {
    if nanoseconds == 0 {
        return String::new();
    }
    let digits = format!("{nanoseconds:09}");
    format!(".{}", digits.trim_end_matches('0'))
}

/// Nanoseconds since 1970-01-01T00:00:00Z of an `xs:dateTime`.
///
/// ```
/// use chappe_soap::schema::parse_date_time;
/// assert_eq!(parse_date_time("1970-01-01T01:00:00+01:00"), Ok(0));
/// assert_eq!(parse_date_time("2026-02-28T00:00:00.25Z"), Ok(1_772_236_800_250_000_000));
/// assert!(parse_date_time("2026-02-29T00:00:00Z").is_err());
/// ```
///
/// # Errors
/// [`LexicalError`] if the text is not a date with time, or is out of range.
pub fn parse_date_time(text: &str) -> Result<i64, LexicalError> {
    let invalid = || LexicalError::new("xs:dateTime", text);
    let trimmed = trim(text);
    if trimmed.len() > LEXICAL_MAX || !trimmed.is_ascii() {
        return Err(invalid());
    }
    date_time(trimmed).ok_or_else(invalid)
}

fn date_time(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once('T')?;
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 {
        return None;
    }
    let (year, month, day) = (digits(year)?, two_digits(month)?, two_digits(day)?);
    let mut parts = clock.split(':');
    let (hour, minute, second) = (
        two_digits(parts.next()?)?,
        two_digits(parts.next()?)?,
        parts.next()?,
    );
    let (second, part) = match second.split_once('.') {
        Some((second, part)) => (second, nanoseconds(part)?),
        None => (second, 0),
    };
    let second = two_digits(second)?;
    let is_end_of_day = hour == 24 && minute == 0 && second == 0 && part == 0;
    let is_valid = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && (hour < 24 || is_end_of_day)
        && minute < 60
        && second < 60;
    if parts.next().is_some() || !is_valid {
        return None;
    }
    let offset = zone_minutes(zone)?;
    let seconds = days_from_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second
        - offset * 60;
    // In 128 bits, because the first second starts before the 64-bit range.
    i64::try_from(i128::from(seconds) * i128::from(SECOND) + i128::from(part)).ok()
}

fn digits(text: &str) -> Option<i64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok()).flatten()
}

fn two_digits(text: &str) -> Option<i64> {
    (text.len() == 2).then(|| digits(text)).flatten()
}

fn zone_minutes(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap_year => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar, counted from March so that the leap
/// day is the last of its year.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// The `xs:dateTime` in UTC of nanoseconds since 1970.
///
/// ```
/// use chappe_soap::schema::format_date_time;
/// assert_eq!(format_date_time(1_772_236_800_250_000_000), "2026-02-28T00:00:00.25Z");
/// ```
#[must_use]
pub fn format_date_time(nanoseconds: i64) -> String {
    let day = nanoseconds.div_euclid(DAY);
    let in_day = nanoseconds.rem_euclid(DAY);
    // The inverse of `days_from_epoch`: estimates the year, then finds month and day.
    let mut year = 1969 + day.div_euclid(366).min(day.div_euclid(365));
    while days_from_epoch(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days_from_epoch(year, month + 1, 1) <= day {
        month += 1;
    }
    let day = day - days_from_epoch(year, month, 1) + 1;
    let seconds = in_day / SECOND;
    let part = fraction((in_day % SECOND).unsigned_abs());
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{part}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "", "P", "PT", "P1H", "PT1D", "1D", "P-1D", "PT1.S", "P1M1Y", "P1.5D", "PT.5S",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("P400Y").is_err(), "exceeds 64 bits");
        assert_eq!(parse_duration(" P1Y1M "), Ok(395 * DAY));
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-01-01T24:00:01Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01",
            "3000-01-01T00:00:00Z",
            "2026-01-01T00:00:00+15:00",
            "26-01-01T00:00:00Z",
        ] {
            assert!(parse_date_time(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_date_time("2000-02-29T24:00:00"),
            parse_date_time("2000-03-01T00:00:00Z")
        );
    }

    #[test]
    fn extreme_dates_round_trip() {
        for nanoseconds in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            assert_eq!(
                parse_date_time(&format_date_time(nanoseconds)),
                Ok(nanoseconds)
            );
        }
    }

    proptest! {
        #[test]
        fn durations_round_trip(nanoseconds in -i64::MAX..i64::MAX) {
            prop_assert_eq!(parse_duration(&format_duration(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn dates_round_trip(nanoseconds in any::<i64>()) {
            prop_assert_eq!(parse_date_time(&format_date_time(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in "[-+PYMDTHSZ0-9:.é]{0,24}") {
            let _ = parse_duration(&text);
            let _ = parse_date_time(&text);
        }
    }
}

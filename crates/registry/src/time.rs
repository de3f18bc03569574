//! Times as texts: `xsd:dateTime` and RFC 3339.

/// The milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A time in milliseconds since 1970 as `xsd:dateTime` in UTC. All have the same length, so they
/// sort as texts. Times outside the years 1 to 9999 become the nearest of these.
pub(crate) fn timestamp(unix_ms: i64) -> String {
    const FIRST_MS: i64 = -62_135_596_800_000;
    const LAST_MS: i64 = 253_402_300_799_999;
    let time = unix_ms.clamp(FIRST_MS, LAST_MS);
    let (days, ms) = (time.div_euclid(DAY_MS), time.rem_euclid(DAY_MS));
    // Days since 1 March of year 0, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + later;
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The milliseconds since 1970 of a date-time of RFC 3339, which has an offset. Digits after the
/// milliseconds are cut off; a leap second is the second after it.
pub(crate) fn parse_date_time(text: &str) -> Option<i64> {
    if !text.is_ascii() || text.len() < 20 {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| is_number)
    };
    let is_at = |index: usize, bytes: &[u8]| bytes.contains(&text.as_bytes()[index]);
    let has_separators =
        is_at(4, b"-") && is_at(7, b"-") && is_at(10, b"Tt ") && is_at(13, b":") && is_at(16, b":");
    if !has_separators {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last_day = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last_day).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = &text[19..];
    let (fraction_ms, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let (digits, offset) = rest.split_at(end);
            let shown: String = digits.chars().chain("000".chars()).take(3).collect();
            (shown.parse::<i64>().ok().filter(|_| end > 0)?, offset)
        }
    };
    let offset_minutes = match offset.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h0, b':', m1, m0] => {
            let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
            let hours = digit(h1)? * 10 + digit(h0)?;
            let minutes = digit(m1)? * 10 + digit(m0)?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 60 + minutes;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    // Years begin in March, so that the leap day is the last one.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    let seconds = hour * 3_600 + (minute - offset_minutes) * 60 + second;
    Some(days * DAY_MS + seconds * 1_000 + fraction_ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        let expect = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_774_000_123_456, "2026-03-20T09:48:43.456Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0001-01-01T00:00:00.000Z"),
        ];
        for (time, text) in expect {
            assert_eq!(timestamp(time), text);
        }
    }

    #[test]
    fn date_times_of_rfc_3339_are_read() {
        for (text, unix_ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1985-04-12T23:20:50.52Z", Some(482_196_050_520)),
            ("1996-12-19T16:39:57-08:00", Some(851_042_397_000)),
            ("1990-12-31T23:59:60Z", Some(662_688_000_000)),
            ("2024-02-29t00:00:00.0004z", Some(1_709_164_800_000)),
            ("2023-02-29T00:00:00Z", None),
            ("2023-13-01T00:00:00Z", None),
            ("2023-01-01T24:00:00Z", None),
            ("2023-01-01T00:00:00", None),
            ("2023-01-01T00:00:00.Z", None),
            ("2023-01-01T00:00:00+0100", None),
            ("2023-01-01", None),
            ("+023-01-01T00:00:00Z", None),
            ("ä", None),
        ] {
            assert_eq!(parse_date_time(text), unix_ms, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(unix_ms in -62_135_596_800_000_i64..=253_402_300_799_999) {
            prop_assert_eq!(parse_date_time(&timestamp(unix_ms)), Some(unix_ms));
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9TtZz:+. ä-]{0,40}") {
            parse_date_time(&text);
        }
    }
}

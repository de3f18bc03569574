//! Times, read and written as RFC 3339 in UTC.
//!
//! Nanoseconds in 64 bits cover the years 1678 to 2262. Leap seconds are not supported: second 60 is
//! refused.

use std::fmt;

use serde::{Deserialize, Serialize};

const NANOS: i64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

/// Nanoseconds since 1970-01-01T00:00:00Z, by the clock of whoever stamped. Displayed as RFC 3339 without
/// trailing zeros: `2026-11-21T10:00:00.5Z`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CivilTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            nanosecond,
        } = self.civil();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if nanosecond != 0 {
            let fraction = format!("{nanosecond:09}");
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// A date and a time of day of the Gregorian calendar, of whatever zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// The year.
    pub year: i64,
    /// The month, 1 to 12.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
    /// The hour, 0 to 23.
    pub hour: i64,
    /// The minute, 0 to 59.
    pub minute: i64,
    /// The second, 0 to 59.
    pub second: i64,
    /// The nanosecond, 0 to 999,999,999.
    pub nanosecond: i64,
}

impl CivilTime {
    /// The moment, in a zone `offset_s` seconds east of Greenwich. `None` if there is no such date or
    /// time of day, or a [`Timestamp`] cannot hold it.
    #[must_use]
    pub fn timestamp(self, offset_s: i64) -> Option<Timestamp> {
        let ranges = [
            (self.year, 0..=9_999),
            (self.month, 1..=12),
            (self.day, 1..=31),
            (self.hour, 0..=23),
            (self.minute, 0..=59),
            (self.second, 0..=59),
            (self.nanosecond, 0..=NANOS - 1),
            (offset_s, -DAY_S + 1..=DAY_S - 1),
        ];
        if !ranges.iter().all(|(number, range)| range.contains(number)) {
            return None;
        }
        let days = days(self.year, self.month, self.day);
        if date(days) != (self.year, self.month, self.day) {
            return None;
        }
        let seconds = days * DAY_S + self.hour * 3_600 + self.minute * 60 + self.second - offset_s;
        let nanoseconds = seconds.checked_mul(NANOS)?;
        nanoseconds.checked_add(self.nanosecond).map(Timestamp)
    }
}

impl Timestamp {
    /// Reads a time with any offset and up to nine fractional digits; further digits are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if !text.is_ascii() || bytes.len() < 20 || bytes.len() > 64 {
            return None;
        }
        let number = |from: usize, to: usize| -> Option<i64> {
            let part = &text[from..to];
            part.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| part.parse().ok())?
        };
        let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        let separator = matches!(bytes[10], b'T' | b't' | b' ');
        if !separator || marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let mut rest = &text[19..];
        let mut nanosecond = 0;
        if let Some(fraction) = rest.strip_prefix('.') {
            let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let digits = &fraction[..length.min(9)];
            nanosecond = format!("{digits:0<9}")
                .parse()
                .ok()
                .filter(|_| length > 0)?;
            rest = &fraction[length..];
        }
        let offset = match rest {
            "Z" | "z" => 0,
            _ => offset(rest)?,
        };
        let civil = CivilTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            nanosecond,
        };
        civil.timestamp(offset)
    }

    /// The date and the time of day in UTC.
    #[must_use]
    pub fn civil(self) -> CivilTime {
        let (seconds, nanosecond) = (self.0.div_euclid(NANOS), self.0.rem_euclid(NANOS));
        let (days, second) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
        let (year, month, day) = date(days);
        CivilTime {
            year,
            month,
            day,
            hour: second / 3_600,
            minute: second / 60 % 60,
            second: second % 60,
            nanosecond,
        }
    }
}

/// Seconds east of Greenwich of `+hh:mm`.
fn offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    let digits = |part: &str, most: i64| -> Option<i64> {
        let fits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        part.parse().ok().filter(|n| fits && *n <= most)
    };
    Some(sign * (digits(hours, 23)? * 3_600 + digits(minutes, 59)? * 60))
}

/// Days since 1970-01-01 of a Gregorian date. Years start in March here, so that the leap day is the
/// last of its year; a 400-year cycle has 146,097 days.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (cycle, of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    cycle * 146_097 + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + day_of_year - 719_468
}

/// The date of a day counted from 1970-01-01: the inverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12 + 1;
    let year = cycle * 400 + year + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_in_both_directions() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400 * NANOS, "2000-02-29T00:00:00Z"),
            (
                1_795_255_200 * NANOS + 500_000_000,
                "2026-11-21T10:00:00.5Z",
            ),
            (-1, "1969-12-31T23:59:59.999999999Z"),
        ];
        for (nanos, text) in table {
            assert_eq!(Timestamp(nanos).to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(Timestamp(nanos)));
        }
        let shifted = Timestamp::parse("2026-11-21T12:30:00.5+02:30");
        assert_eq!(shifted, Timestamp::parse("2026-11-21T10:00:00.5Z"));
    }

    #[test]
    fn every_day_round_trips_and_invalid_texts_are_refused() {
        for day in (-100_000..100_000).step_by(7) {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), day);
            let moment = Timestamp(day * DAY_S * NANOS / 16 - 1);
            assert_eq!(moment.civil().timestamp(0), Some(moment));
        }
        for text in [
            "",
            "2026-11-21",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T10:00:00",
            "2026-11-21T10:00:00.Z",
            "2026-11-21T10:00:00+2:00",
            "9999-12-31T00:00:00Z",
            "2026-11-21T10:00:00Zé",
            "+026-11-21T10:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}

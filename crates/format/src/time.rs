//! Times of messages: RFC 3339, numbers since 1970, and patterns.
//!
//! Patterns have the conversions of `strftime` that name dates and times: `%Y %y %m %d %e %j %b %B %a %A %H %I
//! %p %M %S %f %z %Z %T %F %D %s %%`. `%f` is a fraction of a second of any length, with or without the
//! decimal sign before it. Numbers may have leading blanks. A blank in the pattern stands for any blanks.
//!
//! Not here: time zones by name, which need a database; leap seconds, which no timestamp has.

use chappe_stream::{CivilTime, Timestamp};

use crate::fault::{Reason, shown};
use crate::value::Raw;

const NANOS: i64 = 1_000_000_000;

/// Longest pattern; reason: people write it.
const PATTERN_BYTES_MAX: usize = 128;

/// Longest time as text.
const TEXT_BYTES_MAX: usize = 128;

/// How times are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimeFormat {
    Rfc3339,
    /// Numbers since 1970, and the nanoseconds of one.
    Number(i64),
    Pattern(Vec<Token>),
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Literal(char),
    Blank,
    Conversion(char),
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

impl TimeFormat {
    /// The format of a configuration.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "rfc3339" => Self::Rfc3339,
            "s" => Self::Number(NANOS),
            "ms" => Self::Number(1_000_000),
            "us" => Self::Number(1_000),
            "ns" => Self::Number(1),
            _ if text.contains('%') => Self::Pattern(pattern(text)?),
            _ => {
                return Err(format!(
                    "{text:?} is not rfc3339, s, ms, us, ns or a pattern with `%`"
                ));
            }
        })
    }

    /// The form, for faults.
    fn wanted(&self) -> String {
        match self {
            Self::Rfc3339 => "2026-11-21T10:00:00Z (set time_format for another)".to_owned(),
            Self::Number(NANOS) => "seconds since 1970".to_owned(),
            Self::Number(1_000_000) => "milliseconds since 1970".to_owned(),
            Self::Number(1_000) => "microseconds since 1970".to_owned(),
            Self::Number(_) => "nanoseconds since 1970".to_owned(),
            Self::Pattern(tokens) => {
                let mut text = String::new();
                for token in tokens {
                    match token {
                        Token::Literal(c) => text.push(*c),
                        Token::Blank => text.push(' '),
                        Token::Conversion(c) => text.extend(['%', *c]),
                    }
                }
                text
            }
        }
    }

    /// The time that a value writes, in a zone `zone_s` seconds east of Greenwich unless it names one.
    pub(crate) fn read(&self, raw: &Raw<'_>, zone_s: i64) -> Result<Timestamp, Reason> {
        let found = match raw {
            Raw::Integer(number) if matches!(self, Self::Number(_)) => {
                self.whole(*number).map(Timestamp)
            }
            _ => raw
                .text()
                .and_then(|text| self.read_text(text.trim(), zone_s)),
        };
        found.ok_or_else(|| Reason::Time {
            found: shown(raw.text().as_deref().unwrap_or("a list")),
            wanted: self.wanted(),
        })
    }

    fn whole(&self, number: i64) -> Option<i64> {
        match self {
            Self::Number(unit) => number.checked_mul(*unit),
            _ => None,
        }
    }

    fn read_text(&self, text: &str, zone_s: i64) -> Option<Timestamp> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        match self {
            Self::Rfc3339 => Timestamp::parse(text).or_else(|| local(text, zone_s)),
            Self::Number(unit) => decimal(text, *unit).map(Timestamp),
            Self::Pattern(tokens) => {
                let mut fields = Fields::default();
                let rest = fields.read(tokens, text)?;
                rest.trim().is_empty().then(|| fields.timestamp(zone_s))?
            }
        }
    }
}

/// RFC 3339 without an offset, as ISO 8601 writes local times.
fn local(text: &str, zone_s: i64) -> Option<Timestamp> {
    let has_time = text
        .get(10..11)
        .is_some_and(|c| matches!(c, "T" | "t" | " "));
    if !has_time || !text.is_ascii() {
        return None;
    }
    let seconds = text.matches(':').count();
    let whole = format!("{text}{}Z", if seconds == 1 { ":00" } else { "" });
    let moment = Timestamp::parse(&whole)?;
    moment.0.checked_sub(zone_s * NANOS).map(Timestamp)
}

/// A decimal number of units, in nanoseconds; exact, and further digits are ignored.
pub(crate) fn decimal(text: &str, unit: i64) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.contains(['e', 'E']) {
        // Written by a program that had a double.
        let number: f64 = digits.parse().ok()?;
        let plain = (number < 1e19).then(|| format!("{number}"))?;
        return decimal(&plain, unit).map(|number| if is_negative { -number } else { number });
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let mut nanos = whole.parse::<i64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(i64::from(digit - b'0') * place)?;
    }
    Some(if is_negative { -nanos } else { nanos })
}

/// The offset of a configuration, in seconds east of Greenwich.
pub(crate) fn zone(text: &str) -> Option<i64> {
    match text {
        "UTC" | "Z" => Some(0),
        _ => {
            let mut fields = Fields::default();
            let rest = fields.offset(text)?;
            rest.is_empty().then_some(fields.offset_s?)
        }
    }
}

fn pattern(text: &str) -> Result<Vec<Token>, String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has at most {PATTERN_BYTES_MAX} bytes"));
    }
    let mut tokens = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            tokens.push(Token::Blank);
            continue;
        }
        if c != '%' {
            tokens.push(Token::Literal(c));
            continue;
        }
        let expand = |pattern: &str| {
            pattern
                .chars()
                .map(|c| match c {
                    'A'..='Z' | 'a'..='z' => Token::Conversion(c),
                    c => Token::Literal(c),
                })
                .collect::<Vec<_>>()
        };
        match chars.next() {
            Some('%') => tokens.push(Token::Literal('%')),
            Some('T') => tokens.extend(expand("H:M:S")),
            Some('F') => tokens.extend(expand("Y-m-d")),
            Some('D') => tokens.extend(expand("m/d/y")),
            Some(c) if "YymdejbBaAHIpMSfzZs".contains(c) => tokens.push(Token::Conversion(c)),
            Some(c) => return Err(format!("there is no conversion %{c}")),
            None => return Err("the pattern ends within a conversion".to_owned()),
        }
    }
    let has = |c| tokens.contains(&Token::Conversion(c));
    let has_date = has('s')
        || (has('Y') || has('y'))
            && (has('j') || (has('m') || has('b') || has('B')) && (has('d') || has('e')));
    match has_date {
        true => Ok(tokens),
        false => Err("the pattern has no full date: %Y-%m-%d, %Y-%j or %s".to_owned()),
    }
}

/// The parts of a time that a pattern has read.
#[derive(Debug, Default)]
struct Fields {
    year: i64,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    nanosecond: i64,
    offset_s: Option<i64>,
    epoch_s: Option<i64>,
}

impl Fields {
    /// Reads a text; returns its rest.
    fn read<'t>(&mut self, tokens: &[Token], mut text: &'t str) -> Option<&'t str> {
        for token in tokens {
            text = match token {
                Token::Literal(c) => text.strip_prefix(*c)?,
                Token::Blank => text.trim_start(),
                Token::Conversion(c) => self.conversion(*c, text)?,
            };
        }
        Some(text)
    }

    fn conversion<'t>(&mut self, conversion: char, text: &'t str) -> Option<&'t str> {
        let text = match conversion {
            'f' | 'z' | 'Z' => text,
            _ => text.trim_start(),
        };
        let (number, rest) = match conversion {
            'Y' => digits(text, 4)?,
            'j' => digits(text, 3)?,
            'b' | 'B' => word(text, &MONTHS)?,
            'a' | 'A' => word(text, &DAYS)?,
            'p' => word(text, &["AM", "PM"])?,
            's' => digits(text, 18)?,
            'f' => return self.fraction(text),
            'z' => return self.offset(text),
            'Z' => {
                let rest = ["UTC", "GMT", "Z"]
                    .iter()
                    .find_map(|zone| text.strip_prefix(*zone))?;
                self.offset_s = Some(0);
                return Some(rest);
            }
            _ => digits(text, 2)?,
        };
        match conversion {
            'Y' => self.year = number,
            // The century as in POSIX.
            'y' => self.year = number + if number < 69 { 2_000 } else { 1_900 },
            'm' => self.month = Some(number),
            'b' | 'B' => self.month = Some(number + 1),
            'd' | 'e' => self.day = Some(number),
            'j' => self.day_of_year = Some(number),
            'H' => self.hour = number,
            'I' => self.hour = (1..=12).contains(&number).then_some(number % 12)?,
            'p' => self.is_afternoon = Some(number == 1),
            'M' => self.minute = number,
            'S' => self.second = number,
            's' => self.epoch_s = Some(number),
            _ => {}
        }
        Some(rest)
    }

    fn fraction<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let text = text.strip_prefix(['.', ',']).unwrap_or(text);
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        let digits = &text[..length.min(9)];
        self.nanosecond = format!("{digits:0<9}")
            .parse()
            .ok()
            .filter(|_| length > 0)?;
        Some(&text[length..])
    }

    /// `Z`, `+02`, `+0200` or `+02:00`.
    fn offset<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        if let Some(rest) = text.strip_prefix('Z') {
            self.offset_s = Some(0);
            return Some(rest);
        }
        let sign = match text.bytes().next()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let exact = |text: &str| {
            digits(text, 2)
                .filter(|(_, rest)| text.len() - rest.len() == 2)
                .map(|(number, _)| number)
        };
        let hours = exact(&text[1..]).filter(|hours| *hours <= 23)?;
        let rest = &text[3..];
        let after = rest.strip_prefix(':').unwrap_or(rest);
        let (minutes, rest) = match exact(after) {
            Some(minutes) => (minutes, &after[2..]),
            None if after.len() == rest.len() => (0, rest),
            None => return None,
        };
        self.offset_s = (minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60));
        self.offset_s.map(|_| rest)
    }

    fn timestamp(&self, zone_s: i64) -> Option<Timestamp> {
        if let Some(seconds) = self.epoch_s {
            let nanos = seconds.checked_mul(NANOS)?;
            return nanos.checked_add(self.nanosecond).map(Timestamp);
        }
        let hour = match self.is_afternoon {
            Some(is_afternoon) => self.hour % 12 + if is_afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let civil = CivilTime {
            year: self.year,
            month: self.month.unwrap_or(1),
            day: self.day.unwrap_or(1),
            hour,
            minute: self.minute,
            second: self.second,
            nanosecond: self.nanosecond,
        };
        let offset_s = self.offset_s.unwrap_or(zone_s);
        let first = civil.timestamp(offset_s)?;
        let Some(day_of_year) = self.day_of_year else {
            return Some(first);
        };
        let nanos = first.0.checked_add((day_of_year - 1) * 86_400 * NANOS)?;
        let local = Timestamp(nanos.checked_add(offset_s * NANOS)?).civil();
        (day_of_year > 0 && local.year == self.year).then_some(Timestamp(nanos))
    }
}

/// The number of up to `most` digits at the beginning.
fn digits(text: &str, most: usize) -> Option<(i64, &str)> {
    let length = text
        .bytes()
        .take(most)
        .take_while(u8::is_ascii_digit)
        .count();
    Some((text[..length].parse().ok()?, &text[length..]))
}

/// The index of the word, or of its first three letters, at the beginning.
fn word<'t>(text: &'t str, words: &[&str]) -> Option<(i64, &'t str)> {
    let begins = |word: &str| {
        let start = text.get(..word.len())?;
        start
            .eq_ignore_ascii_case(word)
            .then(|| &text[word.len()..])
    };
    words.iter().zip(0..).find_map(|(word, index)| {
        let rest = begins(word).or_else(|| begins(&word[..word.len().min(3)]))?;
        Some((index, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::borrow::Cow;

    fn read(format: &str, text: &str) -> Option<String> {
        let format = TimeFormat::parse(format).unwrap();
        let time = format.read(&Raw::Text(Cow::Borrowed(text)), 3_600).ok()?;
        Some(time.to_string())
    }

    #[test]
    fn known_times() {
        let table = [
            (
                "rfc3339",
                "2026-11-21T10:00:00+02:00",
                "2026-11-21T08:00:00Z",
            ),
            (
                "rfc3339",
                "2026-11-21 10:00:00.25",
                "2026-11-21T09:00:00.25Z",
            ),
            ("rfc3339", "2026-11-21T10:00", "2026-11-21T09:00:00Z"),
            ("s", "1795255200", "2026-11-21T10:00:00Z"),
            (
                "s",
                "1795255200.000000001",
                "2026-11-21T10:00:00.000000001Z",
            ),
            ("s", "1.7952552e9", "2026-11-21T10:00:00Z"),
            ("ms", "1795255200500", "2026-11-21T10:00:00.5Z"),
            ("us", "-1", "1969-12-31T23:59:59.999999Z"),
            ("ns", "1", "1970-01-01T00:00:00.000000001Z"),
            (
                "%d.%m.%Y %H:%M:%S",
                "21.11.2026 10:00:00",
                "2026-11-21T09:00:00Z",
            ),
            (
                "%m/%d/%y %I:%M %p",
                "11/21/26 12:05 am",
                "2026-11-20T23:05:00Z",
            ),
            (
                "%a, %d %b %Y %T %Z",
                "Sat, 21 Nov 2026 10:00:00 GMT",
                "2026-11-21T10:00:00Z",
            ),
            ("%e %B %Y", " 1 december 2026", "2026-11-30T23:00:00Z"),
            (
                "%Y-%jT%H:%M:%S%f%z",
                "2026-325T10:00:00.5-0130",
                "2026-11-21T11:30:00.5Z",
            ),
            ("%Y%m%d%H%M%S", "20261121100000", "2026-11-21T09:00:00Z"),
            ("%s%f", "1795255200.5", "2026-11-21T10:00:00.5Z"),
        ];
        for (format, text, wanted) in table {
            assert_eq!(
                read(format, text).as_deref(),
                Some(wanted),
                "{format} {text}"
            );
        }
    }

    #[test]
    fn wrong_times_are_refused() {
        let table = [
            ("rfc3339", "1795255200"),
            ("rfc3339", "2026-11-21"),
            ("s", "1e400"),
            ("s", "99999999999999999999"),
            ("s", "."),
            ("ms", "12x"),
            ("%Y-%m-%d", "2026-02-30"),
            ("%Y-%m-%d", "2026-02-03 10"),
            ("%Y-%j", "2026-366"),
            ("%Y-%j", "2026-0"),
            ("%Y-%m-%d %I %p", "2026-02-03 13 PM"),
            ("%F %z", "2026-02-03 +2"),
        ];
        for (format, text) in table {
            assert_eq!(read(format, text), None, "{format} {text}");
        }
        for pattern in ["%Y", "%m-%d", "%Y-%m-%q", "%Y-%m-%d %", "iso"] {
            assert!(TimeFormat::parse(pattern).is_err(), "{pattern}");
        }
        assert_eq!(zone("+02:00"), Some(7_200));
        assert_eq!(zone("-0330"), Some(-12_600));
        assert_eq!(zone("Europe/Paris"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}", index in 0..5_usize) {
            let formats = ["rfc3339", "s", "%d %b %Y %I:%M:%S%f %p %z", "%s", "%A %D%Z"];
            let _ = read(formats[index], &text);
            let _ = zone(&text);
        }

        #[test]
        fn nanoseconds_survive_as_seconds(nanos in 0..i64::MAX) {
            let text = format!("{}.{:09}", nanos / NANOS, nanos % NANOS);
            prop_assert_eq!(decimal(&text, NANOS), Some(nanos));
        }
    }
}

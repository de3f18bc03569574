//! Functions of H2 and MySQL that statements written for GSN call: `datediff`, `timestampdiff`,
//! `unix_timestamp`, `locate`, `mod`; and `nmea`, for GPS receivers.
//!
//! A time is a number of milliseconds since 1970, as GSN's `timed`, or a text: `2026-11-21`,
//! `2026-11-21 10:00:00` (UTC), or RFC 3339. As in H2, `datediff` and `timestampdiff` count the boundaries
//! of the unit that lie between two times.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, Result};

use super::functions::{number, text};
use crate::Timestamp;

const DAY_MS: i64 = 86_400_000;

/// Registers them.
pub(super) fn register(connection: &Connection, flags: FunctionFlags) -> Result<()> {
    for name in ["datediff", "timestampdiff"] {
        connection.create_scalar_function(name, 3, flags, |context| {
            let Some(unit) = text(context, 0) else {
                return Ok(None);
            };
            let times = time_ms(context, 1).zip(time_ms(context, 2));
            times
                .map(|(from, to)| boundaries(&unit, from, to))
                .transpose()
        })?;
    }
    // MySQL's: the days from the second to the first.
    connection.create_scalar_function("datediff", 2, flags, |context| {
        let times = time_ms(context, 0).zip(time_ms(context, 1));
        times
            .map(|(to, from)| boundaries("day", from, to))
            .transpose()
    })?;
    connection.create_scalar_function("unix_timestamp", 1, flags, |context| {
        Ok(time_ms(context, 0).map(|ms| ms.div_euclid(1_000)))
    })?;
    for arguments in [2, 3] {
        connection.create_scalar_function("locate", arguments, flags, locate)?;
    }
    connection.create_scalar_function("mod", 2, flags, remainder)?;
    connection.create_scalar_function("nmea", 2, flags, |context| {
        let arguments = text(context, 0).zip(text(context, 1));
        match arguments {
            Some((sentence, what)) => nmea(&sentence, &what),
            None => Ok(None),
        }
    })
}

/// The argument as milliseconds since 1970.
fn time_ms(context: &Context<'_>, index: usize) -> Option<i64> {
    match context.get_raw(index) {
        ValueRef::Integer(ms) => Some(ms),
        ValueRef::Real(ms) => Some(ms as i64),
        ValueRef::Text(bytes) => {
            let text = std::str::from_utf8(bytes).ok()?.trim();
            let complete = match text.len() {
                10 => format!("{text}T00:00:00Z"),
                _ => text.to_owned(),
            };
            let time = Timestamp::parse(&complete);
            let time = time.or_else(|| Timestamp::parse(&format!("{complete}Z")))?;
            Some(time.0.div_euclid(1_000_000))
        }
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

fn boundaries(unit: &str, from: i64, to: i64) -> Result<i64> {
    let name = unit.to_ascii_lowercase();
    let name = name.strip_prefix("sql_tsi_").unwrap_or(&name);
    let length = match name
        .strip_suffix('s')
        .filter(|it| it.len() > 1)
        .unwrap_or(name)
    {
        "millisecond" | "m" => 1,
        "second" | "s" => 1_000,
        "minute" | "mi" | "n" => 60_000,
        "hour" | "hh" => 3_600_000,
        "day" | "dd" | "d" => DAY_MS,
        "month" => return Ok(months(to) - months(from)),
        "year" | "yy" | "yyyy" => {
            return Ok(months(to).div_euclid(12) - months(from).div_euclid(12));
        }
        _ => {
            let reason = format!(
                "{unit:?} is not a unit of time: millisecond, second, minute, hour, day, month, year"
            );
            return Err(Error::UserFunctionError(reason.into()));
        }
    };
    Ok(to.div_euclid(length) - from.div_euclid(length))
}

/// Months since year 0.
fn months(ms: i64) -> i64 {
    let date = Timestamp(ms.saturating_mul(1_000_000)).to_string();
    let mut parts = date.splitn(3, '-').map(|part| part.parse().unwrap_or(0));
    let (year, month): (i64, i64) = (parts.next().unwrap_or(0), parts.next().unwrap_or(1));
    year * 12 + month - 1
}

fn locate(context: &Context<'_>) -> Result<Option<i64>> {
    let Some((needle, hay)) = text(context, 0).zip(text(context, 1)) else {
        return Ok(None);
    };
    let start = match context.len() {
        3 => number(context, 2).map_or(1, |start| start as usize),
        _ => 1,
    };
    let mut places = hay.char_indices().map(|(at, _)| at);
    let from = places.nth(start.saturating_sub(1));
    let found = from.and_then(|from| Some((from, hay[from..].find(&needle)?)));
    let count = found.map_or(0, |(from, at)| hay[..from + at].chars().count() + 1);
    Ok(Some(i64::try_from(count).unwrap_or(0)))
}

fn remainder(context: &Context<'_>) -> Result<ToSqlOutput<'static>> {
    let value = match (context.get_raw(0), context.get_raw(1)) {
        (ValueRef::Integer(value), ValueRef::Integer(by)) => value
            .checked_rem(by)
            .or((by == -1).then_some(0))
            .map_or(Value::Null, Value::Integer),
        _ => match number(context, 0).zip(number(context, 1)) {
            Some((value, by)) if by != 0.0 => Value::Real(value % by),
            _ => Value::Null,
        },
    };
    Ok(ToSqlOutput::Owned(value))
}

/// A value of a sentence of a GPS receiver (NMEA 0183: GGA, RMC or GLL); null if the sentence has none,
/// its checksum is wrong, or it reports no fix.
fn nmea(sentence: &str, what: &str) -> Result<Option<f64>> {
    let known = [
        "latitude",
        "longitude",
        "altitude",
        "satellites",
        "hdop",
        "speed",
        "course",
    ];
    if !known.contains(&what) {
        let reason = format!("{what:?} is not one of {}", known.join(", "));
        return Err(Error::UserFunctionError(reason.into()));
    }
    let sentence = sentence.trim().trim_start_matches('$');
    let body = match sentence.split_once('*') {
        Some((body, checksum)) => {
            let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
            let checksum = u8::from_str_radix(checksum.trim(), 16).ok();
            if checksum != Some(sum) {
                return Ok(None);
            }
            body
        }
        None => sentence,
    };
    let parts: Vec<&str> = body.split(',').collect();
    let part = |index: usize| parts.get(index).copied().unwrap_or_default();
    let kind = part(0);
    let kind = kind.get(kind.len().saturating_sub(3)..).unwrap_or_default();
    // Where latitude begins, and whether there is a fix.
    let (position, has_fix) = match kind {
        "GGA" => (2, !matches!(part(6), "" | "0")),
        "RMC" => (3, part(2) == "A"),
        "GLL" => (1, matches!(part(6), "A" | "")),
        _ => return Ok(None),
    };
    if !has_fix {
        return Ok(None);
    }
    let number = |index: usize| part(index).parse::<f64>().ok().filter(|it| it.is_finite());
    Ok(match (what, kind) {
        ("latitude", _) => degrees(part(position), part(position + 1)),
        ("longitude", _) => degrees(part(position + 2), part(position + 3)),
        ("altitude", "GGA") => number(9),
        ("satellites", "GGA") => number(7),
        ("hdop", "GGA") => number(8),
        // Knots, which NMEA gives, in metres a second.
        ("speed", "RMC") => number(7).map(|knots| knots * 1_852.0 / 3_600.0),
        ("course", "RMC") => number(8),
        _ => None,
    })
}

/// Degrees of `dddmm.mmmm` and a hemisphere.
fn degrees(text: &str, hemisphere: &str) -> Option<f64> {
    let point = text.find('.').unwrap_or(text.len());
    let (whole, minutes) = text.split_at_checked(point.checked_sub(2)?)?;
    let minutes: f64 = minutes.parse().ok().filter(|it| (0.0..60.0).contains(it))?;
    let degrees = whole.parse::<u16>().ok().filter(|it| *it <= 180)?;
    let degrees = f64::from(degrees) + minutes / 60.0;
    match hemisphere {
        "N" | "E" => Some(degrees),
        "S" | "W" => Some(-degrees),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_counted_as_h2_does() {
        let time = |text: &str| Timestamp::parse(text).unwrap().0 / 1_000_000;
        let (from, to) = (
            time("2025-12-31T23:59:59.9Z"),
            time("2026-01-01T00:00:00.1Z"),
        );
        for (unit, count) in [
            ("MILLISECOND", 200),
            ("SECOND", 1),
            ("minutes", 1),
            ("SQL_TSI_HOUR", 1),
            ("day", 1),
            ("month", 1),
            ("YEAR", 1),
        ] {
            assert_eq!(boundaries(unit, from, to).unwrap(), count, "{unit}");
            assert_eq!(boundaries(unit, to, from).unwrap(), -count, "{unit}");
        }
        assert!(boundaries("fortnight", 0, 1).is_err());
    }

    #[test]
    fn positions_of_sentences() {
        let gga = "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47";
        let value = |sentence: &str, what: &str| nmea(sentence, what).unwrap();
        let latitude = value(gga, "latitude").unwrap();
        assert!((latitude - 48.1173).abs() < 1e-9, "{latitude}");
        assert_eq!(value(gga, "altitude"), Some(545.4));
        assert_eq!(value(gga, "satellites"), Some(8.0));
        assert_eq!(value(gga, "speed"), None);
        assert_eq!(value(&gga.replace("*47", "*48"), "latitude"), None);
        let rmc = "$GPRMC,123519,A,4807.038,S,01131.000,W,022.4,084.4,230394,003.1,W";
        assert!(value(rmc, "longitude").unwrap() < -11.5);
        assert!((value(rmc, "speed").unwrap() - 11.523_555).abs() < 1e-5);
        assert_eq!(value(&rmc.replace(",A,", ",V,"), "latitude"), None);
        for broken in [
            "",
            "$",
            "$GPGGA",
            "$GPGGA,,é,N,1,E,1",
            "x,1,2,3,4,5,6",
            "$GPGGA,1,.,N",
        ] {
            assert_eq!(value(broken, "latitude"), None, "{broken}");
        }
        assert!(nmea(gga, "colour").is_err());
    }
}

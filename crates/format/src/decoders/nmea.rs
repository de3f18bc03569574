//! NMEA 0183 sentences: `$GPRMC,100000,A,4807.038,N,01131.000,E,022.4,084.4,211126,,*1E`.
//!
//! A path is the number of a field, from 1, or a name: the fields of GGA, RMC, VTG, GLL, ZDA, HDT, MTW, MWV and
//! DBT have names, and `lat` and `lon` are degrees with their sign. Placeholders are `talker` (`GP`) and
//! `sentence` (`RMC`). The time is that of RMC and ZDA; that of GGA and GLL is of the day that makes it
//! nearest to the receipt. RMC and GLL without a fix are of quality bad.
//!
//! Sources: NMEA 0183 as published by its users (gpsd, "NMEA Revealed"); the standard is not public. Not
//! here: AIS payloads, which are bits of another standard; sentences of several parts.

use std::borrow::Cow;

use chappe_stream::{CivilTime, Quality, Timestamp};

use super::{Names, lines};
use crate::config::NmeaConfig;
use crate::decoder::{Record, Sink};
use crate::fault::{Fault, Location, Reason, shown};
use crate::value::Raw;

/// Longest sentence. The standard has 82; receivers write longer ones.
const SENTENCE_BYTES_MAX: usize = 1_024;

const DAY_NS: i64 = 86_400_000_000_000;

/// How a field writes its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Plain,
    /// Degrees and minutes, `ddmm.mmm`, whose sign the next field has.
    Angle,
}

/// Named fields: sentence, name, number, form, and the unit as UCUM code.
const FIELDS: [(&str, &str, usize, Form, &str); 47] = [
    ("GGA", "lat", 2, Form::Angle, "deg"),
    ("GGA", "lon", 4, Form::Angle, "deg"),
    ("GGA", "fix", 6, Form::Plain, ""),
    ("GGA", "satellites", 7, Form::Plain, ""),
    ("GGA", "hdop", 8, Form::Plain, ""),
    ("GGA", "altitude", 9, Form::Plain, "m"),
    ("GGA", "geoid_height", 11, Form::Plain, "m"),
    ("GGA", "station", 14, Form::Plain, ""),
    ("RMC", "status", 2, Form::Plain, ""),
    ("RMC", "lat", 3, Form::Angle, "deg"),
    ("RMC", "lon", 5, Form::Angle, "deg"),
    ("RMC", "speed", 7, Form::Plain, "[kn_i]"),
    ("RMC", "course", 8, Form::Plain, "deg"),
    ("RMC", "date", 9, Form::Plain, ""),
    ("RMC", "mode", 12, Form::Plain, ""),
    ("VTG", "course", 1, Form::Plain, "deg"),
    ("VTG", "course_magnetic", 3, Form::Plain, "deg"),
    ("VTG", "speed", 5, Form::Plain, "[kn_i]"),
    ("VTG", "speed_kmh", 7, Form::Plain, "km/h"),
    ("VTG", "mode", 9, Form::Plain, ""),
    ("GLL", "lat", 1, Form::Angle, "deg"),
    ("GLL", "lon", 3, Form::Angle, "deg"),
    ("GLL", "status", 6, Form::Plain, ""),
    ("HDT", "heading", 1, Form::Plain, "deg"),
    ("HDM", "heading", 1, Form::Plain, "deg"),
    ("HDG", "heading", 1, Form::Plain, "deg"),
    ("HDG", "deviation", 2, Form::Plain, "deg"),
    ("HDG", "variation", 4, Form::Plain, "deg"),
    ("ROT", "rate", 1, Form::Plain, "deg/min"),
    ("MTW", "temperature", 1, Form::Plain, "Cel"),
    ("MTA", "temperature", 1, Form::Plain, "Cel"),
    ("MWV", "angle", 1, Form::Plain, "deg"),
    ("MWV", "reference", 2, Form::Plain, ""),
    ("MWV", "speed", 3, Form::Plain, ""),
    ("MWV", "speed_unit", 4, Form::Plain, ""),
    ("MWV", "status", 5, Form::Plain, ""),
    ("DBT", "depth", 3, Form::Plain, "m"),
    ("DPT", "depth", 1, Form::Plain, "m"),
    ("DPT", "offset", 2, Form::Plain, "m"),
    ("VHW", "heading", 1, Form::Plain, "deg"),
    ("VHW", "speed", 5, Form::Plain, "[kn_i]"),
    ("GSA", "mode", 1, Form::Plain, ""),
    ("GSA", "fix", 2, Form::Plain, ""),
    ("GSA", "pdop", 15, Form::Plain, ""),
    ("GSA", "hdop", 16, Form::Plain, ""),
    ("GSA", "vdop", 17, Form::Plain, ""),
    ("GSV", "satellites", 3, Form::Plain, ""),
];

#[derive(Debug)]
pub(crate) struct NmeaFormat {
    is_checksum_optional: bool,
    slots: Names,
}

impl NmeaFormat {
    pub(crate) fn new(config: &NmeaConfig) -> Self {
        Self {
            is_checksum_optional: config.checksum_optional,
            slots: Names::default(),
        }
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        let is_number = path.parse::<u8>().is_ok_and(|number| number > 0);
        let is_own = ["talker", "sentence"].contains(&path);
        if !is_number && !is_own && !FIELDS.iter().any(|(_, name, ..)| *name == path) {
            return Err(format!(
                "{path:?} is neither the number of a field nor one of the names in docs/reference/formats.md"
            ));
        }
        self.slots.slot(path)
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        for line in lines(text) {
            let location = Location {
                record: sink.next_record(),
                line: line.number,
                byte: line.byte,
            };
            match self.sentence(line.bytes) {
                Ok(sentence) => {
                    if sink.record(location, &sentence).is_err() {
                        break;
                    }
                }
                Err(reason) => sink.fault(location, reason),
            }
        }
        Ok(())
    }

    fn sentence<'t>(&'t self, line: &'t [u8]) -> Result<Sentence<'t>, Reason> {
        let text = std::str::from_utf8(line)
            .map_err(|_| Reason::Encoding)?
            .trim();
        if text.len() > SENTENCE_BYTES_MAX {
            return Err(crate::decoder::limit(
                "sentence_bytes",
                SENTENCE_BYTES_MAX as u64,
            ));
        }
        // A tag block of NMEA 4 stands before the sentence.
        let text = match text
            .strip_prefix('\\')
            .and_then(|tags| tags.split_once('\\'))
        {
            Some((_, text)) => text,
            None => text,
        };
        let Some(body) = text.strip_prefix(['$', '!']) else {
            let text = format!("{:?} does not start with $ or !", shown(text));
            return Err(Reason::Syntax(text));
        };
        let (body, checksum) = match body.rsplit_once('*') {
            Some((body, checksum)) => (body, Some(checksum)),
            None => (body, None),
        };
        let computed = body.bytes().fold(0, |sum, byte| sum ^ byte);
        match checksum {
            None if self.is_checksum_optional => {}
            None => return Err(Reason::Checksum("the checksum is missing".to_owned())),
            Some(text) => {
                let is_pair = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let given = u8::from_str_radix(text, 16).ok().filter(|_| is_pair);
                if given != Some(computed) {
                    let text = shown(text);
                    let reason = format!("the checksum is {text:?}, of the text {computed:02X}");
                    return Err(Reason::Checksum(reason));
                }
            }
        }
        let mut fields = body.split(',');
        let address = fields.next().unwrap_or_default();
        let (talker, sentence) = match address.strip_prefix('P') {
            Some(rest) => ("P", rest),
            None => match address.get(address.len().saturating_sub(3)..) {
                Some(sentence) => (&address[..address.len() - sentence.len()], sentence),
                None => ("", address),
            },
        };
        if sentence.is_empty() {
            return Err(Reason::syntax("the sentence has no name"));
        }
        Ok(Sentence {
            format: self,
            talker,
            sentence,
            fields: fields.collect(),
        })
    }
}

struct Sentence<'r> {
    format: &'r NmeaFormat,
    talker: &'r str,
    sentence: &'r str,
    fields: Vec<&'r str>,
}

impl Sentence<'_> {
    /// The field of a number; an empty one is none.
    fn field(&self, number: usize) -> Option<&str> {
        let field = self.fields.get(number.checked_sub(1)?)?;
        Some(*field).filter(|field| !field.is_empty())
    }

    fn named_field(&self, name: &str) -> Option<(usize, Form, &'static str)> {
        let mut fields = FIELDS.iter();
        let found =
            fields.find(|(sentence, other, ..)| *sentence == self.sentence && *other == name);
        found.map(|(_, _, number, form, unit)| (*number, *form, *unit))
    }

    fn read(&self, name: &str) -> Result<Raw<'_>, Reason> {
        let plain = |text: Option<&'_ str>| text.map(|text| Cow::Owned(text.to_owned()));
        let (number, form) = match (name, name.parse()) {
            ("talker", _) => return Ok(Raw::Text(Cow::Borrowed(self.talker))),
            ("sentence", _) => return Ok(Raw::Text(Cow::Borrowed(self.sentence))),
            (_, Ok(number)) => (number, Form::Plain),
            _ => match self.named_field(name) {
                Some((number, form, _)) => (number, form),
                None => return Ok(Raw::Missing),
            },
        };
        match form {
            Form::Plain => Ok(plain(self.field(number)).map_or(Raw::Missing, Raw::Text)),
            Form::Angle => match (self.field(number), self.field(number + 1)) {
                (None, None) => Ok(Raw::Missing),
                (angle, side) => {
                    let found = angle
                        .zip(side)
                        .and_then(|(angle, side)| degrees(angle, side));
                    found.map(Raw::Double).ok_or_else(|| {
                        let text = format!("{} {}", angle.unwrap_or(""), side.unwrap_or(""));
                        Reason::Syntax(format!("{:?} is not an angle", shown(&text)))
                    })
                }
            },
        }
    }

    fn time_of_day(&self, number: usize) -> Result<Option<[i64; 4]>, Reason> {
        let Some(text) = self.field(number) else {
            return Ok(None);
        };
        let parsed = || {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let [hour, minute, second] = pairs(whole)?;
            let is_fraction = fraction.bytes().all(|byte| byte.is_ascii_digit());
            let digits = fraction
                .get(..fraction.len().min(9))
                .filter(|_| is_fraction)?;
            let nanosecond = format!("{digits:0<9}").parse().ok()?;
            Some([hour, minute, second, nanosecond])
        };
        parsed()
            .map(Some)
            .ok_or_else(|| time_reason(text, "hhmmss.ss"))
    }
}

fn time_reason(found: &str, wanted: &str) -> Reason {
    Reason::Time {
        found: shown(found),
        wanted: wanted.to_owned(),
    }
}

/// Three numbers of two digits.
fn pairs(text: &str) -> Option<[i64; 3]> {
    if text.len() != 6 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let pair = |at: usize| text[at..at + 2].parse().ok();
    Some([pair(0)?, pair(2)?, pair(4)?])
}

/// Degrees of `dddmm.mmm` and a side.
fn degrees(angle: &str, side: &str) -> Option<f64> {
    let point = angle.find('.').unwrap_or(angle.len());
    let split = point.checked_sub(2)?;
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !angle.is_ascii() || !is_digits(&angle[..point]) || split > 3 {
        return None;
    }
    let whole: f64 = if split == 0 {
        0.0
    } else {
        angle[..split].parse().ok()?
    };
    let minutes: f64 = angle[split..].parse().ok()?;
    let (sign, most) = match side {
        "N" => (1.0, 90.0),
        "S" => (-1.0, 90.0),
        "E" => (1.0, 180.0),
        "W" => (-1.0, 180.0),
        _ => return None,
    };
    let degrees = whole + minutes / 60.0;
    (minutes < 60.0 && degrees <= most).then_some(sign * degrees)
}

fn moment(date: [i64; 3], time: [i64; 4]) -> Option<Timestamp> {
    let [day, month, year] = date;
    let [hour, minute, second, nanosecond] = time;
    let civil = CivilTime {
        year,
        month,
        day,
        hour,
        minute,
        second,
        nanosecond,
    };
    civil.timestamp(0)
}

impl Record for Sentence<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        self.read(&self.format.slots.0[slot])
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        let raw = self.read(name).ok()?;
        raw.text().map(|text| Cow::Owned(text.into_owned()))
    }

    fn time(&self, received: Timestamp) -> Result<Option<Timestamp>, Reason> {
        let number = match self.sentence {
            "RMC" | "GGA" | "ZDA" => 1,
            "GLL" => 5,
            _ => return Ok(None),
        };
        let Some(time) = self.time_of_day(number)? else {
            return Ok(None);
        };
        let whole = |number| self.field(number).and_then(|text: &str| text.parse().ok());
        let date = match self.sentence {
            "RMC" => match self.field(9) {
                None => return Ok(None),
                Some(text) => {
                    let date = pairs(text).ok_or_else(|| time_reason(text, "ddmmyy"))?;
                    // GPS began in 1980.
                    let century = if date[2] < 80 { 2_000 } else { 1_900 };
                    Some([date[0], date[1], century + date[2]])
                }
            },
            "ZDA" => match (whole(2), whole(3), whole(4)) {
                (Some(day), Some(month), Some(year)) => Some([day, month, year]),
                _ => return Ok(None),
            },
            _ => None,
        };
        let wrong = || time_reason(&self.fields.join(","), "a date and a time of day");
        if let Some(date) = date {
            return moment(date, time).map(Some).ok_or_else(wrong);
        }
        let today = received.civil();
        let today = moment([today.day, today.month, today.year], time).ok_or_else(wrong)?;
        let days = [-DAY_NS, 0, DAY_NS].map(|days| today.0.saturating_add(days));
        let nearest = days
            .into_iter()
            .min_by_key(|time| time.abs_diff(received.0));
        Ok(nearest.map(Timestamp))
    }

    fn unit(&self, slot: usize) -> Option<Cow<'_, str>> {
        let name = &self.format.slots.0[slot];
        if (self.sentence, name.as_str()) == ("MWV", "speed") {
            let code = match self.field(4)? {
                "K" => "km/h",
                "M" => "m/s",
                "N" => "[kn_i]",
                _ => return None,
            };
            return Some(Cow::Borrowed(code));
        }
        let (_, _, unit) = self.named_field(name)?;
        (!unit.is_empty()).then_some(Cow::Borrowed(unit))
    }

    fn quality(&self) -> Quality {
        let status = match self.sentence {
            "RMC" => self.field(2),
            "GLL" => self.field(6),
            "MWV" => self.field(5),
            "GGA" => {
                return match self.field(6) {
                    Some("0") => Quality::Bad,
                    _ => Quality::Good,
                };
            }
            _ => None,
        };
        match status {
            Some("V") => Quality::Bad,
            _ => Quality::Good,
        }
    }
}

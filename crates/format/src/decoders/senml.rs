//! Sensor Measurement Lists (RFC 8428) in their JSON form, with base values resolved.
//!
//! With `each = "record"` a path is one of the labels `n`, `u`, `t`, `ut`, `v`, `vs`, `vb`, `vd`, `s`, or `value`
//! for whichever of `v`, `vs`, `vb`, `vd` is there. With `each = "time"` successive records of one base name
//! and one time are one, and a path is the part of a name after the base name. Placeholders are `name`,
//! `base_name` and `unit`. Units become UCUM codes, and values convert into the unit of their field.
//!
//! Not here: the forms CBOR, XML and EXI; links and other extensions, except that a label with `_` at its
//! end, which a reader must understand, refuses its record (RFC 8428, 4.4).

use std::borrow::Cow;

use chappe_stream::Timestamp;
use serde_json::{Map, Value as Json};

use super::{Names, json};
use crate::config::{SenmlConfig, SenmlEach};
use crate::decoder::{Record, Sink, whole};
use crate::fault::{Fault, Location, Reason, shown};
use crate::time::decimal;
use crate::value::Raw;

/// The placeholders of the format.
pub(crate) const NAMES: [&str; 3] = ["name", "base_name", "unit"];

/// The version of RFC 8428.
const VERSION: u64 = 10;

/// Times below this number of seconds are relative to now (RFC 8428, 4.5.3).
const RELATIVE_BELOW: i64 = 1 << 28;

const NANOS: i64 = 1_000_000_000;

/// Longest resolved name.
const NAME_BYTES_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct SenmlFormat {
    each: SenmlEach,
    slots: Names,
}

/// The base values, which hold until others replace them.
#[derive(Default)]
struct Base<'d> {
    name: &'d str,
    time_ns: i64,
    unit: Option<&'d str>,
    value: Option<f64>,
    sum: Option<f64>,
    /// Integers stay exact as long as nothing is added to them.
    is_set: bool,
}

/// A record with its base values applied.
struct Resolved<'d> {
    number: u64,
    members: &'d Map<String, Json>,
    base_name: &'d str,
    name: String,
    unit: Option<&'d str>,
    /// `None` if neither the record nor its base has a time.
    time_ns: Option<i64>,
    /// The value and the sum with their bases.
    value: Raw<'d>,
    sum: Raw<'d>,
}

impl SenmlFormat {
    pub(crate) fn new(config: &SenmlConfig) -> Self {
        Self {
            each: config.each,
            slots: Names::default(),
        }
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        const LABELS: [&str; 10] = ["n", "u", "t", "ut", "v", "vs", "vb", "vd", "s", "value"];
        if self.each == SenmlEach::Record && !LABELS.contains(&path) {
            return Err(format!("{path:?} is not one of {}", LABELS.join(", ")));
        }
        self.slots.slot(path)
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        let root = json::parse(text).map_err(|(location, reason)| whole(location, reason))?;
        let Json::Array(items) = &root else {
            let reason = Reason::syntax("a SenML pack is an array of records");
            return Err(whole(Location::default(), reason));
        };
        let mut base = Base::default();
        let mut group: Vec<Resolved<'_>> = Vec::new();
        for item in items {
            let number = sink.next_record();
            let location = Location {
                record: number,
                ..Location::default()
            };
            let resolved = match resolve(item, number, &mut base) {
                Ok(Some(resolved)) => resolved,
                Ok(None) => continue,
                Err(reason) => {
                    sink.fault(location, reason);
                    continue;
                }
            };
            if self.each == SenmlEach::Record {
                let records = [resolved];
                if sink
                    .record(
                        location,
                        &Pack {
                            format: self,
                            records: &records,
                        },
                    )
                    .is_err()
                {
                    return Ok(());
                }
                continue;
            }
            let is_same = group.last().is_none_or(|last| {
                last.base_name == resolved.base_name && last.time_ns == resolved.time_ns
            });
            if !is_same {
                if self.group(&group, sink) {
                    return Ok(());
                }
                group.clear();
            }
            group.push(resolved);
        }
        if !group.is_empty() {
            self.group(&group, sink);
        }
        Ok(())
    }

    /// Whether no more are wanted.
    fn group(&self, records: &[Resolved<'_>], sink: &mut Sink<'_>) -> bool {
        let location = Location {
            record: records.first().map_or(0, |first| first.number),
            ..Location::default()
        };
        sink.record(
            location,
            &Pack {
                format: self,
                records,
            },
        )
        .is_err()
    }
}

/// Applies and updates the base values; `None` for a record without value and sum.
fn resolve<'d>(
    item: &'d Json,
    number: u64,
    base: &mut Base<'d>,
) -> Result<Option<Resolved<'d>>, Reason> {
    let Json::Object(members) = item else {
        return Err(Reason::syntax("a SenML record is an object"));
    };
    if let Some(label) = members.keys().find(|label| label.ends_with('_')) {
        let text = format!(
            "the label {:?} must be understood, and is not",
            shown(label)
        );
        return Err(Reason::Syntax(text));
    }
    let text = |label: &str| match members.get(label) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Reason::Syntax(format!("{label} is not a text"))),
    };
    let number_of = |label: &str| match members.get(label) {
        None => Ok(None),
        Some(Json::Number(number)) => Ok(Some(number)),
        Some(_) => Err(Reason::Syntax(format!("{label} is not a number"))),
    };
    let seconds = |label: &str| match number_of(label)? {
        None => Ok(None),
        Some(number) => {
            let nanoseconds = decimal(&number.to_string(), NANOS);
            nanoseconds.map(Some).ok_or_else(|| Reason::Time {
                found: shown(&number.to_string()),
                wanted: "seconds".to_owned(),
            })
        }
    };
    if let Some(version) = number_of("bver")?
        && version.as_u64().is_none_or(|version| version > VERSION)
    {
        return Err(Reason::Syntax(format!("bver {version} is above {VERSION}")));
    }
    if let Some(name) = text("bn")? {
        base.name = name;
    }
    if let Some(time_ns) = seconds("bt")? {
        (base.time_ns, base.is_set) = (time_ns, true);
    }
    if let Some(unit) = text("bu")? {
        base.unit = Some(unit);
    }
    if let Some(value) = number_of("bv")? {
        base.value = value.as_f64();
    }
    if let Some(sum) = number_of("bs")? {
        base.sum = sum.as_f64();
    }
    let name = [base.name, text("n")?.unwrap_or_default()].concat();
    if name.len() > NAME_BYTES_MAX {
        return Err(crate::decoder::limit("name_bytes", NAME_BYTES_MAX as u64));
    }
    let value_labels = ["v", "vs", "vb", "vd"];
    let present = value_labels
        .iter()
        .filter(|label| members.contains_key(**label));
    let count = present.count();
    let sum = added(number_of("s")?, base.sum);
    // A base value is the value of records that have none (RFC 8428, 4.1).
    let value = match count {
        0 if base.value.is_none() => Raw::Missing,
        0 | 1 => match value_labels[1..]
            .iter()
            .find_map(|label| members.get(*label))
        {
            Some(value) => Raw::from(value),
            None => added(number_of("v")?, base.value),
        },
        _ => return Err(Reason::syntax("a record has one of v, vs, vb and vd")),
    };
    if value == Raw::Missing && sum == Raw::Missing {
        return Ok(None);
    }
    if name.is_empty() {
        return Err(Reason::syntax("the record has no name"));
    }
    let time_ns = match seconds("t")? {
        Some(time_ns) => Some(
            base.time_ns
                .checked_add(time_ns)
                .ok_or_else(|| Reason::Time {
                    found: "the sum of bt and t".to_owned(),
                    wanted: "seconds".to_owned(),
                })?,
        ),
        None => base.is_set.then_some(base.time_ns),
    };
    Ok(Some(Resolved {
        number,
        members,
        base_name: base.name,
        name,
        unit: text("u")?.or(base.unit),
        time_ns,
        value,
        sum,
    }))
}

/// A number with its base value. Integers stay exact without one.
fn added<'d>(number: Option<&'d serde_json::Number>, base: Option<f64>) -> Raw<'d> {
    match (number, base) {
        (None, None) => Raw::Missing,
        (None, Some(base)) => Raw::Double(base),
        (Some(number), base) => {
            let base = base.unwrap_or(0.0);
            match (number.as_i64(), number.as_u64()) {
                (Some(number), _) if base == 0.0 => Raw::Integer(number),
                (_, Some(number)) if base == 0.0 => Raw::Unsigned(number),
                _ => Raw::Double(number.as_f64().unwrap_or(f64::NAN) + base),
            }
        }
    }
}

/// SenML units (RFC 8428, 12.1, and RFC 8798) and UCUM codes, where they differ.
pub(crate) const UNITS: [(&str, &str); 33] = [
    ("lon", "deg"),
    ("lat", "deg"),
    ("pH", "[pH]"),
    ("count", "1"),
    ("/", "1"),
    ("%RH", "%"),
    ("%EL", "%"),
    ("EL", "s"),
    ("1/s", "/s"),
    ("1/min", "/min"),
    ("beat/min", "{beat}/min"),
    ("beats", "{beat}"),
    ("B", "By"),
    ("B/s", "By/s"),
    ("KiB", "KiBy"),
    ("GB", "GBy"),
    ("MB/s", "MBy/s"),
    ("VA", "V.A"),
    ("kVA", "kV.A"),
    ("VAs", "V.A.s"),
    ("VAh", "V.A.h"),
    ("kVAh", "kV.A.h"),
    ("var", "V.A"),
    ("kvar", "kV.A"),
    ("vars", "V.A.s"),
    ("varh", "V.A.h"),
    ("kvarh", "kV.A.h"),
    ("Ah", "A.h"),
    ("Wh", "W.h"),
    ("kWh", "kW.h"),
    ("Wh/km", "W.h/km"),
    ("ppm", "[ppm]"),
    ("/100", "%"),
];

/// The UCUM code of a SenML unit.
fn ucum(unit: &str) -> &str {
    let found = UNITS.iter().find(|(senml, _)| *senml == unit);
    found.map_or(unit, |(_, code)| code)
}

/// One record, or several of one time.
struct Pack<'r> {
    format: &'r SenmlFormat,
    records: &'r [Resolved<'r>],
}

impl<'r> Pack<'r> {
    fn at(&self, slot: usize) -> Option<&'r Resolved<'r>> {
        match self.format.each {
            SenmlEach::Record => self.records.first(),
            SenmlEach::Time => {
                let path = &self.format.slots.0[slot];
                let mut records = self.records.iter().rev();
                records.find(|record| record.name[record.base_name.len()..] == **path)
            }
        }
    }
}

impl Record for Pack<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        let Some(record) = self.at(slot) else {
            return Ok(Raw::Missing);
        };
        if self.format.each == SenmlEach::Time {
            return Ok(match &record.value {
                Raw::Missing => record.sum.clone(),
                value => value.clone(),
            });
        }
        let label = self.format.slots.0[slot].as_str();
        Ok(match label {
            "value" => record.value.clone(),
            "n" => Raw::Text(Cow::Borrowed(&record.name)),
            "u" => record
                .unit
                .map_or(Raw::Missing, |unit| Raw::Text(Cow::Borrowed(unit))),
            "s" => record.sum.clone(),
            "v" if ["vs", "vb", "vd"]
                .iter()
                .any(|label| record.members.contains_key(*label)) =>
            {
                Raw::Missing
            }
            "v" => record.value.clone(),
            label => record.members.get(label).map_or(Raw::Missing, Raw::from),
        })
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        let record = self.records.first()?;
        let text = match name {
            "name" => &record.name,
            "base_name" => record.base_name,
            "unit" => record.unit?,
            _ => return None,
        };
        (!text.is_empty()).then_some(Cow::Borrowed(text))
    }

    fn time(&self, received: Timestamp) -> Result<Option<Timestamp>, Reason> {
        let Some(time_ns) = self.records.first().and_then(|record| record.time_ns) else {
            return Ok(None);
        };
        if time_ns >= RELATIVE_BELOW * NANOS {
            return Ok(Some(Timestamp(time_ns)));
        }
        Ok(received.0.checked_add(time_ns).map(Timestamp))
    }

    fn unit(&self, slot: usize) -> Option<Cow<'_, str>> {
        let unit = self.at(slot)?.unit?;
        Some(Cow::Borrowed(ucum(unit)))
    }
}

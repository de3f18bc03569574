//! The keys under which pieces of metadata are indexed, beyond those of all entities.
//!
//! A piece is in several lists of one ordered set: that of its subject, of its type, of its value and
//! of its author. Within a list, pieces are ordered by their subject and then by their own key, as
//! texts: this order is the same after a restart, so a cursor remains valid, and the pieces of one
//! subject follow each other.

use std::cmp::Ordering;
use std::sync::Arc;

use oxrdf::NamedNodeRef;

use crate::dictionary::{Dictionary, Id};
use crate::vocabulary;

/// The number of lists.
pub(crate) const LISTS: usize = 8;

/// A list of pieces, and up to three numbers that select a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// Those of a subject.
    Subject(Id),
    /// Those of a type.
    Type(Id),
    /// Those of a type and an author.
    TypeBy(Id, Id),
    /// Those of a type and a value.
    Value(Id, Id),
    /// Those of a type, a value and an author.
    ValueBy(Id, Id, Id),
    /// Those of a value, of any type.
    AnyValue(Id),
    /// Those of a value and an author, of any type.
    AnyValueBy(Id, Id),
    /// Those of an author.
    Author(Id),
}

/// A piece in a list.
#[derive(Clone, Debug)]
pub(crate) struct PieceKey {
    pub(crate) list: List,
    /// The subject, a blank and the key of the piece. IRIs have no blank, so this sorts by subject.
    pub(crate) text: Arc<str>,
    /// The time of the last change, in milliseconds since 1970.
    pub(crate) date_ms: i64,
    pub(crate) entity: Id,
}

impl PieceKey {
    /// The subject.
    pub(crate) fn subject(&self) -> &str {
        self.text
            .split_once(' ')
            .map_or(&*self.text, |(subject, _)| subject)
    }
}

impl PartialEq for PieceKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PieceKey {}

impl PartialOrd for PieceKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PieceKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.list
            .cmp(&other.list)
            .then_with(|| self.text.cmp(&other.text))
            .then_with(|| self.entity.cmp(&other.entity))
    }
}

/// The subject of the piece `entity`, and its keys; `None` if it lacks a subject, a type or a date.
pub(crate) fn of(
    dictionary: &Dictionary,
    entity: Id,
    author: Id,
    triples: &[[Id; 3]],
) -> Option<(Id, Vec<PieceKey>)> {
    let object = |predicate: NamedNodeRef<'_>| {
        let predicate = dictionary.iri(predicate.as_str())?;
        let mut own = triples.iter();
        let found = own.find(|[subject, verb, _]| *subject == entity && *verb == predicate)?;
        Some(found[2])
    };
    let subject = object(vocabulary::ABOUT)?;
    let kind = object(vocabulary::METADATA_TYPE)?;
    let date_ms = date_of(dictionary.value(object(vocabulary::METADATA_DATE)?))?;
    let text = format!("{} {}", dictionary.value(subject), dictionary.value(entity));
    let text: Arc<str> = text.into();
    let mut lists = vec![
        List::Subject(subject),
        List::Type(kind),
        List::TypeBy(kind, author),
        List::Author(author),
    ];
    if let Some(value) = object(vocabulary::METADATA_VALUE) {
        lists.extend([
            List::Value(kind, value),
            List::ValueBy(kind, value, author),
            List::AnyValue(value),
            List::AnyValueBy(value, author),
        ]);
    }
    let keys = lists.into_iter().map(|list| PieceKey {
        list,
        text: Arc::clone(&text),
        date_ms,
        entity,
    });
    Some((subject, keys.collect()))
}

/// Milliseconds since 1970 of a time such as `2026-03-20T09:48:43.456Z`, as pieces have it.
pub(crate) fn date_of(text: &str) -> Option<i64> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let time: Vec<i64> = numbers(time, ':')?;
    let &[hour, minute, second] = time.as_slice() else {
        return None;
    };
    if hour > 23 || minute > 59 || second > 59 || fraction.is_empty() {
        return None;
    }
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    let milliseconds: i64 = digits.parse().ok().filter(|value| *value >= 0)?;
    let seconds = day_of(day)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1_000 + milliseconds)
}

fn numbers(text: &str, separator: char) -> Option<Vec<i64>> {
    let number = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    text.split(separator).map(number).collect()
}

/// Days since 1970 of a date such as `2026-03-20`, in the years 0 to 9999.
pub(crate) fn day_of(text: &str) -> Option<i64> {
    let parts = numbers(text, '-')?;
    let &[year, month, day] = parts.as_slice() else {
        return None;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year > 9_999 || day < 1 || day > length {
        return None;
    }
    // Years start in March, so that the leap day is the last day of a year.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let in_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + in_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timestamp;

    #[test]
    fn a_date_is_read_as_it_was_written() {
        for unix_ms in [
            0,
            951_782_400_000,
            951_868_799_999,
            1_772_323_199_999,
            1_774_000_123_456,
            -62_135_596_800_000,
            253_402_300_799_999,
        ] {
            let text = timestamp(unix_ms);
            assert_eq!(date_of(&text), Some(unix_ms), "{text}");
        }
        assert_eq!(
            date_of("2026-03-20T09:48:43Z"),
            date_of("2026-03-20T09:48:43.000Z")
        );
        for wrong in [
            "",
            "2026-03-20",
            "2026-02-29T00:00:00Z",
            "2026-03-20T24:00:00Z",
            "2026-03-20T09:48Z",
            "2026-03-20T09:48:43.Z",
            "2026-03-20T09:48:43.é5Z",
            "2026-3--1T09:48:43Z",
            "99999-03-20T09:48:43Z",
        ] {
            assert_eq!(date_of(wrong), None, "{wrong}");
        }
    }
}

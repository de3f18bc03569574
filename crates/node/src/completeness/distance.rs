//! Distance to loss: how far each reader of a stream is from missing elements that retention removes.
//!
//! A reader is a virtual sensor, another node that reads over a link, an exporter, or a processor. Its distance is what
//! remains if it read nothing more: the elements that the stream can still receive before retention may
//! remove the first unread one, and the time until then, by the stream's present rate and the age of
//! that element. The size limit of the whole log is not considered, because all streams share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reader::Reader;
use crate::catalogue::Entry;
use crate::clock::now;
use crate::shared::Shared;
use chappe_stream::{Retention, StreamLog, Timestamp};

/// All readers whose position is known, of one stream or of all, by stream, kind and name. One that reads a stream
/// several times, as a virtual sensor by two sources, is listed once, with what it has read in all of them.
pub(crate) fn readers(app: &Shared, stream: Option<&str>) -> Vec<Reader> {
    let names = app.catalogue.names();
    let stream = stream.map(|stream| names.resolve(stream));
    let is_wanted = |name: &str| {
        let wanted = stream.as_ref();
        wanted.is_none_or(|wanted| *wanted == names.resolve(name))
    };
    let mut found: BTreeMap<_, (Arc<Entry>, u64)> = BTreeMap::new();
    let mut add = |stream: &str, kind: &'static str, reader: &str, read: u64| {
        if is_wanted(stream)
            && let Some(entry) = app.catalogue.get(stream)
        {
            let key = (entry.current_name(), kind, reader.to_owned());
            let (_, least) = found.entry(key).or_insert((entry, read));
            *least = read.min(*least);
        }
    };
    for sensor in app.sensors.all() {
        for bound in sensor.sources.iter().flat_map(|source| &source.bound) {
            if let Some(read) = bound.read {
                add(&bound.stream, "sensor", &sensor.name, read);
            }
        }
    }
    for exporter in app.exporters.all() {
        for one in &exporter.streams {
            add(&one.stream, "exporter", &exporter.peer.name, one.read);
        }
    }
    for wrapper in app.wrappers.all() {
        for one in &wrapper.inputs {
            add(&one.stream, "processor", &wrapper.peer.name, one.read);
        }
    }
    let peers = app.exchange.get().map(crate::links::Exchange::peers);
    for peer in peers.into_iter().flatten() {
        let reader = peer.key.as_deref().unwrap_or(&peer.address);
        for (stream, read) in &peer.read {
            add(stream, "link", reader, *read);
        }
    }
    let found = found.into_iter();
    let readers =
        found.map(|((_, kind, reader), (entry, read))| distance(&entry, kind, &reader, read));
    readers.collect()
}

fn distance(entry: &Entry, kind: &'static str, reader: &str, read: u64) -> Reader {
    let log = &entry.log;
    let (first, last) = (log.log().first(), log.log().last());
    let unread = (read + 1).max(first);
    let Left {
        elements,
        seconds,
        by,
    } = left(
        log.retention(),
        last,
        unread,
        received(log, unread),
        entry.rate_per_s(),
        now(),
    );
    Reader {
        stream: entry.current_name(),
        kind,
        reader: reader.to_owned(),
        read,
        lag_elements: (last + 1).saturating_sub(unread),
        missed_elements: first.saturating_sub(read + 1),
        elements_left: elements,
        seconds_left: seconds,
        by,
    }
}

/// When an element was received here, if it is here.
fn received(log: &StreamLog, number: u64) -> Option<Timestamp> {
    let elements = log.read(number, 1).ok()?;
    elements.first().map(|element| element.receive_time)
}

#[derive(Debug, PartialEq)]
struct Left {
    elements: Option<u64>,
    seconds: Option<f64>,
    by: Option<&'static str>,
}

/// What is left until retention may remove the number `unread`, when the newest one is `last`.
fn left(
    retention: Retention,
    last: u64,
    unread: u64,
    received: Option<Timestamp>,
    rate_per_s: f64,
    now: Timestamp,
) -> Left {
    // It stays while no more than this many elements follow it, itself included.
    let elements = retention.elements.map(|kept| {
        let held = (last + 1).saturating_sub(unread);
        kept.saturating_sub(held)
    });
    let by_number = elements
        .filter(|_| rate_per_s > 0.0)
        .map(|elements| elements as f64 / rate_per_s);
    let by_age = retention.age.map(|age| {
        let since = received.unwrap_or(now);
        let passed = now.0.saturating_sub(since.0) as f64 / 1e9;
        (age.as_secs_f64() - passed).max(0.0)
    });
    let (seconds, by) = match (by_number, by_age) {
        (Some(number), Some(age)) if number <= age => (Some(number), Some("elements")),
        (Some(number), None) => (Some(number), Some("elements")),
        (_, Some(age)) => (Some(age), Some("age")),
        (None, None) => (None, elements.map(|_| "elements")),
    };
    Left {
        elements,
        seconds,
        by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn retention(elements: Option<u64>, age_s: Option<u64>) -> Retention {
        Retention {
            elements,
            age: age_s.map(Duration::from_secs),
        }
    }

    #[test]
    fn the_nearer_bound_counts() {
        let second = 1_000_000_000;
        let now = Timestamp(1_000 * second);
        let received = Some(Timestamp(970 * second));
        let at = |retention, rate| left(retention, 50, 21, received, rate, now);
        let wanted = |elements, seconds, by| Left {
            elements,
            seconds,
            by,
        };
        // 30 elements wait; of 100 that are kept, 70 may follow.
        let both = retention(Some(100), Some(50));
        assert_eq!(
            at(both, 10.0),
            wanted(Some(70), Some(7.0), Some("elements"))
        );
        assert_eq!(at(both, 1.0), wanted(Some(70), Some(20.0), Some("age")));
        assert_eq!(at(both, 0.0), wanted(Some(70), Some(20.0), Some("age")));
        let number = retention(Some(100), None);
        assert_eq!(at(number, 0.0), wanted(Some(70), None, Some("elements")));
        assert_eq!(at(retention(None, None), 5.0), wanted(None, None, None));
        // It is overdue.
        let few = retention(Some(10), Some(20));
        assert_eq!(at(few, 1.0), wanted(Some(0), Some(0.0), Some("elements")));
    }
}

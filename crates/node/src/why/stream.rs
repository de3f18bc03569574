//! The hops of a stream: its source, its elements, and those that read it.

use std::time::Duration;

use chappe_stream::{Retention, Timestamp};

use super::{HopState, Path};
use crate::catalogue::Entry;
use crate::clock::now;
use crate::completeness::{self, Reader};
use crate::config::Fault;
use crate::links::link_name;
use crate::wrappers::{PeerState, PeerStatus, wrapper_name};

/// Losses of the last day count; older ones are history.
const RECENT: Duration = Duration::from_secs(86_400);
/// A reader this near to a loss is in danger, if more than half of what retention keeps waits for it. Any reader of a
/// fast stream is this near: one million elements last 1,000 s at 1 kHz.
const DANGER_S: f64 = 3_600.0;

impl Path<'_> {
    /// A stream, from its source to its readers.
    pub(super) fn stream(&mut self, entry: &Entry) {
        self.source(entry);
        self.stream_after_source(entry);
    }

    /// What produces the elements of a stream.
    pub(super) fn source(&mut self, entry: &Entry) {
        let source = entry.source();
        let announced = self.app.devices.announced_with(&entry.name);
        let device = announced.as_deref().unwrap_or(&source);
        if let Some(device) = self.app.devices.get(device) {
            self.device(&device);
        } else if let Some(sensor) = self.app.sensors.all().into_iter().find(|sensor| {
            sensor.name == source || entry.log.has_name(|name| name == sensor.stream)
        }) {
            self.sensor(&sensor);
        } else if let Some(link) = link_name(&source) {
            match super::link::find(self.app, link) {
                Some(status) => self.link(&status, Some(&entry.name)),
                None => {
                    let detail = "the link that fed this stream was removed";
                    let hint = format!("add it again with chappe link add {link}");
                    self.add("link", link, HopState::Blocked, detail, Some(hint));
                }
            }
        } else if let Some(wrapper) = wrapper_name(&source) {
            match self.app.wrappers.get(wrapper) {
                Some(wrapper) => self.wrapper(&wrapper),
                None => {
                    let detail = "the wrapper that fed this stream was removed";
                    let hint = format!("write its file {wrapper}.toml again");
                    self.add("wrapper", wrapper, HopState::Blocked, detail, Some(hint));
                }
            }
        } else if source.starts_with("urn:uuid:") || source.starts_with("urn:chappe:device:") {
            let detail = "the device that filled this stream is not known any more";
            let hint = "check its power and network; chappe doctor checks this machine";
            self.add(
                "discovery",
                &source,
                HopState::Blocked,
                detail,
                Some(hint.to_owned()),
            );
        }
    }

    /// A stream with what happened to its elements and who reads them.
    pub(super) fn stream_after_source(&mut self, entry: &Entry) {
        if !self.enter("stream", &entry.name) {
            return;
        }
        let (log, name) = (entry.log.log(), &*entry.current_name());
        match entry.last_time() {
            _ if log.last() == 0 => {
                let detail = "no element was ever stored";
                let hint = self.first_element(entry, name);
                self.add("stream", name, HopState::Blocked, detail, Some(hint));
            }
            time => {
                let time = time.map_or("an unknown time".to_owned(), |time| time.to_string());
                let detail = format!(
                    "element {} of {time} is the newest; {} elements per second",
                    log.last(),
                    entry.rate_per_s()
                );
                self.add("stream", name, HopState::Ok, detail, None);
            }
        }
        self.losses(entry);
        self.readers(name, entry);
    }

    /// How an empty stream gets its first element.
    fn first_element(&self, entry: &Entry, name: &str) -> String {
        let source = entry.source();
        let sensors = self.app.sensors.all();
        let of_sensor = sensors.iter().find(|sensor| sensor.name == source);
        match of_sensor {
            Some(sensor) => format!(
                "chappe try {} computes it from stored elements",
                sensor.file
            ),
            None if self.app.devices.get(&source).is_some() => {
                "chappe watch DEVICE shows what its source sends, without this node".to_owned()
            }
            None => format!("a stream of your own gets one from: chappe write {name} FIELD=VALUE"),
        }
    }

    /// What the stream lost lately.
    fn losses(&mut self, entry: &Entry) {
        let since = now().0.saturating_sub_unsigned(RECENT.as_nanos() as u64);
        let span = Timestamp(since)..Timestamp(i64::MAX);
        let ledger = &self.app.observability.ledger;
        let answer = match completeness::completeness(entry, ledger, Some(&span)) {
            Ok(answer) => answer,
            Err(error) => {
                let hint = Some("chappe data check".to_owned());
                let detail = error.to_string();
                return self.add(
                    "completeness",
                    &entry.current_name(),
                    HopState::Degraded,
                    detail,
                    hint,
                );
            }
        };
        let counts = answer.lost.iter().chain(&answer.refused);
        let texts: Vec<String> = counts
            .filter(|(_, count)| count.at_most != Some(0))
            .map(|(reason, count)| match count.at_most {
                Some(most) if most == count.elements => format!("{reason} {most}"),
                Some(most) => format!("{reason} {} to {most}", count.elements),
                None => format!("{reason} {} or more", count.elements),
            })
            .collect();
        if !texts.is_empty() {
            let detail = format!("lost or refused in the last day: {}", texts.join(", "));
            let name = entry.current_name();
            let hint = Some(format!("chappe stream completeness {name}"));
            self.add("completeness", &name, HopState::Degraded, detail, hint);
        }
    }

    /// Those that read the stream.
    fn readers(&mut self, stream: &str, entry: &Entry) {
        for reader in completeness::readers(self.app, Some(stream)) {
            let hop = match reader.kind {
                "sensor" => "sensor",
                "exporter" => "exporter",
                _ => "reader",
            };
            let left = match reader.seconds_left {
                Some(seconds) => format!("; retention reaches that in {seconds:.0} s"),
                None => String::new(),
            };
            let lag = reader.lag_elements;
            let near = is_near(&reader, entry.log.retention());
            let exporter = Some(&reader).filter(|reader| reader.kind == "exporter");
            let exporter = exporter.and_then(|reader| self.app.exporters.get(&reader.reader));
            if let Some((detail, hint)) = exporter.and_then(|it| fault(&it.peer)) {
                let detail = format!("{detail}; lags {lag} elements{left}");
                self.add(hop, &reader.reader, HopState::Degraded, detail, Some(hint));
                continue;
            }
            let (state, detail, hint) = match (reader.missed_elements, lag) {
                (0, 0) => (HopState::Ok, "has read all elements".to_owned(), None),
                (0, _) if !near => (HopState::Ok, format!("lags {lag} elements{left}"), None),
                (0, _) => (
                    HopState::Degraded,
                    format!("lags {lag} elements{left}"),
                    Some(
                        "make it faster, or raise log.keep_elements and log.keep_age_s".to_owned(),
                    ),
                ),
                (missed, _) => (
                    HopState::Degraded,
                    format!("missed {missed} elements that retention removed; lags {lag}"),
                    Some("raise log.keep_elements and log.keep_age_s".to_owned()),
                ),
            };
            self.add(hop, &reader.reader, state, detail, hint);
        }
    }
}

/// Whether a reader is about to miss elements.
fn is_near(reader: &Reader, retention: Retention) -> bool {
    let is_soon = reader.seconds_left.is_some_and(|left| left < DANGER_S);
    let is_behind = match (reader.by, reader.seconds_left, retention.age) {
        (Some("age"), Some(left), Some(age)) => left < age.as_secs_f64() / 2.0,
        _ => reader
            .elements_left
            .is_some_and(|left| reader.lag_elements > left),
    };
    is_soon && is_behind
}

/// Why an exporter does not deliver as its file says, with a hint.
pub(super) fn fault(peer: &PeerStatus) -> Option<(String, String)> {
    let show = || format!("chappe wrapper show {}", peer.name);
    match (peer.state, &peer.error) {
        (PeerState::Failed, error) => {
            let error = error.clone().unwrap_or_default();
            Some((error.message, error.hint.unwrap_or_else(show)))
        }
        (_, Some(error)) => Some((
            earlier_version(&peer.file, error),
            error.hint.clone().unwrap_or_else(show),
        )),
        (PeerState::Trouble, None) => {
            let reason = peer.reason.clone().unwrap_or_default();
            Some((reason, peer.hint.clone().unwrap_or_else(show)))
        }
        (PeerState::Running | PeerState::Waiting, None) => None,
    }
}

/// That a file was changed, and is invalid since.
pub(super) fn earlier_version(file: &str, error: &Fault) -> String {
    format!(
        "the version before the last change runs; {}",
        error.in_file(file)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_a_fast_stream_is_near_only_when_it_is_behind() {
        let retention = Retention {
            elements: Some(1_000),
            age: Some(Duration::from_secs(600)),
        };
        let reader = |lag, left, seconds, by| Reader {
            stream: "s".into(),
            kind: "link",
            reader: "r".into(),
            read: 0,
            lag_elements: lag,
            missed_elements: 0,
            elements_left: Some(left),
            seconds_left: seconds,
            by,
        };
        let near = |lag, left, seconds, by| is_near(&reader(lag, left, seconds, by), retention);
        assert!(!near(1, 999, Some(1.0), Some("elements")));
        assert!(near(900, 100, Some(1.0), Some("elements")));
        assert!(!near(900, 100, Some(7_200.0), Some("elements")));
        assert!(!near(1, 999, Some(599.0), Some("age")));
        assert!(near(1, 999, Some(20.0), Some("age")));
        assert!(!near(900, 100, None, None));
    }
}

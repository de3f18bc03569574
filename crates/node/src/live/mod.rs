//! Live data: one stream of server-sent events that carries many streams of elements.
//!
//! A client is a task with a cursor into the log for each of its streams, and a queue of two events
//! towards its connection. It reads from the log when the connection has room, so a slow client never
//! blocks another, and a notice reports its lag. Large events are read and encoded outside the
//! serving thread, two at a time. Each event carries the client's position as its id; a client that
//! reconnects with it loses nothing, even if the node was restarted.
//!
//! With up to [`VECTOR_MAX`] streams the id is the vector of their positions, and the client resumes after
//! its last element. With more it is a place in the log, which all streams share, and the positions of at
//! most [`VECTOR_MAX`] streams in which the client is far behind. Then it resumes at the oldest element
//! that it may lack, and may receive some elements twice; an element's position tells.

mod client;
mod reading;
mod vector;

use std::collections::BTreeSet;

use chappe_log::Place;

use crate::catalogue::Entry;

pub(crate) use client::run;
pub(crate) use vector::Vector;

/// Streams of one client; reason: each event looks at all of them.
pub(crate) const STREAMS_MAX: usize = 1_000;
/// Positions in the id of an event; reason: 50 to 150 bytes each, and servers and proxies take headers
/// of 8 KiB.
pub(crate) const VECTOR_MAX: usize = 32;

/// The position from which a client resumes.
#[derive(Debug, Clone)]
pub(crate) struct After {
    /// The last positions that it received.
    pub(crate) vector: Vector,
    /// The place in the log up to which it has everything of the streams that the vector does not name.
    pub(crate) place: Option<Place>,
    /// Whether the vector names all streams of its time, because it is the id of an event.
    pub(crate) complete: bool,
}

impl After {
    /// Reads a vector, as a client writes it, or the id of an event.
    pub(crate) fn parse(text: &str, complete: bool) -> Result<Self, String> {
        let (place, vector) = match text.strip_prefix(PLACE) {
            Some(rest) => {
                let (place, vector) = rest.split_once(',').unwrap_or((rest, ""));
                let place = place.parse::<Place>();
                let place = place.map_err(|()| format!("{text:.80?} is not the id of an event"))?;
                (Some(place), vector)
            }
            None => (None, text),
        };
        Ok(Self {
            vector: Vector::parse(vector)?,
            place,
            complete,
        })
    }
}

/// Prefix of a place in the log in an id. No stream's name contains a colon.
const PLACE: &str = "log:";

/// The id of an event: a place in the log, if there is one, and positions.
pub(crate) fn id(place: Option<Place>, vector: &Vector) -> String {
    match place {
        None => vector.to_string(),
        Some(place) if vector.0.is_empty() => format!("{PLACE}{place}"),
        Some(place) => format!("{PLACE}{place},{vector}"),
    }
}

/// The streams that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All streams, including future ones.
    All,
    /// Some streams, whether or not they exist yet.
    Matching {
        /// Their names.
        names: BTreeSet<String>,
        /// Prefixes of their current names.
        prefixes: Vec<String>,
    },
}

/// The name that a client gives to a stream's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    /// The stream's name at the time.
    Current,
    /// The name by which the client requested the stream, even if the stream has another one now.
    Requested(String),
}

impl Label {
    /// The name to send with the elements of a stream.
    pub(crate) fn of(&self, entry: &Entry) -> String {
        match self {
            Self::Current => entry.current_name(),
            Self::Requested(name) => name.clone(),
        }
    }
}

impl Wanted {
    /// How the client calls this stream, if it requests it by one of its names or a prefix of its current one.
    pub(crate) fn label(&self, entry: &Entry) -> Option<Label> {
        let Self::Matching { names, prefixes } = self else {
            return Some(Label::Current);
        };
        if entry.log.has_name(|name| names.contains(name)) {
            let current = std::iter::once(entry.current_name());
            let mut all = current.chain(entry.log.names());
            return all.find(|name| names.contains(name)).map(Label::Requested);
        }
        let current = (!prefixes.is_empty()).then(|| entry.current_name())?;
        let mut prefixes = prefixes.iter();
        let is_wanted = prefixes.any(|prefix| current.starts_with(prefix.as_str()));
        is_wanted.then_some(Label::Current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_and_invalid_ones_are_refused() {
        let vector = "a.b@000000000000000a:7,c@0000000000000001:0";
        for text in [vector, "log:1.2.ff", &format!("log:1.2.ff,{vector}")] {
            let after = After::parse(text, true).unwrap();
            assert_eq!(id(after.place, &after.vector), text);
        }
        for text in ["log:", "log:1.2", "log:1.2.x,a@1:1", "log:1.2.3,a", "log"] {
            assert!(After::parse(text, true).is_err(), "{text}");
        }
    }
}

//! A client's position in each of its streams: `stream@EPOCH:N`, joined by commas.

use std::collections::BTreeMap;

use chappe_stream::{Position, check_name};

use crate::catalogue::Entry;

/// Positions by stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vector(pub(crate) BTreeMap<String, Position>);

impl Vector {
    /// Reads a vector; an empty text is an empty one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut positions = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let shown: String = part.chars().take(80).collect();
            let form = || format!("{shown:?} is not a position: write it as stream@EPOCH:N");
            let (stream, position) = part.split_once('@').ok_or_else(form)?;
            check_name(stream).map_err(|error| error.to_string())?;
            let position = position.parse().map_err(|_| form())?;
            if positions.insert(stream.to_owned(), position).is_some() {
                return Err(format!("{stream} is named twice"));
            }
        }
        Ok(Self(positions))
    }
}

impl Vector {
    /// The position in a stream, by any of its names.
    pub(super) fn of(&self, entry: &Entry) -> Option<Position> {
        let current = std::iter::once(entry.current_name());
        let mut names = current.chain(entry.log.names());
        names.find_map(|name| self.0.get(&name).copied())
    }
}

impl std::fmt::Display for Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (stream, position)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{stream}@{position}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_round_trips_and_invalid_ones_are_refused() {
        let text = "a.b@000000000000000a:7,c@0000000000000001:0";
        assert_eq!(Vector::parse(text).unwrap().to_string(), text);
        assert_eq!(Vector::parse("").unwrap(), Vector::default());
        for text in [
            "a",
            "a@",
            "a@1",
            "a@x:1",
            "A@1:1",
            "a@1:1,a@1:2",
            "@1:1",
            "a@1:-1",
        ] {
            assert!(Vector::parse(text).is_err(), "{text}");
        }
    }
}

//! The names of files: stream, epoch, first and last number.

use std::collections::BTreeMap;
use std::time::SystemTime;

use chappe_stream::{Epoch, Position};

/// A file that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) stream: String,
    pub(super) first: Position,
    pub(super) last: u64,
    /// When it was written.
    pub(super) modified: SystemTime,
}

/// The name of a complete file.
pub(super) fn file_name(stream: &str, first: Position, last: u64, extension: &str) -> String {
    let (epoch, first) = (first.epoch, first.sequence);
    format!("{stream}-{epoch}-{first:020}-{last:020}.{extension}")
}

/// What the name of a complete file says; `None` for others.
pub(super) fn parse(name: &str, extension: &str) -> Option<(String, Position, u64)> {
    let name = name.strip_suffix(extension)?.strip_suffix('.')?;
    let mut parts = name.rsplitn(4, '-');
    let (last, first, epoch) = (parts.next()?, parts.next()?, parts.next()?);
    let stream = parts.next().filter(|stream| !stream.is_empty())?;
    let number = |text: &str| {
        let is_number = text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok())?
    };
    let is_epoch = epoch.len() == 16 && epoch.bytes().all(|b| b.is_ascii_hexdigit());
    let epoch = is_epoch.then(|| u64::from_str_radix(epoch, 16).ok())??;
    let first = Position {
        epoch: Epoch(epoch),
        sequence: number(first)?,
    };
    Some((stream.to_owned(), first, number(last)?))
}

/// How far each stream is in the files, where that is beyond the host's cursor.
pub(super) fn reached(
    found: &[Found],
    exported: &BTreeMap<String, Position>,
) -> Vec<(String, Position)> {
    let mut newest: BTreeMap<&str, &Found> = BTreeMap::new();
    for file in found {
        let known = newest.entry(&file.stream).or_insert(file);
        if (known.modified, known.last) < (file.modified, file.last) {
            *known = file;
        }
    }
    let beyond = newest.into_iter().filter(|(stream, file)| {
        match exported.get(*stream) {
            None => true,
            Some(at) if at.epoch == file.first.epoch => at.sequence < file.last,
            // Numbers go on in a new epoch; an earlier one has lower numbers.
            Some(at) => at.sequence < file.first.sequence,
        }
    });
    let reached = beyond.map(|(stream, file)| {
        let position = Position {
            epoch: file.first.epoch,
            sequence: file.last,
        };
        (stream.to_owned(), position)
    });
    reached.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(epoch: u64, sequence: u64) -> Position {
        Position {
            epoch: Epoch(epoch),
            sequence,
        }
    }

    fn found(stream: &str, first: Position, last: u64, second: u64) -> Found {
        Found {
            stream: stream.to_owned(),
            first,
            last,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
        }
    }

    #[test]
    fn a_stream_goes_on_after_its_newest_file_but_never_back() {
        let files = [
            found("a", at(1, 1), 100, 1),
            found("a", at(1, 101), 200, 2),
            found("b", at(2, 51), 60, 3),
            found("c", at(1, 1), 40, 3),
        ];
        let exported = [("a", at(1, 100)), ("b", at(1, 50)), ("c", at(2, 60))];
        let exported = exported.map(|(stream, at)| (stream.to_owned(), at)).into();
        let reached = reached(&files, &exported);
        assert_eq!(
            reached,
            [("a".to_owned(), at(1, 200)), ("b".to_owned(), at(2, 60))]
        );
    }

    proptest! {
        #[test]
        fn a_name_is_parsed_as_it_was_made(stream in "[a-z0-9_-]{1,20}(\\.[a-z0-9_-]{1,20})?", epoch: u64, first: u64, last: u64) {
            let name = file_name(&stream, at(epoch, first), last, "parquet");
            prop_assert_eq!(parse(&name, "parquet"), Some((stream, at(epoch, first), last)));
            prop_assert_eq!(parse(&name, "csv"), None);
        }

        #[test]
        fn any_name_is_none_or_a_position(name in ".{0,80}") {
            let _ = parse(&name, "csv");
            let _ = parse(&format!("{name}.csv"), "csv");
        }
    }
}

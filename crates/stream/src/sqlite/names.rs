//! Which stream a table's name in a statement is. Each name that a stream has or had refers to it.

use super::tables::{Part, SAMPLES_SUFFIX, has_samples};
use crate::{QueryError, StreamLog};

/// The name of a stream as a plain identifier.
#[must_use]
pub fn table_name(stream: &str) -> String {
    stream.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

impl Part {
    /// The name of the source whose table of this kind is called `name`.
    pub(super) fn source_of(self, name: &str) -> &str {
        match self {
            Self::Rows => name,
            Self::Samples => name.strip_suffix(SAMPLES_SUFFIX).unwrap_or(name),
        }
    }
}

/// The stream, and which of its tables, that `name` is: exactly, or as a plain identifier.
///
/// [`former_name`] returns the name when it is one that the stream no longer has.
///
/// # Errors
/// A plain identifier that is that of several.
pub(super) fn resolve<'s>(
    name: &str,
    streams: &[&'s StreamLog],
) -> Result<Option<(&'s StreamLog, Part)>, QueryError> {
    let tables = || {
        let parts = [Part::Rows, Part::Samples];
        parts.into_iter().flat_map(|part| {
            let all = streams.iter().map(move |stream| (*stream, part));
            all.filter(move |(stream, _)| part.is_of(stream, name))
        })
    };
    let exact = |(stream, part): &(&StreamLog, Part)| {
        let source = part.source_of(name);
        stream.has_name(|known| known == source)
    };
    if let Some(found) = tables().find(exact) {
        return Ok(Some(found));
    }
    let mut found = tables();
    let Some(first) = found.next() else {
        return Ok(None);
    };
    let others: Vec<_> = found.collect();
    if others.is_empty() {
        return Ok(Some(first));
    }
    let written = |(stream, part): &(&StreamLog, Part)| {
        let suffix = if *part == Part::Samples {
            SAMPLES_SUFFIX
        } else {
            ""
        };
        format!("\"{}{suffix}\"", stream.current_name())
    };
    let mut candidates: Vec<_> = std::iter::once(&first)
        .chain(&others)
        .map(written)
        .collect();
    candidates.dedup();
    Err(QueryError::Ambiguous {
        table: name.to_owned(),
        candidates,
    })
}

/// The former name of the stream that a statement names by `source`.
pub(super) fn former_name(stream: &StreamLog, source: &str) -> Option<String> {
    let current = stream.current_name();
    if source == current || source == table_name(&current) {
        return None;
    }
    let mut former = stream.former_names().into_iter();
    former.find(|name| source == name || source == table_name(name))
}

impl Part {
    /// Whether the table of this kind of `stream` may be called `name`.
    fn is_of(self, stream: &StreamLog, name: &str) -> bool {
        let source = match self {
            Self::Rows => Some(name),
            Self::Samples => name.strip_suffix(SAMPLES_SUFFIX),
        };
        let is_named =
            |source: &str| stream.has_name(|known| source == known || source == table_name(known));
        source.is_some_and(is_named) && (self == Self::Rows || has_samples(&stream.schema()))
    }
}

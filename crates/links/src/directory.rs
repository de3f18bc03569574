//! The directory on the wire: questions by name or beginning of a name, answers with the structure.
//!
//! A question is a name, a beginning of names with `*` behind it, or nothing at all: the list. An
//! answer is the structures as documents one behind the other, in the serialization that was asked
//! for (behind a line break: `NAME\nxml`); the list of all is the same with nothing but names in them
//! (fields are left out), so that it stays short.

use bytes::Bytes;

use super::serialization::{Document, SerializationError, Structure};
use super::{DirectoryEntry, LinkError, Selection, Serialization};

/// Most entries of an answer; reason: a node has at most 131,072 streams.
pub(crate) const ENTRIES_MAX: usize = 131_072;

/// Writes a question.
pub(crate) fn question(selection: &Selection, serialization: Serialization) -> Bytes {
    let what = match selection {
        Selection::Exact(name) => name.clone(),
        Selection::Prefix(prefix) => format!("{prefix}*"),
    };
    format!("{what}\n{}", serialization.as_str()).into()
}

/// Answers a question from the streams that the asker may read. An answer that would be larger than
/// `bytes_max` is cut behind the last structure that fits.
///
/// # Errors
/// A question that is none.
pub(crate) fn answer(
    question: &[u8],
    entries: &[DirectoryEntry],
    bytes_max: usize,
) -> Result<Bytes, LinkError> {
    let wrong = |why: &str| LinkError::Config {
        key: "question",
        why: why.to_owned(),
    };
    let text = std::str::from_utf8(question).map_err(|_| wrong("it is no UTF-8"))?;
    let (what, serialization) = text.split_once('\n').unwrap_or((text, "xml"));
    let serialization =
        Serialization::parse(serialization).ok_or_else(|| wrong("no known serialization"))?;
    let list = what.is_empty();
    let selection: Selection = if list { "*" } else { what }.parse()?;
    let mut bytes = Vec::new();
    for entry in entries.iter().filter(|entry| selection.takes(&entry.name)) {
        let schema = match list {
            true => chappe_stream::StreamSchema::default(),
            false => entry.schema.clone(),
        };
        let before = bytes.len();
        let document = Document::Structure(Structure {
            stream: entry.name.clone(),
            version: entry.schema_version,
            schema,
        });
        let written = serialization.encode(&document, &entry.schema, &mut bytes);
        if written.is_err() || bytes.len() > bytes_max {
            bytes.truncate(before);
            break;
        }
    }
    Ok(bytes.into())
}

/// Reads an answer.
///
/// # Errors
/// Bytes that are none.
pub(crate) fn read(
    mut bytes: &[u8],
    serialization: Serialization,
) -> Result<Vec<Structure>, SerializationError> {
    let mut structures = Vec::new();
    while !bytes.is_empty() && structures.len() < ENTRIES_MAX {
        let (document, used) = serialization.decode(bytes)?;
        bytes = &bytes[used..];
        if let Document::Structure(structure) = document {
            structures.push(structure);
        }
    }
    Ok(structures)
}

//! The directory on the wire: queries by name or prefix, answers with the structures.
//!
//! A query is a name, a prefix ending in `*`, or empty (list all). The serialization of the answer
//! follows after a line break: `NAME\nxml`. An answer is a sequence of structures as documents; the
//! list of all streams leaves out the fields, so that it stays short, and streams whose source left.

use bytes::Bytes;

use super::serialization::{Document, SerializationError, Structure};
use super::{DirectoryEntry, LinkError, Selection, Serialization};

/// Most entries of an answer; reason: a node has at most 131,072 streams.
pub(crate) const ENTRIES_MAX: usize = 131_072;

/// Encodes a query.
pub(crate) fn question(selection: &Selection, serialization: Serialization) -> Bytes {
    let what = match selection {
        Selection::Exact(name) => name.clone(),
        Selection::Prefix(prefix) => format!("{prefix}*"),
    };
    format!("{what}\n{}", serialization.as_str()).into()
}

/// Answers a query from the streams that the requester may read. An answer larger than `bytes_max`
/// is cut after the last structure that fits.
///
/// # Errors
/// An invalid query.
pub(crate) fn answer(
    question: &[u8],
    entries: &[DirectoryEntry],
    bytes_max: usize,
) -> Result<Bytes, LinkError> {
    let wrong = |why: &str| LinkError::Config {
        key: "question",
        why: why.to_owned(),
    };
    let text = std::str::from_utf8(question).map_err(|_| wrong("it is not UTF-8"))?;
    let (what, serialization) = text.split_once('\n').unwrap_or((text, "xml"));
    let serialization =
        Serialization::parse(serialization).ok_or_else(|| wrong("unknown serialization"))?;
    let list = what.is_empty();
    let selection: Selection = if list { "*" } else { what }.parse()?;
    let mut bytes = Vec::new();
    let is_listed = |entry: &&DirectoryEntry| entry.is_present || !list;
    let entries = entries.iter().filter(is_listed);
    for entry in entries.filter(|entry| selection.takes(&entry.name)) {
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

/// Decodes an answer.
///
/// # Errors
/// Bytes that are not an answer.
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

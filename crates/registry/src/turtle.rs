//! Metadata as Turtle, for those who publish it as text.
//!
//! Nothing is fetched: relative IRIs are resolved against the entity's key, and that is all.

use oxrdf::Triple;
use oxttl::TurtleParser;

use crate::entity::{MAX_ENTITY_BYTES, MAX_TRIPLES};
use crate::error::Error;

/// Reads the triples of a Turtle document about the entity `key`.
///
/// # Errors
/// [`Error::InvalidEntity`] with the place of the first fault, or the limit that was passed.
pub fn triples_from_turtle(key: &str, text: &str) -> Result<Vec<Triple>, Error> {
    let invalid = |reason: String| Error::InvalidEntity {
        field: "turtle",
        reason,
    };
    if text.len() > MAX_ENTITY_BYTES {
        return Err(invalid(format!("is longer than {MAX_ENTITY_BYTES} bytes")));
    }
    let parser = TurtleParser::new()
        .with_base_iri(key)
        .map_err(|error| invalid(format!("has no usable base: {error}")))?;
    let mut triples = Vec::new();
    for triple in parser.for_slice(text) {
        if triples.len() == MAX_TRIPLES {
            return Err(invalid(format!("has more than {MAX_TRIPLES} triples")));
        }
        triples.push(triple.map_err(|error| invalid(format!("is not understood: {error}")))?);
    }
    Ok(triples)
}

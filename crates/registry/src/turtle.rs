//! Reads metadata that is published as Turtle.
//!
//! Relative IRIs are resolved against the entity's key; nothing is fetched.

use oxrdf::Triple;
use oxttl::TurtleParser;

use crate::entity::{MAX_ENTITY_BYTES, MAX_TRIPLES, term_bytes};
use crate::error::Error;

/// Reads the triples of a Turtle document about the entity `key`.
///
/// # Errors
/// [`Error::InvalidEntity`] with the position of the first fault, or the limit that was exceeded.
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
        .map_err(|error| invalid(format!("cannot use the key as base IRI: {error}")))?;
    let (mut triples, mut bytes) = (Vec::new(), 0_usize);
    for triple in parser.for_slice(text) {
        if bytes > MAX_ENTITY_BYTES {
            // A prefix makes long IRIs of short names.
            let reason = format!("has terms of more than {MAX_ENTITY_BYTES} bytes");
            return Err(invalid(reason));
        }
        if triples.len() == MAX_TRIPLES {
            return Err(invalid(format!("has more than {MAX_TRIPLES} triples")));
        }
        let triple = triple.map_err(|error| invalid(format!("cannot be parsed: {error}")))?;
        let subject = term_bytes(&triple.subject.clone().into());
        bytes += subject + triple.predicate.as_str().len() + term_bytes(&triple.object);
        triples.push(triple);
    }
    Ok(triples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary;

    const KEY: &str = "http://example.com/devices/7";

    #[test]
    fn relative_iris_are_about_the_key() {
        let text = "@prefix sosa: <http://www.w3.org/ns/sosa/> .
            <> sosa:observes <property/heat>, [ a sosa:ObservableProperty ] .
            <#part> sosa:isHostedBy <> .";
        let triples = triples_from_turtle(KEY, text).unwrap();
        assert_eq!(triples.len(), 4);
        let observed = triples
            .iter()
            .find(|triple| triple.predicate == vocabulary::OBSERVES)
            .unwrap();
        assert_eq!(observed.subject.to_string(), format!("<{KEY}>"));
        let objects: Vec<_> = triples.iter().map(|t| t.object.to_string()).collect();
        assert!(objects.contains(&"<http://example.com/devices/property/heat>".to_owned()));
        let part = format!("<{KEY}#part>");
        assert!(triples.iter().any(|t| t.subject.to_string() == part));
    }

    #[test]
    fn faults_name_their_place_and_limits_their_value() {
        let fault = |key: &str, text: &str| match triples_from_turtle(key, text) {
            Err(Error::InvalidEntity { field, reason }) => {
                assert_eq!(field, "turtle");
                reason
            }
            other => panic!("{other:?}"),
        };
        let place = fault(KEY, "<> a <urn:x> .\n<> a .");
        assert!(place.contains("line 2"), "{place}");
        assert!(fault("no iri", "").contains("base"));
        assert!(fault(KEY, &" ".repeat(MAX_ENTITY_BYTES + 1)).contains("longer"));
        let many: String = (0..=MAX_TRIPLES)
            .map(|number| format!("<> <urn:p> <urn:{number}> ."))
            .collect();
        assert!(many.len() <= MAX_ENTITY_BYTES);
        assert!(fault("urn:x", &many).contains("triples"));
        let long = format!("@prefix p: <urn:{}> . ", "x".repeat(10_000));
        let bomb = format!("{long}{}", "p:a p:b p:c . ".repeat(5_000));
        assert!(fault(KEY, &bomb).contains("terms of more than"));
    }
}

//! Reads ontologies: RDF documents that become one entity each, and so one named graph.
//!
//! Formats: RDF 1.1 Turtle, N-Triples, XML Syntax. Nothing is fetched, and a document type
//! declaration is refused: its entities could multiply.

use oxrdf::{NamedNodeRef, NamedOrBlankNode, Term, Triple};
use oxrdfxml::RdfXmlParser;
use oxttl::{NTriplesParser, TurtleParser};

use crate::entity::{
    Entity, EntityKind, MAX_ENTITY_BYTES, MAX_TEXT_BYTES, MAX_TRIPLES, triple_bytes,
};
use crate::error::Error;
use crate::results::ResultFormat;
use crate::vocabulary;

/// Maximum size of a document in bytes: four times that of its triples, for prefixes and comments.
pub const MAX_DOCUMENT_BYTES: usize = 4 * MAX_ENTITY_BYTES;

fn invalid(reason: String) -> Error {
    Error::InvalidEntity {
        field: "document",
        reason,
    }
}

/// Reads the triples of a document. Relative IRIs are resolved against `base`.
///
/// # Errors
/// [`Error::InvalidEntity`] with the position of the first fault, or the limit that was exceeded.
pub fn triples_from_document(
    format: ResultFormat,
    base: &str,
    document: &[u8],
) -> Result<Vec<Triple>, Error> {
    if document.len() > MAX_DOCUMENT_BYTES {
        let reason = format!("is longer than {MAX_DOCUMENT_BYTES} bytes");
        return Err(invalid(reason));
    }
    let no_base = |error| invalid(format!("cannot use {base:?} as base IRI: {error}"));
    match format {
        ResultFormat::Turtle => {
            let parser = TurtleParser::new().with_base_iri(base).map_err(no_base)?;
            collected(parser.for_slice(document))
        }
        ResultFormat::NTriples => collected(NTriplesParser::new().for_slice(document)),
        ResultFormat::RdfXml => {
            if declares_type(document) {
                return Err(invalid("has a document type declaration".to_owned()));
            }
            check_attributes(document)?;
            let parser = RdfXmlParser::new().with_base_iri(base).map_err(no_base)?;
            collected(parser.for_slice(document))
        }
        _ => Err(invalid(format!("{} holds no graph", format.media_type()))),
    }
}

/// Maximum number of attributes of one element of RDF/XML; reason: the parser compares each with all before it.
const MAX_ATTRIBUTES: usize = 256;
/// Maximum number of namespaces that a document of RDF/XML declares; reason: the parser looks through those in scope for
/// each name.
const MAX_NAMESPACES: usize = 1_024;

/// Refuses documents that keep the parser busy by their attributes.
fn check_attributes(document: &[u8]) -> Result<(), Error> {
    // Zeros are those of UTF-16.
    let text: Vec<u8> = document.iter().copied().filter(|byte| *byte != 0).collect();
    let mut rest = text.as_slice();
    let mut namespaces = 0;
    while let Some(start) = rest.iter().position(|byte| *byte == b'<') {
        rest = rest.get(start..).unwrap_or_default();
        let skipped = [
            (&b"<!--"[..], &b"-->"[..]),
            (b"<![CDATA[", b"]]>"),
            (b"<?", b"?>"),
        ];
        let skipped = skipped.iter().find(|(start, _)| rest.starts_with(start));
        if let Some((start, end)) = skipped {
            let within = rest.get(start.len()..).unwrap_or_default();
            let length = within.windows(end.len()).position(|part| part == *end);
            rest = length.map_or(&[], |length| within.get(length..).unwrap_or_default());
            continue;
        }
        let (mut attributes, mut quote, mut length) = (0, None, rest.len());
        for (index, byte) in rest.iter().enumerate() {
            match (quote, byte) {
                (Some(open), byte) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'=') => attributes += 1,
                (None, b'x') if rest[index..].starts_with(b"xmlns") => namespaces += 1,
                (None, b'>') => {
                    length = index;
                    break;
                }
                (None, _) => {}
            }
        }
        if attributes > MAX_ATTRIBUTES {
            let reason = format!("has an element with more than {MAX_ATTRIBUTES} attributes");
            return Err(invalid(reason));
        }
        if namespaces > MAX_NAMESPACES {
            let reason = format!("declares more than {MAX_NAMESPACES} namespaces");
            return Err(invalid(reason));
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(())
}

/// Whether the text `<!DOCTYPE` occurs, in UTF-8 or, with zeros between, in UTF-16.
fn declares_type(document: &[u8]) -> bool {
    let text: Vec<u8> = document.iter().copied().filter(|byte| *byte != 0).collect();
    let start = b"<!DOCTYPE";
    text.windows(start.len())
        .any(|part| part.eq_ignore_ascii_case(start))
}

fn collected<E: std::fmt::Display>(
    triples: impl Iterator<Item = Result<Triple, E>>,
) -> Result<Vec<Triple>, Error> {
    let (mut all, mut bytes) = (Vec::new(), 0_usize);
    for triple in triples {
        if all.len() == MAX_TRIPLES {
            return Err(invalid(format!("has more than {MAX_TRIPLES} triples")));
        }
        let triple = triple.map_err(|error| invalid(format!("cannot be parsed: {error}")))?;
        bytes += triple_bytes(&triple);
        if bytes > MAX_ENTITY_BYTES {
            // A prefix or a base makes long IRIs of short names.
            let reason = format!("has terms of more than {MAX_ENTITY_BYTES} bytes");
            return Err(invalid(reason));
        }
        all.push(triple);
    }
    Ok(all)
}

/// The entity of an ontology. Its key is `key`, or the IRI that the document calls an
/// `owl:Ontology`, or else `base`; its name is that one's label, or the key.
///
/// # Errors
/// As [`triples_from_document`].
pub fn ontology(
    format: ResultFormat,
    key: Option<&str>,
    base: &str,
    document: &[u8],
) -> Result<Entity, Error> {
    let triples = triples_from_document(format, key.unwrap_or(base), document)?;
    let stated = triples.iter().find_map(|triple| match &triple.subject {
        NamedOrBlankNode::NamedNode(node)
            if triple.predicate == vocabulary::RDF_TYPE
                && triple.object == Term::from(OWL_ONTOLOGY.into_owned()) =>
        {
            Some(node.as_str())
        }
        _ => None,
    });
    let key = key.or(stated).unwrap_or(base).to_owned();
    let label = triples.iter().find_map(|triple| match &triple.object {
        Term::Literal(text)
            if triple.predicate == vocabulary::RDFS_LABEL
                && triple.subject.to_string() == format!("<{key}>") =>
        {
            Some(text.value())
        }
        _ => None,
    });
    let name = label.filter(|label| label.len() <= MAX_TEXT_BYTES);
    let mut entity = Entity::new(key.as_str(), EntityKind::Other, name.unwrap_or(&key));
    entity.types = vec![vocabulary::ONTOLOGY_TYPE.to_owned()];
    entity.triples = triples;
    entity.validate()?;
    Ok(entity)
}

const OWL_ONTOLOGY: NamedNodeRef<'static> =
    NamedNodeRef::new_unchecked("http://www.w3.org/2002/07/owl#Ontology");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TURTLE: &str = "@prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        <http://e/kinds> a owl:Ontology ; rdfs:label \"Kinds\" .
        <http://e/kinds#Ecg> rdfs:subClassOf <http://e/kinds#Monitor> .";
    const XML: &str = r##"<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
        xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
        xmlns:owl="http://www.w3.org/2002/07/owl#" xml:base="http://e/kinds">
        <owl:Ontology rdf:about=""><rdfs:label>Kinds</rdfs:label></owl:Ontology>
        <rdf:Description rdf:about="#Ecg"><rdfs:subClassOf rdf:resource="#Monitor"/>
        </rdf:Description></rdf:RDF>"##;

    #[test]
    fn both_formats_give_the_same_ontology() {
        let read = |format, text: &str| {
            ontology(format, None, "urn:chappe:ontology:x", text.as_bytes()).unwrap()
        };
        let turtle = read(ResultFormat::Turtle, TURTLE);
        assert_eq!(
            (turtle.key.as_str(), turtle.name.as_str()),
            ("http://e/kinds", "Kinds")
        );
        assert_eq!(turtle.triples.len(), 3);
        assert_eq!(read(ResultFormat::RdfXml, XML), turtle);
        // Without a statement about itself it has the given key.
        let plain = read(ResultFormat::NTriples, "<urn:a:b> <urn:a:c> <urn:a:d> .");
        assert_eq!(plain.key, "urn:chappe:ontology:x");
    }

    #[test]
    fn bad_documents_are_refused_with_a_reason() {
        let fault = |format, text: &str| match ontology(format, None, "urn:x:y", text.as_bytes()) {
            Err(Error::InvalidEntity { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert!(fault(ResultFormat::Turtle, "<> a").contains("parsed"));
        assert!(fault(ResultFormat::Json, "{}").contains("no graph"));
        let bomb = "<!DOCTYPE a [<!ENTITY b \"&c;&c;\">]>".to_owned() + XML;
        assert!(fault(ResultFormat::RdfXml, &bomb).contains("document type"));
        let wide: Vec<u8> = bomb.bytes().flat_map(|byte| [byte, 0]).collect();
        assert!(declares_type(&wide));
        let long = " ".repeat(MAX_DOCUMENT_BYTES + 1);
        assert!(fault(ResultFormat::Turtle, &long).contains("longer"));
        let base = format!("@base <http://e/{}> . ", "x/".repeat(5_000));
        let growing = base + &"<a> <b> <c> .\n".repeat(1_000);
        assert!(fault(ResultFormat::Turtle, &growing).contains("terms of more"));
        let many = "<urn:a:b> <urn:a:c> <urn:a:d> .\n".repeat(MAX_TRIPLES + 1);
        assert!(fault(ResultFormat::NTriples, &many).contains("triples"));
    }

    /// The parser compares each attribute with those before it, and looks for a prefix through all in scope.
    #[test]
    fn attributes_and_namespaces_are_few() {
        let list = |count: usize, one: &dyn Fn(usize) -> String| -> String {
            (0..count).map(one).collect()
        };
        let document = |attributes: &str, content: &str| {
            let rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
            let text = format!(
                "<rdf:RDF xmlns:rdf=\"{rdf}\" xmlns:a=\"urn:a:\"><!-- it's > --><rdf:Description {attributes}/>\
                 <rdf:Description><a:text>{content}</a:text></rdf:Description></rdf:RDF>"
            );
            let read = triples_from_document(ResultFormat::RdfXml, "urn:x:y", text.as_bytes());
            read.map(|triples| triples.len())
                .map_err(|error| error.to_string())
        };
        let attribute = |n: usize| format!("a:n{n}=\"'>\" ");
        assert_eq!(
            document(&list(200, &attribute), &"=".repeat(1_000)),
            Ok(201)
        );
        let error = document(&list(MAX_ATTRIBUTES + 1, &attribute), "").unwrap_err();
        assert!(error.contains("attributes"), "{error}");
        let nested = list(MAX_NAMESPACES, &|n| {
            format!("<a:n xmlns:n{n}=\"urn:n\"><a:m>")
        });
        let error = document("", &nested).unwrap_err();
        assert!(error.contains("namespaces"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0_usize..500) {
            for format in ResultFormat::OF_GRAPHS {
                let _ = ontology(format, None, "urn:x:y", &bytes);
                let mut text = XML.as_bytes()[..cut.min(XML.len())].to_vec();
                text.extend_from_slice(&bytes);
                let _ = ontology(format, None, "urn:x:y", &text);
            }
        }
    }
}

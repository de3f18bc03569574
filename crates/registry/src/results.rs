//! Answers of SPARQL queries and the formats in which they are sent.
//!
//! Sources: SPARQL 1.1 Query Results JSON, XML, CSV and TSV Formats; RDF 1.1 Turtle, N-Triples and
//! XML Syntax.

use std::io::{self, Write};

use oxrdf::{Literal, Term, Triple, Variable};
use oxrdfxml::RdfXmlSerializer;
use oxttl::{NTriplesSerializer, TurtleSerializer};
use sparesults::{QueryResultsFormat, QueryResultsSerializer};

use crate::limits::SparqlError;
use crate::vocabulary;

/// The answer of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparqlAnswer {
    /// Answer of a SELECT query.
    Solutions {
        /// The columns.
        variables: Vec<Variable>,
        /// The rows, each as long as `variables`.
        rows: Vec<Vec<Option<Term>>>,
    },
    /// Answer of an ASK query.
    Boolean(bool),
    /// Answer of a CONSTRUCT or DESCRIBE query.
    Graph(Vec<Triple>),
}

/// A format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFormat {
    /// SPARQL results in JSON.
    Json,
    /// SPARQL results in XML.
    Xml,
    /// Comma-separated values: texts without their kind.
    Csv,
    /// Tab-separated values: terms as in Turtle.
    Tsv,
    /// Turtle.
    Turtle,
    /// N-Triples.
    NTriples,
    /// RDF/XML.
    RdfXml,
}

impl ResultFormat {
    /// Formats of SELECT and ASK, the default first.
    pub const OF_ROWS: [Self; 4] = [Self::Json, Self::Xml, Self::Csv, Self::Tsv];
    /// Formats of CONSTRUCT and DESCRIBE, the default first.
    pub const OF_GRAPHS: [Self; 3] = [Self::Turtle, Self::NTriples, Self::RdfXml];

    /// The media type of the specification.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/sparql-results+json",
            Self::Xml => "application/sparql-results+xml",
            Self::Csv => "text/csv",
            Self::Tsv => "text/tab-separated-values",
            Self::Turtle => "text/turtle",
            Self::NTriples => "application/n-triples",
            Self::RdfXml => "application/rdf+xml",
        }
    }
}

impl SparqlAnswer {
    /// The formats in which it can be written, the default first.
    #[must_use]
    pub const fn formats(&self) -> &'static [ResultFormat] {
        match self {
            Self::Solutions { .. } | Self::Boolean(_) => &ResultFormat::OF_ROWS,
            Self::Graph(_) => &ResultFormat::OF_GRAPHS,
        }
    }

    /// The answer in a format.
    ///
    /// # Errors
    /// [`SparqlError::Unwritable`] if the format cannot hold the answer: a table is no graph, and
    /// RDF/XML has no predicate whose end is no name.
    pub fn write(&self, format: ResultFormat) -> Result<Vec<u8>, SparqlError> {
        let (media_type, bytes) = (format.media_type(), Vec::new());
        let unwritable = |reason: String| SparqlError::Unwritable { media_type, reason };
        if let Some(reason) = self.obstacle(format) {
            return Err(unwritable(reason));
        }
        let written = match (self, table_format(format)) {
            (Self::Boolean(value), Some(format)) => QueryResultsSerializer::from_format(format)
                .serialize_boolean_to_writer(bytes, *value),
            (Self::Solutions { variables, rows }, Some(format)) => table(variables, rows, format),
            (Self::Graph(triples), None) => graph(triples, format),
            _ => Err(io::Error::other("the answer is of another kind")),
        };
        written.map_err(|error| unwritable(error.to_string()))
    }

    /// The answer of a SELECT or ASK query as `application/sparql-results+json`.
    ///
    /// # Errors
    /// As [`SparqlAnswer::write`].
    pub fn to_json(&self) -> Result<String, SparqlError> {
        let bytes = self.write(ResultFormat::Json)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What XML cannot hold. The serializers do not check it.
    fn obstacle(&self, format: ResultFormat) -> Option<String> {
        if !matches!(format, ResultFormat::Xml | ResultFormat::RdfXml) {
            return None;
        }
        let literal = |term: &Term| match term {
            Term::Literal(literal) => literal.value().chars().find(|sign| !is_xml(*sign)),
            _ => None,
        };
        let illegal = match self {
            Self::Boolean(_) => None,
            Self::Solutions { rows, .. } => rows.iter().flatten().flatten().find_map(literal),
            Self::Graph(triples) => {
                // Predicates become names of elements, and so may classes.
                let classes = triples.iter().filter_map(|triple| match &triple.object {
                    Term::NamedNode(class) if triple.predicate == vocabulary::RDF_TYPE => {
                        Some(class)
                    }
                    _ => None,
                });
                let mut names = triples.iter().map(|it| &it.predicate).chain(classes);
                if let Some(nameless) = names.find(|name| !ends_with_name(name.as_str())) {
                    return Some(format!("the end of {nameless} is not an XML name"));
                }
                triples.iter().find_map(|triple| literal(&triple.object))
            }
        };
        illegal.map(|sign| format!("XML has no character U+{:04X}", u32::from(sign)))
    }
}

/// XML 1.0, production 2, without the carriage return, which a reader would turn into a line feed.
fn is_xml(sign: char) -> bool {
    matches!(sign, '\t' | '\n' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

/// Whether the serializer finds a name at the end of an IRI.
fn ends_with_name(iri: &str) -> bool {
    let is_name = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-' | '.');
    let local = iri.rsplit(|sign| !is_name(sign)).next();
    let mut signs = local.unwrap_or_default().chars();
    signs.any(|sign| sign.is_ascii_alphabetic() || sign == '_')
        && !iri.starts_with("http://www.w3.org/2000/xmlns/")
}

fn table_format(format: ResultFormat) -> Option<QueryResultsFormat> {
    match format {
        ResultFormat::Json => Some(QueryResultsFormat::Json),
        ResultFormat::Xml => Some(QueryResultsFormat::Xml),
        ResultFormat::Csv => Some(QueryResultsFormat::Csv),
        ResultFormat::Tsv => Some(QueryResultsFormat::Tsv),
        ResultFormat::Turtle | ResultFormat::NTriples | ResultFormat::RdfXml => None,
    }
}

fn table(
    variables: &[Variable],
    rows: &[Vec<Option<Term>>],
    format: QueryResultsFormat,
) -> io::Result<Vec<u8>> {
    let serializer = QueryResultsSerializer::from_format(format);
    let mut writer = serializer.serialize_solutions_to_writer(Vec::new(), variables.to_vec())?;
    for row in rows {
        let bound = variables.iter().zip(row);
        let bound = bound.filter_map(|(name, term)| Some((name, term.as_ref()?)));
        match format {
            // The serializer quotes literals only, and an IRI may have a comma, too.
            QueryResultsFormat::Csv => {
                let texts: Vec<(&Variable, Term)> = bound
                    .map(|(name, term)| (name, without_kind(term)))
                    .collect();
                writer.serialize(texts.iter().map(|(name, term)| (*name, term)))?;
            }
            _ => writer.serialize(bound)?,
        }
    }
    writer.finish()
}

/// An IRI as a literal with the same text.
fn without_kind(term: &Term) -> Term {
    match term {
        Term::NamedNode(node) => Literal::new_simple_literal(node.as_str()).into(),
        other => other.clone(),
    }
}

fn graph(triples: &[Triple], format: ResultFormat) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match format {
        ResultFormat::RdfXml => {
            let mut writer = RdfXmlSerializer::new().for_writer(bytes);
            for triple in triples {
                writer.serialize_triple(triple)?;
            }
            bytes = writer.finish()?;
        }
        ResultFormat::NTriples => {
            let mut writer = NTriplesSerializer::new().for_writer(bytes);
            for triple in triples {
                writer.serialize_triple(triple)?;
            }
            bytes = writer.finish();
        }
        _ => {
            let mut writer = TurtleSerializer::new().for_writer(bytes);
            for triple in triples {
                writer.serialize_triple(triple)?;
            }
            bytes = writer.finish()?;
        }
    }
    bytes.flush()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxrdf::{BlankNode, Literal, NamedNode};
    use oxrdfxml::RdfXmlParser;
    use oxttl::{NTriplesParser, TurtleParser};
    use proptest::prelude::*;
    use sparesults::{QueryResultsParser, SliceQueryResultsParserOutput};

    fn node() -> impl Strategy<Value = NamedNode> {
        "http://e/[a-z]{1,3}(#|/)?[a-z0-9]{0,3}[a-z]{1,2}"
            .prop_map(|iri| NamedNode::new(iri).unwrap())
    }

    fn term() -> impl Strategy<Value = Term> {
        prop_oneof![
            node().prop_map(Term::from),
            "[a-z]{1,4}".prop_map(|label| BlankNode::new(label).unwrap().into()),
            "[ -~äß\\n\\t\"<>&,]{0,9}".prop_map(|text| Literal::new_simple_literal(text).into()),
            any::<i64>().prop_map(|number| Literal::from(number).into()),
            "[a-z ]{0,5}".prop_map(|text| {
                Literal::new_language_tagged_literal(text, "de-at")
                    .unwrap()
                    .into()
            }),
        ]
    }

    proptest! {
        /// What a graph's formats say is what was answered.
        #[test]
        fn graphs_come_back(objects in proptest::collection::vec((node(), node(), term()), 0..20)) {
            let triples: Vec<Triple> = objects
                .into_iter()
                .map(|(subject, predicate, object)| Triple::new(subject, predicate, object))
                .collect();
            let answer = SparqlAnswer::Graph(triples.clone());
            let bytes = answer.write(ResultFormat::Turtle).unwrap();
            let read: Result<Vec<_>, _> = TurtleParser::new().for_slice(&bytes).collect();
            prop_assert_eq!(&read.unwrap(), &triples);
            let bytes = answer.write(ResultFormat::NTriples).unwrap();
            let read: Result<Vec<_>, _> = NTriplesParser::new().for_slice(&bytes).collect();
            prop_assert_eq!(&read.unwrap(), &triples);
            let bytes = answer.write(ResultFormat::RdfXml).unwrap();
            let read: Result<Vec<_>, _> = RdfXmlParser::new().for_slice(&bytes).collect();
            prop_assert_eq!(read.unwrap().len(), triples.len());
        }

        /// What a table's formats with kinds say is what was answered.
        #[test]
        fn tables_come_back(
            rows in proptest::collection::vec((term(), proptest::option::of(term())), 0..20),
        ) {
            let variables = ["a", "b"].map(|name| Variable::new(name).unwrap()).to_vec();
            let rows: Vec<_> = rows.into_iter().map(|(a, b)| vec![Some(a), b]).collect();
            let answer = SparqlAnswer::Solutions { variables, rows: rows.clone() };
            for format in [ResultFormat::Json, ResultFormat::Tsv] {
                let bytes = answer.write(format).unwrap();
                let parser = QueryResultsParser::from_format(table_format(format).unwrap());
                let read = parser.for_slice(&bytes).unwrap();
                let SliceQueryResultsParserOutput::Solutions(read) = read else {
                    panic!("no solutions");
                };
                let read: Vec<Vec<_>> = read.map(|row| row.unwrap().values().to_vec()).collect();
                prop_assert_eq!(&read, &rows);
            }
        }
    }

    #[test]
    fn every_answer_has_its_formats_and_no_other() {
        let triple = Triple::new(
            NamedNode::new("http://e/s").unwrap(),
            NamedNode::new("http://e/1").unwrap(),
            Literal::from(1),
        );
        let table = SparqlAnswer::Solutions {
            variables: vec![Variable::new("a").unwrap()],
            rows: vec![vec![Some(Literal::from(7).into())]],
        };
        let written = |answer: &SparqlAnswer, format| {
            answer
                .write(format)
                .map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(written(&table, ResultFormat::Csv).unwrap(), "a\r\n7\r\n");
        // A comma in an IRI separates no columns.
        let comma = SparqlAnswer::Solutions {
            variables: vec![Variable::new("a").unwrap()],
            rows: vec![vec![Some(NamedNode::new("data:,x").unwrap().into())]],
        };
        assert_eq!(
            written(&comma, ResultFormat::Csv).unwrap(),
            "a\r\n\"data:,x\"\r\n"
        );
        let ask = SparqlAnswer::Boolean(true);
        assert!(
            written(&ask, ResultFormat::Xml)
                .unwrap()
                .contains("<boolean>true</boolean>")
        );
        for format in ResultFormat::OF_GRAPHS {
            assert!(written(&table, format).is_err());
            assert!(written(&ask, format).is_err());
        }
        let control = SparqlAnswer::Graph(vec![Triple::new(
            NamedNode::new("http://e/s").unwrap(),
            NamedNode::new("http://e/p").unwrap(),
            Literal::from("\u{1}"),
        )]);
        assert!(
            written(&control, ResultFormat::RdfXml)
                .unwrap_err()
                .to_string()
                .contains("U+0001")
        );
        // RDF/XML has no name for this predicate; nothing is left out silently.
        let graph = SparqlAnswer::Graph(vec![triple]);
        let refused = written(&graph, ResultFormat::RdfXml).unwrap_err();
        assert!(
            refused.to_string().contains("application/rdf+xml"),
            "{refused}"
        );
        assert!(written(&graph, ResultFormat::Turtle).is_ok());
        for format in ResultFormat::OF_ROWS {
            assert!(written(&graph, format).is_err());
        }
    }
}

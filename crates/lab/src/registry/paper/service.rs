//! The published service: its document, the requests that publish and find it, and its triples.
//!
//! The document has a businessEntity, a tModel and a businessService with a binding, sent by one request each. Together
//! they become 138 triples, as the services of the paper had, those that the registry derives from the
//! entities' fields included.

use std::collections::HashMap;
use std::fmt::Write as _;

use chappe_registry::oxrdf::Term;
use chappe_registry::{
    Interrupt, MemoryJournal, Principal, Registry, SparqlAnswer, SparqlLimits, vocabulary,
};
use chappe_xml::{Element, Limits};

use super::library::Library;
use super::under_test::Keys;
use crate::Error;

/// Triples of a service.
pub(super) const TRIPLES: usize = 138;
/// The published document.
const DOCUMENT: &str = include_str!("service.xml");
/// The namespace of requests and of the document.
const UDDI: &str = "urn:uddi-org:api_v2";
/// The text that the number of a service replaces.
const NUMBER: &str = "NUMBER";

/// Makes the requests about services.
pub(super) struct Requests {
    business: String,
    tmodel: String,
    service: String,
}

impl Requests {
    /// The requests for the document of the repository.
    pub(super) fn new() -> Result<Self, Error> {
        let failed = || Error::failed("reading the document of the service");
        let root = Element::parse_within(DOCUMENT.as_bytes(), Limits::default());
        let root = root.map_err(failed())?;
        let mut parts = root.elements().map(Element::to_text);
        let mut part = || {
            let missing = || Error::Failed("the document of the service lacks a part".to_owned());
            parts.next().ok_or_else(missing)
        };
        Ok(Self {
            business: part()?,
            tmodel: part()?,
            service: part()?,
        })
    }

    /// save_business, save_tModel or save_service of a service; the last needs the keys that the others were given.
    pub(super) fn save(&self, step: Step, name: &str, keys: &Keys, token: &str) -> String {
        let (request, text) = match step {
            Step::Business => ("save_business", &self.business),
            Step::TModel => ("save_tModel", &self.tmodel),
            Step::Service => ("save_service", &self.service),
        };
        let text = text.replace(NUMBER, name);
        let text = text.replace("\"BUSINESS\"", &format!("\"{}\"", keys.business));
        let text = text.replace("\"TMODEL\"", &format!("\"{}\"", keys.tmodel));
        let token = match token {
            "" => String::new(),
            token => format!("<authInfo>{token}</authInfo>"),
        };
        format!("<{request} generic=\"2.0\" xmlns=\"{UDDI}\">{token}{text}</{request}>")
    }

    /// find_service by its name.
    pub(super) fn find(name: &str) -> String {
        format!(
            "<find_service generic=\"2.0\" xmlns=\"{UDDI}\"><findQualifiers><findQualifier>exactNameMatch\
             </findQualifier></findQualifiers><name xml:lang=\"en\">Pulse of ward {name}</name></find_service>"
        )
    }

    /// get_serviceDetail.
    pub(super) fn detail(key: &str) -> String {
        format!(
            "<get_serviceDetail generic=\"2.0\" xmlns=\"{UDDI}\"><serviceKey>{key}</serviceKey></get_serviceDetail>"
        )
    }

    /// The triples of a service as N-Triples, in parts as the requests bring them, with words in place of its number
    /// and keys: what Jena stores.
    pub(super) fn triples(&self) -> Result<String, Error> {
        const WHAT: &str = "reading the triples of a service";
        let registry = Registry::open(MemoryJournal::new()).map_err(Error::failed(WHAT))?;
        let mut library = Library::new(registry.clone())?;
        library.add_canonical()?;
        let keys = library.publish_as(self, NUMBER)?;
        let (everything, anyone) = ("SELECT ?s ?p ?o { ?s ?p ?o }", Principal::Operator);
        let answer = registry.sparql(
            everything,
            &anyone,
            &SparqlLimits::default(),
            &Interrupt::never(),
        );
        let SparqlAnswer::Solutions { rows, .. } = answer.map_err(Error::failed(WHAT))? else {
            return Err(Error::Failed("no rows of triples".to_owned()));
        };
        let rows: Vec<[Term; 3]> = rows
            .into_iter()
            .filter_map(|row| <[Option<Term>; 3]>::try_from(row).ok())
            .filter_map(|[s, p, o]| Some([s?, p?, o?]))
            .collect();
        let iri = |key: &str| format!("urn:uuid:{}", key.replace("uuid:", "").to_lowercase());
        let (business, tmodel, service) =
            (iri(&keys.business), iri(&keys.tmodel), iri(&keys.service));
        let parent = format!("{}", vocabulary::uddi::SERVICE_KEY);
        let is_binding = |row: &&[Term; 3]| row[1].to_string() == parent;
        let binding = rows.iter().find(is_binding).map(|row| row[0].to_string());
        let binding = binding.unwrap_or_default().replace(['<', '>'], "");
        let roots = [(&business, 0), (&tmodel, 1), (&service, 2), (&binding, 2)];
        let mut part_of: HashMap<String, usize> =
            roots.map(|(iri, part)| (format!("<{iri}>"), part)).into();
        let mut parts = vec![String::new(); 3];
        let mut waiting: Vec<&[Term; 3]> = rows.iter().collect();
        // A blank node belongs to the part that refers to it; the rest are the canonical tModels.
        let mut before = usize::MAX;
        while waiting.len() < before {
            before = waiting.len();
            waiting.retain(|[subject, predicate, object]| {
                let Some(part) = part_of.get(&subject.to_string()).copied() else {
                    return true;
                };
                if matches!(object, Term::BlankNode(_)) {
                    part_of.insert(object.to_string(), part);
                }
                let _ = writeln!(parts[part], "{subject} {predicate} {object} .");
                false
            });
        }
        let mut text = parts.join("---\n");
        for (key, word) in [
            (business, "BUSINESS"),
            (tmodel, "TMODEL"),
            (service, "SERVICE"),
            (binding, "BINDING"),
        ] {
            text = text.replace(&key, &format!("urn:uuid:{word}"));
        }
        Ok(text)
    }
}

/// A request of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Business,
    TModel,
    Service,
}

impl Step {
    pub(super) const ALL: [Self; 3] = [Self::Business, Self::TModel, Self::Service];
}

/// The number of a service as its names have it.
pub(super) fn name_of(number: usize) -> String {
    format!("{number:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_138_triples() {
        let registry = Registry::open(MemoryJournal::new()).expect("a registry");
        let mut library = Library::new(registry.clone()).expect("a library");
        library.add_canonical().expect("the canonical tModels");
        let before = registry.statistics().triples;
        let requests = Requests::new().expect("requests");
        for number in 1..=2 {
            let published = library.publish_as(&requests, &name_of(number));
            published.expect("it is published");
            assert_eq!(registry.statistics().triples - before, number * TRIPLES);
        }
        let text = requests.triples().expect("its triples");
        let lines = text.lines().filter(|line| *line != "---").count();
        assert_eq!((lines, text.matches("---\n").count()), (TRIPLES, 2));
        for word in ["NUMBER", "BUSINESS", "TMODEL", "SERVICE", "BINDING"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
}

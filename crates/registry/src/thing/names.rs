//! Names in a Thing Description as IRIs.
//!
//! Prefixes and terms come from the objects within the document's own `@context`; the contexts of
//! the W3C are known, and no context is ever fetched. A name without a prefix is a term of the Thing
//! Description ontology, as its context says (`@vocab`).

use std::collections::BTreeMap;

use oxrdf::NamedNode;
use serde_json::Value;

use super::validation::texts;
use crate::vocabulary::td;

/// The prefixes of the context of Thing Descriptions.
const KNOWN: [(&str, &str); 8] = [
    ("td", td::TD),
    ("jsonschema", td::JSON_SCHEMA),
    ("wotsec", td::SECURITY),
    ("hctl", td::HYPERMEDIA),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("dct", "http://purl.org/dc/terms/"),
    ("tm", "https://www.w3.org/2019/wot/tm#"),
];
/// The classes of the context of directories.
const OF_DISCOVERY: [&str; 3] = ["ThingDirectory", "ThingLink", "ThingCollection"];

/// The names that a document's context defines.
pub(super) struct Names<'a> {
    terms: BTreeMap<&'a str, &'a str>,
    vocabulary: &'a str,
    is_discovery: bool,
}

impl<'a> Names<'a> {
    pub(super) fn of(document: &'a Value) -> Self {
        let mut names = Self {
            terms: KNOWN.into_iter().collect(),
            vocabulary: td::TD,
            is_discovery: false,
        };
        let Some(context) = document.get("@context") else {
            return names;
        };
        names.is_discovery = texts(context).any(|name| name == td::DISCOVERY_CONTEXT);
        let contexts = match context {
            Value::Array(contexts) => contexts.as_slice(),
            one => std::slice::from_ref(one),
        };
        let members = contexts.iter().filter_map(Value::as_object).flatten();
        for (term, meaning) in members {
            let iri = meaning
                .as_str()
                .or_else(|| meaning.get("@id").and_then(Value::as_str));
            match (term.as_str(), iri) {
                ("@vocab", Some(iri)) => names.vocabulary = iri,
                (term, Some(iri)) if !term.starts_with('@') => drop(names.terms.insert(term, iri)),
                _ => {}
            }
        }
        names
    }

    /// The IRI of a name with a prefix or a defined term, or an absolute IRI.
    pub(super) fn defined(&self, name: &str) -> Option<NamedNode> {
        if let Some((prefix, local)) = name.split_once(':') {
            return match self.terms.get(prefix) {
                Some(namespace) if !local.starts_with("//") => {
                    NamedNode::new(format!("{}{local}", self.whole(namespace))).ok()
                }
                _ => NamedNode::new(name).ok(),
            };
        }
        let meaning = self.terms.get(name)?;
        NamedNode::new(self.whole(meaning)).ok()
    }

    /// The IRI of a class, a term or an absolute IRI.
    pub(super) fn iri(&self, name: &str) -> Option<NamedNode> {
        if let Some(iri) = self.defined(name) {
            return Some(iri);
        }
        let namespace = match self.is_discovery && OF_DISCOVERY.contains(&name) {
            true => td::DISCOVERY,
            false => self.vocabulary,
        };
        NamedNode::new(format!("{namespace}{name}")).ok()
    }

    /// The meaning of a term, which may itself have a prefix.
    fn whole(&self, meaning: &str) -> String {
        if let Some((prefix, local)) = meaning.split_once(':')
            && !local.starts_with("//")
            && let Some(namespace) = self.terms.get(prefix)
            && *namespace != meaning
        {
            return format!("{namespace}{local}");
        }
        meaning.to_owned()
    }
}

/// A target against the base of its document; without dot segments being removed.
pub(super) fn resolve(base: Option<&str>, target: &str) -> String {
    let scheme_end = |text: &str| {
        let end = text.find(':')?;
        let mut bytes = text[..end].bytes();
        let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
        let goes_on = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
        (starts && goes_on).then_some(end)
    };
    let Some(base) = base.filter(|_| scheme_end(target).is_none()) else {
        return target.to_owned();
    };
    let Some(end) = scheme_end(base) else {
        return target.to_owned();
    };
    if target.starts_with("//") {
        return format!("{}:{target}", &base[..end]);
    }
    let authority = match base[end + 1..].strip_prefix("//") {
        Some(rest) => end + 3 + rest.find(['/', '?', '#']).unwrap_or(rest.len()),
        None => end + 1,
    };
    let path_end = base[authority..].find(['?', '#']);
    let path_end = path_end.map_or(base.len(), |index| authority + index);
    if target.starts_with('/') {
        return format!("{}{target}", &base[..authority]);
    }
    if target.is_empty() || target.starts_with(['?', '#', '{']) {
        return format!("{}{target}", &base[..path_end]);
    }
    match base[authority..path_end].rfind('/') {
        Some(slash) => format!("{}{target}", &base[..=authority + slash]),
        None => format!("{}/{target}", &base[..authority]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_become_iris() {
        let document = json!({"@context": [
            td::TD_CONTEXT, td::DISCOVERY_CONTEXT,
            {"saref": "https://w3id.org/saref#", "Lamp": "saref:Light", "@language": "en",
             "Owner": {"@id": "http://example.com/owner"}},
        ]});
        let names = Names::of(&document);
        for (name, iri) in [
            ("saref:LightSwitch", "https://w3id.org/saref#LightSwitch"),
            ("Lamp", "https://w3id.org/saref#Light"),
            ("Owner", "http://example.com/owner"),
            ("http://example.com/A", "http://example.com/A"),
            ("urn:example:a", "urn:example:a"),
            ("Thing", "https://www.w3.org/2019/wot/td#Thing"),
            (
                "ThingDirectory",
                "https://www.w3.org/2021/wot/discovery#ThingDirectory",
            ),
        ] {
            assert_eq!(names.iri(name).unwrap().as_str(), iri, "{name}");
        }
        assert_eq!(names.defined("Thing"), None);
        assert_eq!(names.iri("a b"), None);
    }

    #[test]
    fn targets_are_resolved() {
        for (base, target, resolved) in [
            (Some("http://a/b/c?d"), "e", "http://a/b/e"),
            (Some("http://a/b/c?d"), "/e", "http://a/e"),
            (Some("http://a/b/c?d"), "{?e}", "http://a/b/c{?e}"),
            (Some("http://a/b/c?d"), "//e/f", "http://e/f"),
            (Some("http://a"), "e", "http://a/e"),
            (Some("coap://a"), "http://e/", "http://e/"),
            (Some("urn:a"), "e", "urn:/e"),
            (Some("a"), "e", "e"),
            (None, "e", "e"),
        ] {
            assert_eq!(resolve(base, target), resolved, "{target}");
        }
    }
}

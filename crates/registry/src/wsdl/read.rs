//! Reads documents back.

use super::{bytes, unknown};
use crate::entity::EntityKind;
use crate::rights::Right;
use crate::uddi::graph::Graph;
use crate::uddi::{Error, Inquiry, Key as _, List, MAX_ROWS, TModelKey};
use crate::vocabulary::wsdl as v;

/// A document without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The key of its entity.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its publisher.
    pub owner: String,
    /// Its target namespace.
    pub target_namespace: String,
    /// Its URL, if it is known.
    pub location: Option<String>,
    /// Its media type.
    pub media_type: String,
    /// Its size in bytes.
    pub size: usize,
    /// Whether it is an XML schema rather than WSDL.
    pub is_schema: bool,
    /// The tModels of its port types and bindings.
    pub tmodels: Vec<TModelKey>,
}

impl Inquiry {
    /// A document with its bytes.
    ///
    /// # Errors
    /// `E_invalidKeyPassed` if there is none with this key; `E_messageTooLarge`.
    pub fn document(&self, key: &str) -> Result<(Document, Vec<u8>), Error> {
        self.ask(|graph| {
            let found = document(graph, key, true);
            found.ok_or_else(|| unknown(key))
        })
    }

    /// The document at a URL: the one with this key, else the first whose location it is.
    ///
    /// # Errors
    /// As [`Inquiry::document`].
    pub fn document_at(&self, url: &str) -> Result<(Document, Vec<u8>), Error> {
        self.ask(|graph| {
            let key = key_at(graph, url).ok_or_else(|| unknown(url))?;
            document(graph, &key, true).ok_or_else(|| unknown(url))
        })
    }

    /// All documents in the order of their keys, after the key `after`, up to `max_rows` ([`MAX_ROWS`] at most).
    ///
    /// # Errors
    /// `E_messageTooLarge`.
    pub fn documents(
        &self,
        after: Option<&str>,
        max_rows: Option<usize>,
    ) -> Result<List<Document>, Error> {
        self.ask(|graph| {
            let partitions = graph.partitions.iter();
            let kind = EntityKind::Document as u32;
            let ids = partitions.flat_map(|partition| {
                let kinds = partition.kinds.iter_from(|key| *key < [kind, 0]);
                kinds.take_while(|[of, _]| *of == kind).map(|[_, id]| id)
            });
            let keys = ids.map(|id| graph.state.dictionary.value(id));
            let mut keys: Vec<&str> = keys
                .filter(|key| after.is_none_or(|after| *key > after))
                .collect();
            keys.sort_unstable();
            keys.dedup();
            let limit = max_rows.unwrap_or(MAX_ROWS).min(MAX_ROWS);
            let is_truncated = keys.len() > limit;
            let documents = keys.into_iter().take(limit);
            let items = documents.filter_map(|key| document(graph, key, false));
            Ok(List {
                items: items.map(|(document, _)| document).collect(),
                is_truncated,
            })
        })
    }
}

/// The key of the document at a URL.
pub(crate) fn key_at(graph: &Graph<'_>, url: &str) -> Option<String> {
    if is_document(graph, url) {
        return Some(url.to_owned());
    }
    let location = graph.state.dictionary.text(url)?;
    let found = graph.subjects(v::LOCATION, location).into_iter();
    let mut keys: Vec<String> = found.map(|id| graph.value(id)).collect();
    keys.retain(|key| is_document(graph, key));
    keys.sort_unstable();
    keys.into_iter().next()
}

fn is_document(graph: &Graph<'_>, key: &str) -> bool {
    let rule = graph.state.rule_of(key);
    rule.is_some_and(|(rule, kind)| {
        kind == EntityKind::Document && rule.permits(graph.principal(), Right::Read)
    })
}

/// The visible document with this key, with its bytes if they are wanted.
fn document(graph: &Graph<'_>, key: &str, with_bytes: bool) -> Option<(Document, Vec<u8>)> {
    if !is_document(graph, key) {
        return None;
    }
    let id = graph.state.dictionary.iri(key)?;
    let fields = graph.state.fields(id)?;
    let text = |predicate| {
        let object = fields.objects(predicate).next();
        object.map(|id| graph.value(id))
    };
    let size = fields.objects(v::SIZE).next();
    let size = size.and_then(|id| graph.state.dictionary.integer(id))? as usize;
    let is_schema = fields.has_type(v::SCHEMA_TYPE);
    let tmodels = fields
        .statements(v::TMODEL)
        .filter_map(|key| TModelKey::from_iri(key));
    let document = Document {
        key: key.to_owned(),
        name: fields.name().to_owned(),
        owner: fields.owner().to_owned(),
        target_namespace: text(v::TARGET_NAMESPACE).unwrap_or_default(),
        location: text(v::LOCATION),
        media_type: text(v::MEDIA_TYPE).unwrap_or_default(),
        size,
        is_schema,
        tmodels: tmodels.collect(),
    };
    graph.charge(512 + document.tmodels.len() * 16);
    if !with_bytes {
        return Some((document, Vec::new()));
    }
    graph.charge(size);
    let chunks = fields
        .objects(v::CONTENT)
        .map(|id| graph.state.dictionary.value(id));
    let bytes = bytes::unpack(chunks, size)?;
    Some((document, bytes))
}

/// A location in a document at `base` as a URL (RFC 3986, section 5.2).
#[must_use]
pub fn resolve(base: Option<&str>, location: &str) -> String {
    let location = location.trim();
    let location = location.split('#').next().unwrap_or_default();
    let scheme = location.split_once(':').map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        let mut bytes = scheme.bytes();
        let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic()) && bytes.all(rest)
    };
    let Some(base) = base.filter(|_| !scheme.is_some_and(is_scheme)) else {
        return location.to_owned();
    };
    let base = base.split('#').next().unwrap_or_default();
    let Some((scheme, rest)) = base.split_once("://") else {
        return location.to_owned();
    };
    if let Some(rest) = location.strip_prefix("//") {
        return format!("{scheme}://{rest}");
    }
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let path = path.split('?').next().unwrap_or_default();
    if location.is_empty() {
        return base.to_owned();
    }
    if location.starts_with('?') {
        return format!("{scheme}://{authority}{path}{location}");
    }
    let (relative, query) = match location.split_once('?') {
        Some((relative, query)) => (relative, format!("?{query}")),
        None => (location, String::new()),
    };
    let directory = path
        .rfind('/')
        .map_or("/", |slash| path.get(..=slash).unwrap_or("/"));
    let joined = match relative.starts_with('/') {
        true => relative.to_owned(),
        false => format!("{directory}{relative}"),
    };
    format!("{scheme}://{authority}{}{query}", without_dots(&joined))
}

/// An absolute path without the segments `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_relative_to_their_document() {
        let base = Some("http://192.0.2.1:80/a/b?wsdl");
        for (location, expected) in [
            ("http://192.0.2.2/x", "http://192.0.2.2/x"),
            ("urn:x", "urn:x"),
            ("/x.xsd", "http://192.0.2.1:80/x.xsd"),
            ("x.xsd#y", "http://192.0.2.1:80/a/x.xsd"),
            ("./x.xsd", "http://192.0.2.1:80/a/x.xsd"),
            (
                "../../c/./x.xsd?v=../1",
                "http://192.0.2.1:80/c/x.xsd?v=../1",
            ),
            ("c/..", "http://192.0.2.1:80/a/"),
            ("?xsd=1", "http://192.0.2.1:80/a/b?xsd=1"),
            ("//192.0.2.3/y", "http://192.0.2.3/y"),
            ("", "http://192.0.2.1:80/a/b?wsdl"),
        ] {
            assert_eq!(resolve(base, location), expected, "{location}");
        }
        assert_eq!(resolve(Some("http://192.0.2.1"), "x"), "http://192.0.2.1/x");
        assert_eq!(resolve(None, "x"), "x");
        assert_eq!(resolve(Some("urn:x"), "x"), "x");
    }
}

//! The documents of a service: WSDL, schemas, and their imports.
//!
//! Documents are untrusted and may have megabytes. Every function here takes time in proportion to their
//! bytes, which are limited, and runs only on the threads of

use chappe_soap::schema::{NAMESPACE as SCHEMA, Schemas};
use chappe_soap::wsdl::Wsdl;
use chappe_xml::{Element, Limits, Reason};

use super::{ClientOptions, Document, Note};

/// The largest number of notes of one description. Default 100: further ones do not help.
pub(super) const NOTES_MAX: usize = 100;

/// Documents of one service, read so far.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) wsdl: Wsdl,
    pub(super) schemas: Schemas,
    pub(super) read: Vec<Document>,
    /// Problems found in them.
    pub(super) notes: Vec<Note>,
    /// The reason why the metadata or a WSDL could not be read, if another attempt may succeed.
    pub(super) unread: Option<Note>,
    /// The rest of [`ClientOptions::description_bytes`](super::ClientOptions::description_bytes).
    pub(super) bytes_left: usize,
}

/// The kind of an imported document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Wsdl,
    Schema,
}

impl Documents {
    pub(super) fn note(&mut self, reason: &'static str, detail: String, hint: Option<&str>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(Note {
                reason,
                detail,
                hint: hint.map(str::to_owned),
            });
        }
    }

    /// Records that another attempt may read the document of the last note.
    pub(super) fn unread_if_wsdl(&mut self, kind: Kind) {
        if kind == Kind::Wsdl {
            self.unread = self.notes.last().cloned();
        }
    }

    fn too_large(&mut self, location: &str) {
        let hint = "raise the limit of description bytes";
        self.note("description too large", location.to_owned(), Some(hint));
    }

    /// Adds a WSDL that is inline in the metadata.
    pub(super) fn inline(&mut self, location: &str, root: &Element) {
        let text = root.to_text();
        match self.spend(root, &text) {
            true => self.wsdl(location, root, text),
            false => self.too_large(location),
        }
    }

    /// Charges a document against the remaining bytes: its tree, and its text, which is kept and may
    /// consist of comments.
    fn spend(&mut self, root: &Element, text: &str) -> bool {
        let bytes = root.expanded_bytes() + text.len();
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }

    /// Adds a document from its text, with a limit in bytes.
    pub(super) fn text(&mut self, kind: Kind, location: &str, text: &[u8], bytes: usize) {
        let limits = Limits {
            bytes,
            expanded_bytes: self.bytes_left.min(Limits::default().expanded_bytes),
            ..Limits::default()
        };
        let root = match Element::parse_within(text, limits) {
            Ok(root) => root,
            Err(error) if is_expanded(&error.reason) => return self.too_large(location),
            Err(error) => {
                self.note("document not read", format!("{location}: {error}"), None);
                return self.unread_if_wsdl(kind);
            }
        };
        let text = String::from_utf8_lossy(text).into_owned();
        if !self.spend(&root, &text) {
            return self.too_large(location);
        }
        match kind {
            Kind::Wsdl => self.wsdl(location, &root, text),
            Kind::Schema => {
                self.schema(location, &root);
                let location = location.to_owned();
                self.read.push(Document { location, text });
            }
        }
    }

    /// No documents of one service yet, within the usual limits.
    pub(super) fn of_service() -> Self {
        Self {
            bytes_left: ClientOptions::default().description_bytes,
            ..Self::default()
        }
    }

    /// Adds a document that the application has: the first is a WSDL, a further one also a schema.
    pub(super) fn given(&mut self, document: &Document) {
        let limits = Limits::default();
        let is_schema = !self.read.is_empty()
            && Element::parse_within(document.text.as_bytes(), limits)
                .is_ok_and(|root| root.name.is(SCHEMA, "schema"));
        let kind = if is_schema { Kind::Schema } else { Kind::Wsdl };
        let (location, text) = (&document.location, document.text.as_bytes());
        self.text(kind, location, text, limits.bytes);
    }

    /// Adds a WSDL document with the schemas inside.
    fn wsdl(&mut self, location: &str, root: &Element, text: String) {
        let wsdl = Wsdl::from_element(root).and_then(|mut wsdl| {
            let schemas = std::mem::take(&mut wsdl.schemas);
            if self.read.is_empty() {
                self.wsdl = wsdl;
            } else {
                self.wsdl.merge(wsdl)?;
            }
            Ok(schemas)
        });
        match wsdl {
            Ok(schemas) => {
                for schema in &schemas {
                    self.schema(location, schema);
                }
                let location = location.to_owned();
                self.read.push(Document { location, text });
            }
            Err(error) => self.note("unusable WSDL", format!("{location}: {error}"), None),
        }
    }

    fn schema(&mut self, location: &str, root: &Element) {
        if let Err(error) = self.schemas.add(location, root) {
            self.note("unusable schema", format!("{location}: {error}"), None);
        }
    }

    /// The next document imported by WSDL or schemas that was not requested yet.
    pub(super) fn next_import(&self, asked: &[String]) -> Option<(Kind, String)> {
        let wsdl = self.wsdl.imports.iter();
        let wsdl = wsdl.filter_map(|import| Some((Kind::Wsdl, import.location.clone()?)));
        let schemas = self.schemas.missing().into_iter();
        let schemas = schemas.filter_map(|reference| Some((Kind::Schema, reference.location?)));
        wsdl.chain(schemas)
            .find(|(_, location)| !asked.contains(location))
    }
}

fn is_expanded(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Limit {
            limit: "expanded_bytes",
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_count_against_the_limit() {
        let comment = "x".repeat(1_000);
        let text = format!(
            "<s:schema xmlns:s='http://www.w3.org/2001/XMLSchema'><!--{comment}--></s:schema>"
        );
        let mut documents = Documents {
            bytes_left: 5_000,
            ..Documents::default()
        };
        for number in 0..10 {
            documents.text(Kind::Schema, &number.to_string(), text.as_bytes(), 4_000);
        }
        let kept: usize = documents.read.iter().map(|one| one.text.len()).sum();
        assert!(
            (1_000..5_000).contains(&kept),
            "{kept} bytes of text are kept"
        );
        let refused = documents.notes.iter();
        let refused = refused.filter(|note| note.reason == "description too large");
        assert_eq!(refused.count() + documents.read.len(), 10);
    }
}

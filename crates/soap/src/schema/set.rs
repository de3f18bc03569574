//! Sets of schema documents, and what they declare by name.

use std::cmp::Ordering;

use chappe_xml::{Element, Name, Namespace};

use super::NAMESPACE;
use super::declaration::{Attribute, Complex, Declaration, Definition};
use super::parse::{Defaults, attribute, complex, declaration, is_xsd, simple};
use crate::scope::Scoped;

/// Schema documents in one set. Default 256: an SDC provider has 8.
const DOCUMENTS_MAX: usize = 256;
/// Bytes of a target namespace, which is part of all names of the document. Default 1,024, as in
/// the XML reader.
const NAMESPACE_BYTES_MAX: usize = 1_024;

/// A schema document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The root element is not a schema.
    #[error("{0} is not an XML Schema")]
    NotSchema(Name),
    /// The set has too many documents or references.
    #[error("more than {DOCUMENTS_MAX} schema documents, imports and includes")]
    TooMany,
    /// The target namespace exceeds the limit.
    #[error("the target namespace exceeds {NAMESPACE_BYTES_MAX} bytes")]
    LongNamespace,
}

/// A reference to another schema document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaReference {
    /// The namespace of an import; for an include, that of the including document.
    pub namespace: String,
    /// The document's location; often relative, often absent.
    pub location: Option<String>,
}

/// A set of schema documents.
///
/// ```
/// use chappe_soap::schema::Schemas;
/// use chappe_xml::{Element, Name, Namespace};
/// let document = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:t="urn:t"
///     targetNamespace="urn:t" elementFormDefault="qualified">
///   <xs:element name="Report"><xs:complexType><xs:sequence>
///     <xs:element name="Temperature" type="xs:double"/>
///   </xs:sequence></xs:complexType></xs:element>
/// </xs:schema>"#;
/// let mut schemas = Schemas::default();
/// schemas.add("report.xsd", &Element::parse(document)?)?;
/// let flat = schemas.flat(&Name::new("urn:t", "Report"))?;
/// assert_eq!(flat.fields[0].data_type.local(), "double");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Schemas {
    pub(super) documents: Vec<Document>,
}

#[derive(Debug, Clone)]
pub(super) struct Document {
    pub(super) file: String,
    target_namespace: Namespace,
    // Each list is sorted by name for binary search.
    elements: Vec<Declaration>,
    attributes: Vec<Attribute>,
    /// Attribute groups, represented as types without elements.
    groups: Vec<(String, Complex)>,
    /// Groups of elements, as types without attributes.
    model_groups: Vec<(String, Complex)>,
    types: Vec<(String, Definition)>,
    /// Whether the reference is an include, and the reference.
    references: Vec<(bool, SchemaReference)>,
}

impl Schemas {
    /// Adds a document; `file` is its name in error messages.
    ///
    /// # Errors
    /// [`SchemaError`] if it is not a schema, or the set is full.
    pub fn add(&mut self, file: &str, root: &Element) -> Result<(), SchemaError> {
        if !is_xsd(root, "schema") {
            return Err(SchemaError::NotSchema(root.name.clone()));
        }
        if self.documents.len() == DOCUMENTS_MAX {
            return Err(SchemaError::TooMany);
        }
        let scope = Scoped::root(root);
        let target_namespace = scope.attribute("targetNamespace").unwrap_or_default();
        if target_namespace.len() > NAMESPACE_BYTES_MAX {
            return Err(SchemaError::LongNamespace);
        }
        let target_namespace = Namespace::from(target_namespace.to_owned());
        let defaults = Defaults {
            target_namespace: &target_namespace,
            qualified_elements: scope.attribute("elementFormDefault") == Some("qualified"),
            qualified_attributes: scope.attribute("attributeFormDefault") == Some("qualified"),
        };
        let mut document = Document {
            file: file.to_owned(),
            target_namespace: target_namespace.clone(),
            elements: Vec::new(),
            attributes: Vec::new(),
            groups: Vec::new(),
            model_groups: Vec::new(),
            types: Vec::new(),
            references: Vec::new(),
        };
        for child in root.elements() {
            document.add(&scope.child(child), &defaults);
        }
        let references = self.documents.iter().map(|known| known.references.len());
        if references.sum::<usize>() + document.references.len() > DOCUMENTS_MAX {
            return Err(SchemaError::TooMany);
        }
        document.sort();
        self.documents.push(document);
        Ok(())
    }

    /// Referenced documents that are not in the set. Imports are compared by namespace, includes by
    /// the end of the file name.
    #[must_use]
    pub fn missing(&self) -> Vec<SchemaReference> {
        let mut missing: Vec<SchemaReference> = Vec::new();
        let references = self
            .documents
            .iter()
            .flat_map(|document| &document.references);
        for (include, reference) in references {
            let location = reference.location.as_deref().unwrap_or_default();
            let is_present = self.documents.iter().any(|document| match include {
                true => document.file.ends_with(location),
                false => document.target_namespace == *reference.namespace,
            });
            if !is_present && !missing.contains(reference) {
                missing.push(reference.clone());
            }
        }
        missing
    }

    /// The global elements of all documents.
    pub fn elements(&self) -> impl Iterator<Item = &Name> {
        let declarations = self
            .documents
            .iter()
            .flat_map(|document| &document.elements);
        declarations.map(|declaration| &declaration.name)
    }

    pub(super) fn element(&self, name: &Name) -> Option<(&Document, &Declaration)> {
        self.documents.iter().find_map(|document| {
            let found = find(&document.elements, |element| element.name.cmp(name));
            found.map(|element| (document, element))
        })
    }

    pub(super) fn attribute(&self, name: &Name) -> Option<&Attribute> {
        let mut documents = self.documents.iter();
        documents.find_map(|document| find(&document.attributes, |known| known.name.cmp(name)))
    }

    pub(super) fn group(&self, name: &Name) -> Option<(&Document, &Complex)> {
        self.in_namespace(name).find_map(|document| {
            let found = find(&document.groups, |(local, _)| (**local).cmp(&*name.local));
            found.map(|(_, group)| (document, group))
        })
    }

    pub(super) fn model_group(&self, name: &Name) -> Option<(&Document, &Complex)> {
        self.in_namespace(name).find_map(|document| {
            let groups = &document.model_groups;
            let found = find(groups, |(local, _)| (**local).cmp(&*name.local));
            found.map(|(_, group)| (document, group))
        })
    }

    pub(super) fn definition(&self, name: &Name) -> Option<(&Document, &Definition)> {
        self.in_namespace(name).find_map(|document| {
            let found = find(&document.types, |(local, _)| (**local).cmp(&*name.local));
            found.map(|(_, definition)| (document, definition))
        })
    }

    fn in_namespace(&self, name: &Name) -> impl Iterator<Item = &Document> {
        let documents = self.documents.iter();
        documents.filter(|document| document.target_namespace == name.namespace)
    }
}

/// The first matching entry of a sorted list.
fn find<T>(sorted: &[T], compare: impl Fn(&T) -> Ordering) -> Option<&T> {
    let index = sorted.partition_point(|entry| compare(entry).is_lt());
    sorted.get(index).filter(|entry| compare(entry).is_eq())
}

impl Document {
    fn sort(&mut self) {
        self.elements
            .sort_by(|one, other| one.name.cmp(&other.name));
        self.attributes
            .sort_by(|one, other| one.name.cmp(&other.name));
        self.groups.sort_by(|one, other| one.0.cmp(&other.0));
        self.model_groups.sort_by(|one, other| one.0.cmp(&other.0));
        self.types.sort_by(|one, other| one.0.cmp(&other.0));
    }

    fn add(&mut self, scope: &Scoped<'_>, defaults: &Defaults<'_>) {
        let name = scope.attribute("name").map(str::to_owned);
        match (&*scope.element.name.local, name) {
            _ if scope.element.name.namespace != NAMESPACE => {}
            ("element", Some(_)) => self.elements.extend(declaration(scope, defaults, true, 0)),
            ("attribute", Some(_)) => self.attributes.extend(attribute(scope, defaults, true)),
            (kind @ ("attributeGroup" | "group"), Some(name)) => {
                let mut group = Complex::default();
                group.add_content(scope, defaults, 0);
                match kind {
                    "group" => self.model_groups.push((name, group)),
                    _ => self.groups.push((name, group)),
                }
            }
            ("simpleType", Some(name)) => self.types.push((name, simple(scope, 0))),
            ("complexType", Some(name)) => self.types.push((name, complex(scope, defaults, 0))),
            (kind @ ("import" | "include"), _) => {
                let namespace = match kind {
                    "import" => scope.attribute("namespace").unwrap_or_default(),
                    _ => &**defaults.target_namespace,
                };
                let reference = SchemaReference {
                    namespace: namespace.to_owned(),
                    location: scope.attribute("schemaLocation").map(str::to_owned),
                };
                self.references.push((kind == "include", reference));
            }
            _ => {}
        }
    }
}

//! Parsing of schema documents into declarations with resolved names.

use std::cmp::Ordering;

use chappe_xml::{Element, Name, Namespace};

use super::{ANNOTATIONS, NAMESPACE, SAWSDL};
use crate::scope::Scoped;

/// Schema documents in one set. Default 256: an SDC provider has 8.
const DOCUMENTS_MAX: usize = 256;
/// Bytes of a target namespace, which is part of all names of the document. Default 1,024, as in
/// the XML reader.
const NAMESPACE_BYTES_MAX: usize = 1_024;
/// Nesting of declarations and definitions, below the XML reader's own limit.
const NESTING_MAX: usize = 32;

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

#[derive(Debug, Clone)]
pub(super) struct Declaration {
    pub(super) name: Name,
    pub(super) content: Content,
    pub(super) occurs: Occurs,
    pub(super) is_abstract: bool,
    pub(super) is_nillable: bool,
    pub(super) notes: Notes,
}

/// The least and the largest number of occurrences; `None` is any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurs {
    /// The least number.
    pub min: u32,
    /// The largest number.
    pub max: Option<u32>,
}

impl Occurs {
    /// Exactly once.
    pub const ONCE: Self = Self {
        min: 1,
        max: Some(1),
    };

    /// Those of `minOccurs` and `maxOccurs`. A number that is not readable counts as absent.
    fn of(scope: &Scoped<'_>) -> Self {
        let number = |text: &str| text.parse().ok();
        let max = scope.attribute("maxOccurs");
        Self {
            min: scope.attribute("minOccurs").and_then(number).unwrap_or(1),
            max: match max {
                Some("unbounded") => None,
                max => Some(max.and_then(number).unwrap_or(1)),
            },
        }
    }

    /// Whether there may be none.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        self.min == 0
    }

    /// Whether there may be several.
    #[must_use]
    pub fn is_repeated(self) -> bool {
        self.max.is_none_or(|max| max > 1)
    }
}

/// A part of a content model.
#[derive(Debug, Clone)]
pub(super) enum Particle {
    Element(Box<Declaration>),
    Group(GroupKind, Occurs, Vec<Particle>),
    /// `xs:group` with the name of its definition.
    Reference(Occurs, Name),
    Any(Occurs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// A sequence, or elements in any order.
    Sequence,
    Choice,
}

#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) name: Name,
    pub(super) content: Content,
    pub(super) required: bool,
    pub(super) notes: Notes,
}

/// The content of an element or attribute.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Named(Name),
    Inline(Box<Definition>),
    /// `ref` to a global declaration.
    Reference(Name),
    /// A QName with an undeclared prefix.
    Unbound(String),
    Anything,
}

#[derive(Debug, Clone)]
pub(super) enum Definition {
    Simple(Simple, Notes),
    Complex(Box<Complex>),
}

#[derive(Debug, Clone)]
pub(super) enum Simple {
    Restriction(Content, Box<Facets>),
    List(Content),
    Union(Vec<Content>),
}

/// The limits of a simple type (XML Schema part 2, section 4.3). Patterns, white space and digits are
/// not read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facets {
    /// The permitted values; empty permits all values of the type.
    pub enumeration: Vec<String>,
    /// The least value, and whether it is itself permitted.
    pub min: Option<(String, bool)>,
    /// The largest value, and whether it is itself permitted.
    pub max: Option<(String, bool)>,
    /// The least length in characters, bytes or items.
    pub min_length: Option<u64>,
    /// The largest length in characters, bytes or items.
    pub max_length: Option<u64>,
}

impl Facets {
    fn of(restriction: &Element) -> Self {
        let mut facets = Self::default();
        for facet in restriction.elements() {
            let value = facet.attribute(&Name::local("value"));
            let Some(value) = value.filter(|_| facet.name.namespace == NAMESPACE) else {
                continue;
            };
            let length = || value.trim().parse().ok();
            let limit = |is_permitted| Some((value.trim().to_owned(), is_permitted));
            match &*facet.name.local {
                "enumeration" => facets.enumeration.push(value.to_owned()),
                "minInclusive" => facets.min = limit(true),
                "minExclusive" => facets.min = limit(false),
                "maxInclusive" => facets.max = limit(true),
                "maxExclusive" => facets.max = limit(false),
                "minLength" => facets.min_length = length(),
                "maxLength" => facets.max_length = length(),
                "length" => {
                    facets.min_length = length();
                    facets.max_length = length();
                }
                _ => {}
            }
        }
        facets
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Complex {
    /// The extended type.
    pub(super) base: Option<Content>,
    pub(super) simple_content: bool,
    pub(super) mixed: bool,
    pub(super) is_abstract: bool,
    pub(super) is_restricted: bool,
    /// Documentation for people.
    pub(super) doc: Option<String>,
    pub(super) content: Vec<Particle>,
    /// Limits of text that is restricted.
    pub(super) facets: Facets,
    pub(super) attributes: Vec<Attribute>,
    /// Attribute groups of the type.
    pub(super) groups: Vec<Name>,
}

/// Annotations of a declaration.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    pub(super) doc: Option<String>,
    pub(super) model_reference: Vec<String>,
    pub(super) unit: Option<String>,
    pub(super) sample_period: Option<String>,
}

/// The document's defaults for its declarations.
struct Defaults<'a> {
    target_namespace: &'a Namespace,
    qualified_elements: bool,
    qualified_attributes: bool,
}

fn is_xsd(element: &Element, local: &str) -> bool {
    element.name.is(NAMESPACE, local)
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
                group.content(scope, defaults, 0);
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

fn notes(element: &Element) -> Notes {
    let attribute = |namespace, local| {
        let value = element.attribute(&Name::new(namespace, local));
        value.map(str::trim).filter(|value| !value.is_empty())
    };
    let documentation = element
        .elements()
        .filter(|child| is_xsd(child, "annotation"))
        .flat_map(Element::elements)
        .find(|child| is_xsd(child, "documentation"));
    let doc = documentation.map(|text| {
        let words: Vec<_> = text.text().split_whitespace().map(str::to_owned).collect();
        words.join(" ")
    });
    let references = attribute(SAWSDL, "modelReference").unwrap_or_default();
    Notes {
        doc: doc.filter(|doc| !doc.is_empty()),
        model_reference: references.split_whitespace().map(str::to_owned).collect(),
        unit: attribute(ANNOTATIONS, "unit").map(str::to_owned),
        sample_period: attribute(ANNOTATIONS, "samplePeriod").map(str::to_owned),
    }
}

/// The type named by an attribute.
fn type_reference(scope: &Scoped<'_>, attribute: &'static str) -> Option<Content> {
    Some(reference(scope, scope.attribute(attribute)?))
}

/// The type of this qualified name.
fn reference(scope: &Scoped<'_>, text: &str) -> Content {
    let unbound = || Content::Unbound(text.chars().take(64).collect());
    scope.resolve(text).map_or_else(unbound, Content::Named)
}

/// Parses an `xs:element`; `None` if it has neither name nor reference.
fn declaration(
    scope: &Scoped<'_>,
    defaults: &Defaults<'_>,
    global: bool,
    nesting: usize,
) -> Option<Declaration> {
    let qualified = match scope.attribute("form") {
        Some(form) => form == "qualified",
        None => global || defaults.qualified_elements,
    };
    let (name, content) = match scope.qname("ref") {
        Some(reference) => (reference.clone(), Content::Reference(reference)),
        None => {
            let namespace = match qualified {
                true => defaults.target_namespace,
                false => &Namespace::NONE,
            };
            let name = Name::inside(namespace, scope.attribute("name")?);
            (name, element_content(scope, defaults, nesting))
        }
    };
    Some(Declaration {
        name,
        content,
        occurs: Occurs::of(scope),
        is_abstract: scope.attribute("abstract") == Some("true"),
        is_nillable: matches!(scope.attribute("nillable"), Some("true" | "1")),
        notes: notes(scope.element),
    })
}

fn element_content(scope: &Scoped<'_>, defaults: &Defaults<'_>, nesting: usize) -> Content {
    if let Some(content) = type_reference(scope, "type") {
        return content;
    }
    if nesting == NESTING_MAX {
        return Content::Anything;
    }
    for child in scope.element.elements() {
        let inner = scope.child(child);
        if is_xsd(child, "simpleType") {
            return Content::Inline(Box::new(simple(&inner, nesting + 1)));
        }
        if is_xsd(child, "complexType") {
            return Content::Inline(Box::new(complex(&inner, defaults, nesting + 1)));
        }
    }
    Content::Anything
}

/// Parses an `xs:attribute`; `None` if it is prohibited or has neither name nor reference.
fn attribute(scope: &Scoped<'_>, defaults: &Defaults<'_>, global: bool) -> Option<Attribute> {
    if scope.attribute("use") == Some("prohibited") {
        return None;
    }
    let qualified = match scope.attribute("form") {
        Some(form) => form == "qualified",
        None => global || defaults.qualified_attributes,
    };
    let (name, content) = match scope.qname("ref") {
        Some(reference) => (reference.clone(), Content::Reference(reference)),
        None => {
            let namespace = match qualified {
                true => defaults.target_namespace,
                false => &Namespace::NONE,
            };
            let name = Name::inside(namespace, scope.attribute("name")?);
            let content = match element_content(scope, defaults, 0) {
                // An attribute without type has any simple type.
                Content::Anything => Content::Named(Name::new(NAMESPACE, "anySimpleType")),
                other => other,
            };
            (name, content)
        }
    };
    Some(Attribute {
        name,
        content,
        required: scope.attribute("use") == Some("required"),
        notes: notes(scope.element),
    })
}

fn simple(scope: &Scoped<'_>, nesting: usize) -> Definition {
    let notes = notes(scope.element);
    let inline = |scope: &Scoped<'_>| {
        let child = scope
            .element
            .elements()
            .find(|child| is_xsd(child, "simpleType"));
        match child {
            Some(child) if nesting < NESTING_MAX => {
                Content::Inline(Box::new(simple(&scope.child(child), nesting + 1)))
            }
            _ => Content::Anything,
        }
    };
    for child in scope.element.elements() {
        let inner = scope.child(child);
        if is_xsd(child, "restriction") {
            let base = type_reference(&inner, "base").unwrap_or_else(|| inline(&inner));
            return Definition::Simple(
                Simple::Restriction(base, Box::new(Facets::of(child))),
                notes,
            );
        }
        if is_xsd(child, "list") {
            let item = type_reference(&inner, "itemType").unwrap_or_else(|| inline(&inner));
            return Definition::Simple(Simple::List(item), notes);
        }
        if is_xsd(child, "union") {
            let named = inner.attribute("memberTypes").unwrap_or_default();
            let named = named.split_whitespace().map(|text| reference(&inner, text));
            let mut members: Vec<Content> = named.collect();
            let inline = child
                .elements()
                .filter(|child| is_xsd(child, "simpleType") && nesting < NESTING_MAX);
            members.extend(inline.map(|child| {
                let definition = simple(&inner.child(child), nesting + 1);
                Content::Inline(Box::new(definition))
            }));
            return Definition::Simple(Simple::Union(members), notes);
        }
    }
    Definition::Simple(
        Simple::Restriction(Content::Anything, Box::default()),
        notes,
    )
}

fn complex(scope: &Scoped<'_>, defaults: &Defaults<'_>, nesting: usize) -> Definition {
    let mut complex = Complex {
        mixed: scope.attribute("mixed") == Some("true"),
        is_abstract: scope.attribute("abstract") == Some("true"),
        doc: notes(scope.element).doc,
        ..Complex::default()
    };
    let content = scope
        .element
        .elements()
        .find(|child| is_xsd(child, "simpleContent") || is_xsd(child, "complexContent"));
    let Some(content) = content else {
        complex.content(scope, defaults, nesting);
        return Definition::Complex(Box::new(complex));
    };
    let outer = scope.child(content);
    complex.simple_content = is_xsd(content, "simpleContent");
    complex.mixed |= outer.attribute("mixed") == Some("true");
    for child in content.elements() {
        let inner = outer.child(child);
        if is_xsd(child, "extension") {
            complex.base = Some(type_reference(&inner, "base").unwrap_or(Content::Anything));
            complex.content(&inner, defaults, nesting);
        } else if is_xsd(child, "restriction") {
            complex.is_restricted = true;
            complex.base = type_reference(&inner, "base");
            complex.facets = Facets::of(child);
            complex.content(&inner, defaults, nesting);
        }
    }
    Definition::Complex(Box::new(complex))
}

impl Complex {
    /// Adds the particles and attributes below `scope`.
    fn content(&mut self, scope: &Scoped<'_>, defaults: &Defaults<'_>, nesting: usize) {
        self.content.extend(particles(scope, defaults, nesting));
        for child in scope.element.elements() {
            let inner = scope.child(child);
            match &*child.name.local {
                _ if child.name.namespace != NAMESPACE => {}
                "attribute" => self.attributes.extend(attribute(&inner, defaults, false)),
                "attributeGroup" => self.groups.extend(inner.qname("ref")),
                _ => {}
            }
        }
    }

    /// The elements of a content model that is one sequence.
    pub(super) fn elements(&self) -> impl Iterator<Item = &Declaration> {
        self.sequence().filter_map(|particle| match particle {
            Particle::Element(element) => Some(&**element),
            _ => None,
        })
    }

    /// Whether the sequence has a required wildcard.
    pub(super) fn has_wildcard(&self) -> bool {
        let mut particles = self.sequence();
        particles.any(|particle| matches!(particle, Particle::Any(occurs) if occurs.min > 0))
    }

    fn sequence(&self) -> impl Iterator<Item = &Particle> {
        let groups = self.content.iter().map(|particle| match particle {
            Particle::Group(GroupKind::Sequence, _, particles) => particles.as_slice(),
            _ => &[],
        });
        groups.flatten()
    }

    /// A construct of the content model that is never flat.
    pub(super) fn not_flat_construct(&self) -> Option<&'static str> {
        let inside = self.sequence().filter_map(|particle| match particle {
            Particle::Group(GroupKind::Sequence, ..) => Some("a nested sequence"),
            other => construct(other),
        });
        let outside = self.content.iter().filter_map(construct);
        outside.chain(inside).last()
    }
}

fn construct(particle: &Particle) -> Option<&'static str> {
    match particle {
        Particle::Group(GroupKind::Sequence, occurs, _) => {
            (occurs.max != Some(1)).then_some("a repeated sequence")
        }
        Particle::Group(GroupKind::Choice, ..) => Some("xs:choice"),
        Particle::Reference(..) => Some("xs:group"),
        Particle::Element(_) | Particle::Any(_) => None,
    }
}

/// The particles below `scope`.
fn particles(scope: &Scoped<'_>, defaults: &Defaults<'_>, nesting: usize) -> Vec<Particle> {
    let mut found = Vec::new();
    for child in scope.element.elements() {
        let inner = scope.child(child);
        let occurs = Occurs::of(&inner);
        match &*child.name.local {
            _ if child.name.namespace != NAMESPACE => {}
            "element" => {
                let declaration = declaration(&inner, defaults, false, nesting);
                found.extend(declaration.map(|element| Particle::Element(Box::new(element))));
            }
            "any" => found.push(Particle::Any(occurs)),
            "group" => {
                let reference = inner.qname("ref");
                found.extend(reference.map(|name| Particle::Reference(occurs, name)));
            }
            kind @ ("sequence" | "all" | "choice") => {
                let kind = match kind {
                    "choice" => GroupKind::Choice,
                    _ => GroupKind::Sequence,
                };
                // Deeper content allows anything, as that of deeper elements does.
                let inside = match nesting < NESTING_MAX {
                    true => particles(&inner, defaults, nesting + 1),
                    false => vec![Particle::Any(Occurs::ONCE)],
                };
                found.push(Particle::Group(kind, occurs, inside));
            }
            _ => {}
        }
    }
    found
}

//! Parsing of schema documents into declarations with resolved names.

use chappe_xml::{Element, Name, Namespace};

use super::declaration::{
    Attribute, Complex, Content, Declaration, Definition, Facets, GroupKind, Notes, Occurs,
    Particle, Simple,
};
use super::{ANNOTATIONS, NAMESPACE, SAWSDL};
use crate::scope::Scoped;

/// Nesting of declarations and definitions, below the XML reader's own limit.
const NESTING_MAX: usize = 32;

/// The document's defaults for its declarations.
pub(super) struct Defaults<'a> {
    pub(super) target_namespace: &'a Namespace,
    pub(super) qualified_elements: bool,
    pub(super) qualified_attributes: bool,
}

pub(super) fn is_xsd(element: &Element, local: &str) -> bool {
    element.name.is(NAMESPACE, local)
}

impl Occurs {
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
pub(super) fn declaration(
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
pub(super) fn attribute(
    scope: &Scoped<'_>,
    defaults: &Defaults<'_>,
    global: bool,
) -> Option<Attribute> {
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

pub(super) fn simple(scope: &Scoped<'_>, nesting: usize) -> Definition {
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

pub(super) fn complex(scope: &Scoped<'_>, defaults: &Defaults<'_>, nesting: usize) -> Definition {
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
        complex.add_content(scope, defaults, nesting);
        return Definition::Complex(Box::new(complex));
    };
    let outer = scope.child(content);
    complex.simple_content = is_xsd(content, "simpleContent");
    complex.mixed |= outer.attribute("mixed") == Some("true");
    for child in content.elements() {
        let inner = outer.child(child);
        if is_xsd(child, "extension") {
            complex.base = Some(type_reference(&inner, "base").unwrap_or(Content::Anything));
            complex.add_content(&inner, defaults, nesting);
        } else if is_xsd(child, "restriction") {
            complex.is_restricted = true;
            complex.base = type_reference(&inner, "base");
            complex.facets = Facets::of(child);
            complex.add_content(&inner, defaults, nesting);
        }
    }
    Definition::Complex(Box::new(complex))
}

impl Complex {
    /// Adds the particles and attributes below `scope`.
    pub(super) fn add_content(
        &mut self,
        scope: &Scoped<'_>,
        defaults: &Defaults<'_>,
        nesting: usize,
    ) {
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

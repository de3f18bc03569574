//! Declarations and definitions with resolved names.

use chappe_xml::Name;

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

impl Complex {
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

//! Complex types: attributes, wildcards and content models.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::documents::Component;
use super::simple::Simple;
use super::{Compiler, TypeDefinition, XsdError};
use crate::schema::XSD_NAMESPACE;
use crate::schema::builder::{ElementDeclaration, Expanded};
use crate::schema::model::{self, Attribute, Content, Namespaces, Particle, Term};

/// Maximum nesting of model groups.
const DEPTH_MAX: usize = 64;

/// The namespaces of a wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wildcard {
    Any,
    Not(String),
    These(Vec<String>),
}

impl Wildcard {
    fn namespaces(&self) -> Namespaces {
        match self {
            Self::Any | Self::Not(_) => Namespaces::Any,
            Self::These(these) => Namespaces::Listed(these.clone()),
        }
    }

    fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::These(mut a), Self::These(b)) => {
                for one in b {
                    if !a.contains(&one) {
                        a.push(one);
                    }
                }
                Self::These(a)
            }
            (Self::Not(a), Self::Not(b)) if a == b => Self::Not(a),
            (Self::Not(not), Self::These(these)) | (Self::These(these), Self::Not(not))
                if !these.contains(&not) =>
            {
                Self::Not(not)
            }
            _ => Self::Any,
        }
    }

    fn intersection(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, other) | (other, Self::Any) => other,
            (Self::These(mut a), Self::These(b)) => {
                a.retain(|one| b.contains(one));
                Self::These(a)
            }
            (Self::Not(not), Self::These(mut these)) | (Self::These(mut these), Self::Not(not)) => {
                these.retain(|one| *one != not && !one.is_empty());
                Self::These(these)
            }
            (not, Self::Not(_)) => not,
        }
    }
}

/// The content of a complex type.
#[derive(Clone, Debug)]
pub(super) enum ContentType {
    Simple(Box<Simple>),
    Model {
        particle: Option<Particle>,
        mixed: bool,
    },
}

/// The properties of a complex type that matter to EXI.
#[derive(Clone, Debug)]
pub(super) struct Complex {
    attributes: Vec<Attribute>,
    wildcard: Option<Wildcard>,
    content: ContentType,
}

impl Complex {
    /// The ur-type.
    pub(super) fn any() -> Self {
        let particle = Particle {
            min: 0,
            max: None,
            term: Term::Wildcard(Namespaces::Any),
        };
        Self {
            attributes: Vec::new(),
            wildcard: Some(Wildcard::Any),
            content: ContentType::Model {
                particle: Some(particle),
                mixed: true,
            },
        }
    }
}

/// Attribute uses while they are collected.
#[derive(Default)]
struct AttributeUses {
    uses: Vec<Attribute>,
    prohibited: Vec<Expanded>,
    wildcard: Option<Wildcard>,
}

impl Compiler {
    pub(super) fn complex_named(
        &mut self,
        at: &Component,
        name: &Expanded,
    ) -> Result<Rc<Complex>, XsdError> {
        if let Some(known) = self.complex.get(name) {
            return Ok(known.clone());
        }
        let component = self.documents.types.get(name).cloned();
        let component =
            component.ok_or_else(|| at.fail(format!("type {} is not declared", name.1)))?;
        let complex =
            self.follow_derivation(at, name, |compiler| compiler.complex_type(&component))?;
        let complex = Rc::new(complex);
        self.complex.insert(name.clone(), complex.clone());
        Ok(complex)
    }

    pub(super) fn complex_type(&mut self, component: &Component) -> Result<Complex, XsdError> {
        let mixed = component.tree.is_true("mixed");
        let Some(content) = component.tree.part(&["simpleContent", "complexContent"]) else {
            let uses = self.attribute_uses(component, 0)?;
            let particle = self.model(component, 0)?;
            return Ok(Complex {
                attributes: uses.uses,
                wildcard: uses.wildcard,
                content: ContentType::Model { particle, mixed },
            });
        };
        let mixed = content
            .attribute("mixed")
            .map_or(mixed, |_| content.is_true("mixed"));
        let Some(derived) = content.part(&["restriction", "extension"]) else {
            return Err(component.fail("the content has neither a restriction nor an extension"));
        };
        let derived_at = component.child(derived);
        let Some(base) = derived.attribute("base") else {
            return Err(derived_at.fail("the derivation has no base"));
        };
        let base = derived_at.type_name(base)?;
        let base = self.named_definition(&derived_at, &base)?;
        let own = self.attribute_uses(&derived_at, 0)?;
        if content.is("simpleContent") {
            return self.simple_content(&derived_at, base, own);
        }
        let TypeDefinition::Complex(base) = base else {
            return Err(derived_at.fail("complex content cannot have a simple base"));
        };
        let particle = self.model(&derived_at, 0)?;
        Ok(match derived.is("extension") {
            true => extended(&base, own, particle, mixed),
            false => Complex {
                attributes: restricted_uses(&base.attributes, &own),
                wildcard: own.wildcard,
                content: ContentType::Model { particle, mixed },
            },
        })
    }

    fn simple_content(
        &mut self,
        derived: &Component,
        base: TypeDefinition,
        own: AttributeUses,
    ) -> Result<Complex, XsdError> {
        let extension = derived.tree.is("extension");
        let (attributes, wildcard, simple) = match base {
            TypeDefinition::Simple(simple) => (Vec::new(), None, Some(simple)),
            TypeDefinition::Complex(base) => {
                let simple = match &base.content {
                    ContentType::Simple(simple) => Some((**simple).clone()),
                    ContentType::Model { .. } => None,
                };
                (base.attributes.clone(), base.wildcard.clone(), simple)
            }
        };
        let simple = match (extension, simple) {
            (true, Some(simple)) => simple,
            (false, simple) => self.restriction(derived, None, simple)?,
            (true, None) => {
                return Err(derived.fail("the base of simple content has no simple content"));
            }
        };
        Ok(Complex {
            attributes: match extension {
                true => added_uses(&attributes, &own),
                false => restricted_uses(&attributes, &own),
            },
            wildcard: match extension {
                true => united(wildcard, own.wildcard),
                false => own.wildcard,
            },
            content: ContentType::Simple(Box::new(simple)),
        })
    }

    /// Sets the grammars of a type.
    pub(super) fn set_complex(
        &mut self,
        type_: u32,
        at: &Component,
        complex: &Complex,
    ) -> Result<(), XsdError> {
        let content = match &complex.content {
            ContentType::Simple(simple) => Content::Simple(simple.datatype),
            ContentType::Model {
                particle: None,
                mixed: false,
            } => Content::Empty,
            ContentType::Model { particle, mixed } => Content::Model {
                particle: particle.clone(),
                mixed: *mixed,
            },
        };
        let wildcard = complex.wildcard.as_ref().map(Wildcard::namespaces);
        if let Some(Namespaces::Listed(these)) = &wildcard {
            these.iter().for_each(|one| self.builder.add_namespace(one));
        }
        let attributes = complex.attributes.clone();
        let set = model::complex_type(
            &mut self.builder,
            type_,
            attributes,
            wildcard.as_ref(),
            &content,
        );
        set.map_err(|_| {
            let limit = self.builder.states_max;
            at.fail(format!(
                "limit grammar_states of {limit} is exceeded: minOccurs or maxOccurs is too large, or too many parts in a \
                 row are optional"
            ))
        })
    }

    // -- attributes ---------------------------------------------------------------------------

    fn attribute_uses(
        &mut self,
        component: &Component,
        depth: usize,
    ) -> Result<AttributeUses, XsdError> {
        if depth > DEPTH_MAX {
            return Err(
                component.fail("attribute groups are nested too deeply or contain themselves")
            );
        }
        let mut uses = AttributeUses::default();
        self.charge(component, 1)?;
        for part in component.tree.parts() {
            let at = component.child(part);
            match part.local.as_str() {
                "attribute" => self.attribute_use(&at, &mut uses)?,
                "attributeGroup" => {
                    let name = at.qname(part.attribute("ref").unwrap_or_default())?;
                    let name = at.document.original_name("attributeGroup", &name);
                    let group = self.documents.attribute_groups.get(&name).cloned();
                    let group = group.ok_or_else(|| {
                        at.fail(format!("attribute group {} is not declared", name.1))
                    })?;
                    let inner = self.attribute_uses(&group, depth + 1)?;
                    uses.uses.extend(inner.uses);
                    uses.prohibited.extend(inner.prohibited);
                    uses.wildcard = intersected(uses.wildcard.take(), inner.wildcard);
                }
                "anyAttribute" => {
                    let own = wildcard(&at);
                    uses.wildcard = intersected(uses.wildcard.take(), Some(own));
                }
                _ => {}
            }
        }
        Ok(uses)
    }

    fn attribute_use(&mut self, at: &Component, uses: &mut AttributeUses) -> Result<(), XsdError> {
        self.charge(at, 1)?;
        let (name, datatype) = match at.tree.attribute("ref") {
            Some(reference) => {
                let name = at.qname(reference)?;
                let global = self.documents.attributes.get(&name).cloned();
                match global {
                    Some(global) => {
                        let datatype = self.type_of_attribute(&global)?;
                        (name, datatype)
                    }
                    None if name.0 == crate::schema::XML_NAMESPACE => {
                        let text = if name.1 == "lang" {
                            "language"
                        } else {
                            "string"
                        };
                        let text = (XSD_NAMESPACE.to_owned(), text.to_owned());
                        (name, self.simple_named(at, &text)?.datatype)
                    }
                    None => {
                        return Err(at.fail(format!("attribute {reference} is not declared")));
                    }
                }
            }
            None => {
                let local = at.tree.attribute("name");
                let local = local.ok_or_else(|| at.fail("an attribute without a name or ref"))?;
                let qualified = match at.tree.attribute("form") {
                    Some(form) => form == "qualified",
                    None => at.document.qualified_attributes,
                };
                let target = if qualified {
                    at.document.target.as_str()
                } else {
                    ""
                };
                let name = (target.to_owned(), local.to_owned());
                if at.tree.attribute("use") == Some("prohibited") {
                    uses.prohibited.push(name);
                    return Ok(());
                }
                let datatype = self.type_of_attribute(at)?;
                (name, datatype)
            }
        };
        if at.tree.attribute("use") == Some("prohibited") {
            uses.prohibited.push(name);
            return Ok(());
        }
        self.builder.declare_attribute(&name, datatype);
        uses.uses.push(Attribute {
            name,
            required: at.tree.attribute("use") == Some("required"),
            datatype,
        });
        Ok(())
    }

    // -- content models -----------------------------------------------------------------------

    /// The content model of a type or derivation; none if it is empty.
    fn model(&mut self, component: &Component, depth: usize) -> Result<Option<Particle>, XsdError> {
        match component.tree.part(&["group", "all", "choice", "sequence"]) {
            Some(part) => self.particle(&component.child(part), depth),
            None => Ok(None),
        }
    }

    fn particle(&mut self, at: &Component, depth: usize) -> Result<Option<Particle>, XsdError> {
        if depth > DEPTH_MAX {
            return Err(at.fail(format!("limit model groups of {DEPTH_MAX} is exceeded")));
        }
        self.charge(at, 1)?;
        let occurs = |name: &str| -> Result<Option<u32>, XsdError> {
            match at.tree.attribute(name) {
                None => Ok(Some(1)),
                Some("unbounded") => Ok(None),
                Some(number) => match number.parse::<u32>() {
                    Ok(number) => Ok(Some(number)),
                    Err(_) => Err(at.fail(format!("{name}={number:?} is not a 32-bit number"))),
                },
            }
        };
        let min = occurs("minOccurs")?.unwrap_or(0);
        let max = occurs("maxOccurs")?;
        if max == Some(0) {
            return Ok(None);
        }
        let term = match at.tree.local.as_str() {
            "element" => self.element(at)?,
            "any" => {
                let wildcard = wildcard(at);
                if let Wildcard::These(these) = &wildcard {
                    these.iter().for_each(|one| self.builder.add_namespace(one));
                }
                Term::Wildcard(wildcard.namespaces())
            }
            "group" => {
                let name = at.qname(at.tree.attribute("ref").unwrap_or_default())?;
                let name = at.document.original_name("group", &name);
                let group = self.documents.groups.get(&name).cloned();
                let group =
                    group.ok_or_else(|| at.fail(format!("group {} is not declared", name.1)))?;
                match self.model(&group, depth + 1)? {
                    Some(inner) if inner.min == 1 && inner.max == Some(1) => inner.term,
                    Some(inner) => Term::Sequence([inner].into()),
                    None => return Ok(None),
                }
            }
            local @ ("sequence" | "choice" | "all") => {
                let mut particles = Vec::new();
                for part in at.tree.parts() {
                    let inner = matches!(
                        part.local.as_str(),
                        "element" | "any" | "group" | "sequence" | "choice" | "all"
                    );
                    if inner {
                        particles.extend(self.particle(&at.child(part), depth + 1)?);
                    }
                }
                match local {
                    "sequence" => Term::Sequence(particles),
                    "choice" => Term::Choice(particles),
                    _ => Term::All(particles),
                }
            }
            other => return Err(at.fail(format!("{other} is not allowed in a content model"))),
        };
        Ok(Some(Particle { min, max, term }))
    }

    fn element(&mut self, at: &Component) -> Result<Term, XsdError> {
        if let Some(reference) = at.tree.attribute("ref") {
            let name = at.qname(reference)?;
            return self.element_term(at, &name);
        }
        let local = at.tree.attribute("name");
        let local = local.ok_or_else(|| at.fail("an element without a name or ref"))?;
        let qualified = match at.tree.attribute("form") {
            Some(form) => form == "qualified",
            None => at.document.qualified_elements,
        };
        let target = if qualified {
            at.document.target.as_str()
        } else {
            ""
        };
        let name = (target.to_owned(), local.to_owned());
        let type_ = self.type_of_element(at, 0)?;
        let element = self.builder.declare_element(ElementDeclaration {
            name: name.clone(),
            type_,
            nillable: at.tree.is_true("nillable"),
            global: false,
        });
        Ok(Term::Element([(name, element)].into()))
    }
}

/// The complex type that an extension defines.
fn extended(
    base: &Complex,
    own: AttributeUses,
    particle: Option<Particle>,
    mixed: bool,
) -> Complex {
    let content = match (&base.content, particle) {
        (ContentType::Simple(simple), _) => ContentType::Simple(simple.clone()),
        (
            ContentType::Model {
                particle: before,
                mixed: base_mixed,
            },
            particle,
        ) => {
            let once = |term| Particle {
                min: 1,
                max: Some(1),
                term,
            };
            let particle = match (before.clone(), particle) {
                (Some(before), Some(particle)) => {
                    Some(once(Term::Sequence([before, particle].into())))
                }
                (before, particle) => before.or(particle),
            };
            let mixed = mixed || *base_mixed;
            ContentType::Model { particle, mixed }
        }
    };
    Complex {
        attributes: added_uses(&base.attributes, &own),
        wildcard: united(base.wildcard.clone(), own.wildcard),
        content,
    }
}

fn united(base: Option<Wildcard>, own: Option<Wildcard>) -> Option<Wildcard> {
    match (base, own) {
        (Some(base), Some(own)) => Some(own.union(base)),
        (base, own) => own.or(base),
    }
}

fn intersected(one: Option<Wildcard>, other: Option<Wildcard>) -> Option<Wildcard> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.intersection(other)),
        (one, other) => one.or(other),
    }
}

fn added_uses(base: &[Attribute], own: &AttributeUses) -> Vec<Attribute> {
    let mut all = own.uses.clone();
    let new = |one: &&Attribute| !own.uses.iter().any(|other| other.name == one.name);
    all.extend(base.iter().filter(new).cloned());
    all
}

fn restricted_uses(base: &[Attribute], own: &AttributeUses) -> Vec<Attribute> {
    let mut all = added_uses(base, own);
    all.retain(|one| !own.prohibited.contains(&one.name));
    all
}

fn wildcard(at: &Component) -> Wildcard {
    let target = &at.document.target;
    match at.tree.attribute("namespace").unwrap_or("##any") {
        "##any" => Wildcard::Any,
        "##other" => Wildcard::Not(target.clone()),
        list => {
            let mut these: Vec<String> = Vec::new();
            for one in list.split_whitespace() {
                let one = match one {
                    "##targetNamespace" => target.clone(),
                    "##local" => String::new(),
                    other => other.to_string(),
                };
                if !these.contains(&one) {
                    these.push(one);
                }
            }
            Wildcard::These(these)
        }
    }
}

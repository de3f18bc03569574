//! The types of elements with all their parts resolved, for whoever writes messages or code from them.
//!
//! Extensions, groups and references are followed. What has no place here, such as substitution
//! groups, types chosen by `xsi:type` and wildcards, stays visible with its reason.

use std::collections::{HashMap, VecDeque};

use chappe_xml::Name;

use super::declaration::{
    Attribute, Complex, Content, Declaration, Definition, GroupKind, Notes, Particle, Simple,
};
use super::set::Document;
use super::{Facets, NAMESPACE, NotFlatReason, Occurs, Schemas, Work, XsdType};

/// Steps of derivation and nesting of groups. Default 16, as in flat types.
const DEPTH_MAX: usize = 16;

/// The types of some elements of a set of schemas.
///
/// ```
/// use chappe_soap::schema::{Model, Schemas, TypeContent};
/// use chappe_xml::{Element, Name};
/// let document = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t">
///   <xs:element name="Mode"><xs:complexType><xs:choice>
///     <xs:element name="Off"/><xs:element name="Level" type="xs:double"/>
///   </xs:choice></xs:complexType></xs:element>
/// </xs:schema>"#;
/// let mut schemas = Schemas::default();
/// schemas.add("mode.xsd", &Element::parse(document)?)?;
/// let mut model = Model::new(&schemas);
/// let mode = model.element(&Name::new("urn:t", "Mode"))?;
/// let TypeContent::Complex(content) = &model.type_of(mode.data_type).content else { panic!() };
/// assert_eq!(content.parts.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Model<'s> {
    schemas: &'s Schemas,
    work: Work,
    types: Vec<TypeModel>,
    /// The types that have a name.
    known: HashMap<Name, TypeId>,
    /// The types whose content is still to be resolved.
    open: VecDeque<(TypeId, &'s Document, &'s Definition)>,
}

/// A type of a [`Model`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(usize);

/// A type.
#[derive(Debug, Clone)]
pub struct TypeModel {
    /// Its name, unless it is defined inside of its element.
    pub name: Option<Name>,
    /// Documentation for people.
    pub doc: Option<String>,
    /// Its content.
    pub content: TypeContent,
}

/// The content of a type.
#[derive(Debug, Clone)]
pub enum TypeContent {
    /// A value.
    Simple(SimpleType),
    /// Attributes, and elements or text.
    Complex(ComplexType),
    /// It cannot be described here.
    Unsupported(NotFlatReason),
}

/// A simple type, resolved to a built-in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimpleType {
    /// The built-in type that it restricts; `AnySimpleType` for a union.
    pub data_type: XsdType,
    /// Whether the value is a list of values of that type, separated by white space.
    pub is_list: bool,
    /// The limits; those of a list are of its items if they are values, else of the list.
    pub facets: Facets,
    /// The member types of a union, of which one must fit.
    pub members: Vec<SimpleType>,
}

/// Attributes, and elements or text.
#[derive(Debug, Clone, Default)]
pub struct ComplexType {
    /// The type of the text, if it has text and no elements.
    pub text: Option<SimpleType>,
    /// Whether text may be between the elements.
    pub is_mixed: bool,
    /// The attributes.
    pub attributes: Vec<AttributeModel>,
    /// The elements, in order.
    pub parts: Vec<Part>,
}

/// A part of a complex type.
#[derive(Debug, Clone)]
pub enum Part {
    /// An element.
    Element(ElementModel),
    /// Parts in order.
    Sequence(Occurs, Vec<Part>),
    /// One of several parts.
    Choice(Occurs, Vec<Part>),
    /// Any element.
    Any(Occurs),
    /// A part that cannot be described here.
    Unsupported(NotFlatReason),
}

/// An element and its type.
#[derive(Debug, Clone)]
pub struct ElementModel {
    /// The element's name.
    pub name: Name,
    /// Its type.
    pub data_type: TypeId,
    /// How often it occurs.
    pub occurs: Occurs,
    /// Whether `xsi:nil` may replace the content.
    pub is_nillable: bool,
    /// Documentation for people.
    pub doc: Option<String>,
    /// The unit, a UCUM code.
    pub unit: Option<String>,
}

/// An attribute and its type.
#[derive(Debug, Clone)]
pub struct AttributeModel {
    /// The attribute's name.
    pub name: Name,
    /// Its type.
    pub data_type: SimpleType,
    /// The name of its type, if it has one of its own.
    pub type_name: Option<Name>,
    /// Whether it must be there.
    pub is_required: bool,
    /// Documentation for people.
    pub doc: Option<String>,
}

impl SimpleType {
    fn built_in(data_type: XsdType) -> Self {
        Self {
            data_type,
            is_list: false,
            facets: Facets::default(),
            members: Vec::new(),
        }
    }

    /// A restriction of it: limits that are stated again replace those of the base.
    fn restricted(mut self, facets: &Facets) -> Self {
        let own = facets.clone();
        if !own.enumeration.is_empty() {
            self.facets.enumeration = own.enumeration;
        }
        self.facets.min = own.min.or(self.facets.min);
        self.facets.max = own.max.or(self.facets.max);
        self.facets.min_length = own.min_length.or(self.facets.min_length);
        self.facets.max_length = own.max_length.or(self.facets.max_length);
        self
    }
}

type Resolved<T> = Result<T, NotFlatReason>;

impl<'s> Model<'s> {
    /// A model without elements yet.
    #[must_use]
    pub fn new(schemas: &'s Schemas) -> Self {
        Self {
            schemas,
            work: Work::default(),
            types: Vec::new(),
            known: HashMap::new(),
            open: VecDeque::new(),
        }
    }

    /// A global element with all types that it needs.
    ///
    /// # Errors
    /// No schema declares it, or the schemas exceed the budget of work.
    pub fn element(&mut self, name: &Name) -> Result<ElementModel, NotFlatReason> {
        let found = self.schemas.element(name);
        let (document, declaration) = found.ok_or(NotFlatReason::UnknownElement)?;
        let element = self.declared(document, declaration)?;
        while let Some((id, document, definition)) = self.open.pop_front() {
            let content = match definition {
                Definition::Simple(..) => {
                    let resolved = self.simple_definition(document, definition, 0);
                    resolved.map(TypeContent::Simple)
                }
                Definition::Complex(complex) => {
                    let resolved = match complex.is_abstract {
                        true => Err(NotFlatReason::Abstract),
                        false => self.complex(document, complex, 0),
                    };
                    resolved.map(TypeContent::Complex)
                }
            };
            self.types[id.0].content = match content {
                Err(NotFlatReason::Work) => return Err(NotFlatReason::Work),
                content => content.unwrap_or_else(TypeContent::Unsupported),
            };
        }
        Ok(element)
    }

    /// A type.
    #[must_use]
    pub fn type_of(&self, id: TypeId) -> &TypeModel {
        &self.types[id.0]
    }

    fn spend(&mut self, notes: &Notes) -> Resolved<()> {
        let bytes = size_of::<ElementModel>() + notes.bytes();
        match self.work.spend(bytes) {
            true => Ok(()),
            false => Err(NotFlatReason::Work),
        }
    }

    fn declared(
        &mut self,
        document: &'s Document,
        declaration: &'s Declaration,
    ) -> Resolved<ElementModel> {
        let (home, target) = match &declaration.content {
            Content::Reference(name) => {
                let found = self.schemas.element(name);
                found.ok_or(NotFlatReason::UnknownElement)?
            }
            _ => (document, declaration),
        };
        let notes = declaration.notes.clone().with_fallback(&target.notes);
        self.spend(&notes)?;
        if target.is_abstract {
            return Err(NotFlatReason::Abstract);
        }
        Ok(ElementModel {
            name: target.name.clone(),
            data_type: self.refer(home, &target.content),
            occurs: declaration.occurs,
            is_nillable: target.is_nillable,
            doc: notes.doc,
            unit: notes.unit,
        })
    }

    /// The type of a content; its own content is resolved later.
    fn refer(&mut self, document: &'s Document, content: &'s Content) -> TypeId {
        let (name, document, definition) = match content {
            Content::Inline(definition) => (None, document, &**definition),
            Content::Named(name) => {
                if let Some(known) = self.known.get(name) {
                    return *known;
                }
                let found = self.schemas.definition(name);
                match found.filter(|_| name.namespace != NAMESPACE) {
                    Some((document, definition)) => (Some(name), document, definition),
                    None => {
                        let content = match built_in(name) {
                            Ok(simple) => TypeContent::Simple(simple),
                            Err(reason) => TypeContent::Unsupported(reason),
                        };
                        let id = self.push(None, None, content);
                        self.known.insert(name.clone(), id);
                        return id;
                    }
                }
            }
            // Without a type an element may have any content.
            Content::Anything | Content::Reference(_) => {
                let content = TypeContent::Unsupported(NotFlatReason::Anything);
                return self.push(None, None, content);
            }
            Content::Unbound(text) => {
                let reason = NotFlatReason::UnboundPrefix(text.clone());
                return self.push(None, None, TypeContent::Unsupported(reason));
            }
        };
        let doc = match definition {
            Definition::Simple(_, notes) => notes.doc.clone(),
            Definition::Complex(complex) => complex.doc.clone(),
        };
        // Every open type gets its content before `element` returns.
        let open = TypeContent::Unsupported(NotFlatReason::Work);
        let id = self.push(name.cloned(), doc, open);
        if let Some(name) = name {
            self.known.insert(name.clone(), id);
        }
        self.open.push_back((id, document, definition));
        id
    }

    fn push(&mut self, name: Option<Name>, doc: Option<String>, content: TypeContent) -> TypeId {
        self.types.push(TypeModel { name, doc, content });
        TypeId(self.types.len() - 1)
    }

    fn complex(
        &mut self,
        document: &'s Document,
        complex: &'s Complex,
        depth: usize,
    ) -> Resolved<ComplexType> {
        if depth == DEPTH_MAX {
            return Err(NotFlatReason::Depth(depth));
        }
        self.spend(&Notes::default())?;
        let mut resolved = match &complex.base {
            Some(base) => self.base(document, base, complex, depth)?,
            None => ComplexType::default(),
        };
        resolved.is_mixed |= complex.mixed;
        if complex.is_restricted && !complex.simple_content {
            resolved.parts.clear();
        }
        let parts = self.parts(document, &complex.content, depth)?;
        resolved.parts.extend(parts);
        for name in &complex.groups {
            let found = self.schemas.group(name);
            let (home, group) = found.ok_or_else(|| NotFlatReason::UnknownType(name.clone()))?;
            let group = self.complex(home, group, depth + 1)?;
            resolved.attributes.extend(group.attributes);
        }
        for attribute in &complex.attributes {
            let attribute = self.attribute(document, attribute)?;
            // A restriction states attributes of its base again.
            let known = &mut resolved.attributes;
            known.retain(|known| known.name != attribute.name);
            known.push(attribute);
        }
        Ok(resolved)
    }

    fn base(
        &mut self,
        document: &'s Document,
        base: &'s Content,
        complex: &'s Complex,
        depth: usize,
    ) -> Resolved<ComplexType> {
        let name = match base {
            Content::Named(name) => name,
            _ => return Err(NotFlatReason::Anything),
        };
        if name.is(NAMESPACE, "anyType") {
            return Ok(ComplexType::default());
        }
        if let Some((home, Definition::Complex(base))) = self.schemas.definition(name) {
            let mut resolved = self.complex(home, base, depth + 1)?;
            resolved.text = resolved.text.map(|text| text.restricted(&complex.facets));
            return Ok(resolved);
        }
        let text = self.simple(document, base, depth + 1)?;
        Ok(ComplexType {
            text: Some(text.restricted(&complex.facets)),
            ..ComplexType::default()
        })
    }

    fn parts(
        &mut self,
        document: &'s Document,
        particles: &'s [Particle],
        depth: usize,
    ) -> Resolved<Vec<Part>> {
        let mut parts = Vec::new();
        for particle in particles {
            let part = self.part(document, particle, depth);
            parts.push(match part {
                Err(NotFlatReason::Work) => return Err(NotFlatReason::Work),
                part => part.unwrap_or_else(Part::Unsupported),
            });
        }
        Ok(parts)
    }

    fn part(
        &mut self,
        document: &'s Document,
        particle: &'s Particle,
        depth: usize,
    ) -> Resolved<Part> {
        if depth >= DEPTH_MAX {
            return Err(NotFlatReason::Depth(depth));
        }
        self.spend(&Notes::default())?;
        Ok(match particle {
            Particle::Element(declaration) => Part::Element(self.declared(document, declaration)?),
            Particle::Group(kind, occurs, inside) => {
                let mut inside = self.parts(document, inside, depth + 1)?;
                match kind {
                    // One sequence is not told apart from its parts.
                    GroupKind::Sequence if *occurs == Occurs::ONCE && inside.len() == 1 => {
                        inside.remove(0)
                    }
                    GroupKind::Sequence => Part::Sequence(*occurs, inside),
                    GroupKind::Choice => Part::Choice(*occurs, inside),
                }
            }
            Particle::Reference(occurs, name) => {
                let found = self.schemas.model_group(name);
                let (home, group) =
                    found.ok_or_else(|| NotFlatReason::UnknownType(name.clone()))?;
                Part::Sequence(*occurs, self.parts(home, &group.content, depth + 1)?)
            }
            Particle::Any(occurs) => Part::Any(*occurs),
        })
    }

    fn attribute(
        &mut self,
        document: &'s Document,
        attribute: &'s Attribute,
    ) -> Resolved<AttributeModel> {
        self.spend(&attribute.notes)?;
        let target = match &attribute.content {
            Content::Reference(name) => self.schemas.attribute(name),
            _ => Some(attribute),
        };
        let (data_type, type_name) = match target.map(|target| &target.content) {
            Some(content) => {
                let name = match content {
                    Content::Named(name) if name.namespace != NAMESPACE => Some(name.clone()),
                    _ => None,
                };
                (self.simple(document, content, 0)?, name)
            }
            // Attributes from other specifications, such as xml:lang, are text.
            None => (SimpleType::built_in(XsdType::AnySimpleType), None),
        };
        Ok(AttributeModel {
            name: attribute.name.clone(),
            data_type,
            type_name,
            is_required: attribute.required,
            doc: attribute.notes.doc.clone(),
        })
    }

    fn simple(
        &mut self,
        document: &'s Document,
        content: &'s Content,
        depth: usize,
    ) -> Resolved<SimpleType> {
        match content {
            Content::Named(name) if name.namespace == NAMESPACE => built_in(name),
            Content::Named(name) => {
                let found = self.schemas.definition(name);
                let unknown = || NotFlatReason::UnknownType(name.clone());
                let (home, definition) = found.ok_or_else(unknown)?;
                self.simple_definition(home, definition, depth)
            }
            Content::Inline(definition) => self.simple_definition(document, definition, depth),
            Content::Unbound(text) => Err(NotFlatReason::UnboundPrefix(text.clone())),
            Content::Reference(_) | Content::Anything => Err(NotFlatReason::Anything),
        }
    }

    fn simple_definition(
        &mut self,
        document: &'s Document,
        definition: &'s Definition,
        depth: usize,
    ) -> Resolved<SimpleType> {
        if depth >= DEPTH_MAX {
            return Err(NotFlatReason::Depth(depth));
        }
        let Definition::Simple(simple, notes) = definition else {
            return Err(NotFlatReason::Nested);
        };
        self.spend(notes)?;
        match simple {
            Simple::Restriction(base, facets) => {
                let values = facets.enumeration.iter().map(String::len);
                if !self.work.spend(values.sum()) {
                    return Err(NotFlatReason::Work);
                }
                let base = self.simple(document, base, depth + 1)?;
                Ok(base.restricted(facets))
            }
            Simple::List(item) => {
                let item = self.simple(document, item, depth + 1)?;
                Ok(SimpleType {
                    is_list: true,
                    ..item
                })
            }
            Simple::Union(members) => {
                let members = members.iter();
                let members = members.map(|member| self.simple(document, member, depth + 1));
                Ok(SimpleType {
                    members: members.collect::<Resolved<_>>()?,
                    ..SimpleType::built_in(XsdType::AnySimpleType)
                })
            }
        }
    }
}

/// The type of this name in the namespace of XML Schema.
fn built_in(name: &Name) -> Resolved<SimpleType> {
    let list = |data_type| SimpleType {
        is_list: true,
        ..SimpleType::built_in(data_type)
    };
    if name.namespace != NAMESPACE {
        return Err(NotFlatReason::UnknownType(name.clone()));
    }
    match (XsdType::from_local(&name.local), &*name.local) {
        (Some(data_type), _) => Ok(SimpleType::built_in(data_type)),
        (None, "NMTOKENS") => Ok(list(XsdType::NmToken)),
        (None, "IDREFS") => Ok(list(XsdType::IdRef)),
        (None, "anyType") => Err(NotFlatReason::Anything),
        (None, _) => Err(NotFlatReason::UnknownType(name.clone())),
    }
}

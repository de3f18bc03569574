//! Conversion of declarations to flat types.

use std::collections::HashMap;
use std::time::Duration;

use chappe_xml::Name;

use super::declaration::{Attribute, Complex, Content, Declaration, Definition, Notes, Simple};
use super::set::Document;
use super::{
    FieldPlace, FlatField, FlatType, NAMESPACE, NotFlat, NotFlatReason, Schemas, Work, XsdType,
    parse_duration,
};

/// Steps of type derivation. Default 16: SDC's deepest chain has 6.
const DERIVATION_MAX: usize = 16;
/// Fields of a flat type. Default 1,024: the limit of columns in a query.
const FIELDS_MAX: usize = 1_024;

/// A reason whose path is still being built.
struct Refusal {
    file: String,
    at: String,
    reason: NotFlatReason,
}

impl Refusal {
    fn new(file: &str, reason: NotFlatReason) -> Self {
        Self {
            file: file.to_owned(),
            at: String::new(),
            reason,
        }
    }

    fn inside(mut self, name: &Name) -> Self {
        self.at = match self.at.is_empty() {
            true => name.local.clone().into_owned(),
            false => format!("{}/{}", name.local, self.at),
        };
        self
    }
}

/// A simple type, resolved to a built-in one.
#[derive(Clone, Default)]
struct Resolved {
    data_type: Option<XsdType>,
    list: bool,
    enumeration: Vec<String>,
    notes: Notes,
}

impl Schemas {
    /// The fields of the global element `name`.
    ///
    /// # Errors
    /// [`NotFlat`] with the reason and its position.
    pub fn flat(&self, name: &Name) -> Result<FlatType, Box<NotFlat>> {
        self.flat_within(name, &mut Work::default())
    }

    /// The fields of the global element `name`, within the remaining budget of the device.
    ///
    /// # Errors
    /// [`NotFlat`] with the reason and its position.
    pub fn flat_within(&self, name: &Name, work: &mut Work) -> Result<FlatType, Box<NotFlat>> {
        let mut flattening = Flattening {
            schemas: self,
            work,
            owner: name,
            fields: Vec::new(),
            groups: HashMap::new(),
        };
        let flat = flattening.flatten();
        flat.map_err(|refusal| {
            let not_flat = NotFlat {
                element: name.clone(),
                file: refusal.file,
                at: refusal.at,
                reason: refusal.reason,
            };
            // The message contains names from the schema, which count as well.
            work.spend(not_flat.to_string().len());
            Box::new(not_flat)
        })
    }
}

/// The conversion of one global element.
struct Flattening<'a> {
    schemas: &'a Schemas,
    work: &'a mut Work,
    owner: &'a Name,
    fields: Vec<FlatField>,
    /// Attribute groups, and whether their attributes are complete. Each group counts once; an
    /// incomplete one that is met again contains itself.
    groups: HashMap<&'a Name, bool>,
}

impl<'a> Flattening<'a> {
    /// Charges a visit that copies this many bytes.
    fn spend(&mut self, document: &Document, bytes: usize) -> Result<(), Refusal> {
        match self.work.spend(bytes) {
            true => Ok(()),
            false => Err(Refusal::new(&document.file, NotFlatReason::Work)),
        }
    }

    fn flatten(&mut self) -> Result<FlatType, Refusal> {
        let name = self.owner;
        let Some((document, element)) = self.schemas.element(name) else {
            return Err(Refusal::new("no file", NotFlatReason::UnknownElement));
        };
        if element.is_abstract {
            return Err(Refusal::new(&document.file, NotFlatReason::Abstract));
        }
        match self.complex(document, &element.content)? {
            Some((document, complex)) => self.fields(document, complex, 0)?,
            None => {
                let field = self.field(document, element, FieldPlace::Text)?;
                self.fields.push(field);
            }
        }
        let position = |field: &FlatField| match field.place {
            FieldPlace::Attribute => 1,
            FieldPlace::Element | FieldPlace::Text => 0,
        };
        let mut fields = std::mem::take(&mut self.fields);
        fields.sort_by_key(position);
        self.spend(document, element.notes.bytes())?;
        Ok(FlatType {
            name: name.clone(),
            fields,
            doc: element.notes.doc.clone(),
        })
    }

    /// The complex type of a content, if it has one.
    fn complex(
        &mut self,
        document: &'a Document,
        content: &'a Content,
    ) -> Result<Option<(&'a Document, &'a Complex)>, Refusal> {
        self.spend(document, 0)?;
        let (document, definition) = match content {
            Content::Inline(definition) => (document, &**definition),
            Content::Named(name) if name.namespace == NAMESPACE => {
                return match &*name.local {
                    "anyType" => Err(Refusal::new(&document.file, NotFlatReason::Anything)),
                    _ => Ok(None),
                };
            }
            Content::Named(name) => self.schemas.definition(name).ok_or_else(|| {
                Refusal::new(&document.file, NotFlatReason::UnknownType(name.clone()))
            })?,
            Content::Unbound(text) => {
                let reason = NotFlatReason::UnboundPrefix(text.clone());
                return Err(Refusal::new(&document.file, reason));
            }
            Content::Reference(_) | Content::Anything => {
                return Err(Refusal::new(&document.file, NotFlatReason::Anything));
            }
        };
        Ok(match definition {
            Definition::Complex(complex) => Some((document, &**complex)),
            Definition::Simple(..) => None,
        })
    }

    fn fields(
        &mut self,
        document: &'a Document,
        complex: &'a Complex,
        depth: usize,
    ) -> Result<(), Refusal> {
        let refuse = |reason| Err(Refusal::new(&document.file, reason));
        match complex {
            _ if depth == DERIVATION_MAX => return refuse(NotFlatReason::Depth(depth)),
            Complex {
                is_restricted: true,
                ..
            } => return refuse(NotFlatReason::Restriction),
            Complex {
                is_abstract: true, ..
            } if depth == 0 => {
                return refuse(NotFlatReason::Abstract);
            }
            Complex { mixed: true, .. } => return refuse(NotFlatReason::Mixed),
            _ => {}
        }
        if let Some(construct) = complex.not_flat_construct() {
            return refuse(NotFlatReason::ContentModel(construct));
        }
        if complex.has_wildcard() {
            return refuse(NotFlatReason::Anything);
        }
        if let Some(base) = &complex.base {
            match self.complex(document, base)? {
                Some((document, base)) => self.fields(document, base, depth + 1)?,
                None if complex.simple_content => {
                    let resolved = self.simple(document, base, 0)?;
                    let (name, notes) = (self.owner, Notes::default());
                    let field =
                        self.make_field(document, resolved, name, FieldPlace::Text, &notes)?;
                    self.fields.push(field);
                }
                None => return refuse(NotFlatReason::Mixed),
            }
        }
        for element in complex.elements() {
            if self.is_extension_point(document, element) {
                continue;
            }
            let field = self
                .field(document, element, FieldPlace::Element)
                .map_err(|refusal| refusal.inside(&element.name))?;
            self.fields.push(field);
        }
        for group in &complex.groups {
            match self.groups.insert(group, false) {
                None => {}
                Some(true) => {
                    self.groups.insert(group, true);
                    continue;
                }
                Some(false) => return refuse(NotFlatReason::Depth(DERIVATION_MAX)),
            }
            let (home, content) = self.schemas.group(group).ok_or_else(|| {
                Refusal::new(&document.file, NotFlatReason::UnknownType(group.clone()))
            })?;
            self.fields(home, content, depth + 1)?;
            self.groups.insert(group, true);
        }
        for attribute in &complex.attributes {
            let field = self
                .attribute_field(document, attribute)
                .map_err(|refusal| refusal.inside(&attribute.name))?;
            self.fields.push(field);
        }
        if self.fields.len() > FIELDS_MAX {
            return refuse(NotFlatReason::Width(FIELDS_MAX));
        }
        Ok(())
    }

    /// Whether an element is optional and contains only wildcards: an extension point for vendors.
    fn is_extension_point(&mut self, document: &'a Document, element: &'a Declaration) -> bool {
        let target = match &element.content {
            Content::Reference(name) => self.schemas.element(name),
            _ => Some((document, element)),
        };
        let content = target.map(|(home, target)| self.complex(home, &target.content));
        let Some(Ok(Some((_, complex)))) = content else {
            return false;
        };
        element.occurs.is_optional()
            && complex.base.is_none()
            && complex.not_flat_construct().is_none()
            && !complex.is_restricted
            && complex.elements().next().is_none()
            && complex.attributes.is_empty()
            && complex.groups.is_empty()
    }

    fn field(
        &mut self,
        document: &'a Document,
        element: &'a Declaration,
        position: FieldPlace,
    ) -> Result<FlatField, Refusal> {
        let (home, target) = match &element.content {
            Content::Reference(name) => self
                .schemas
                .element(name)
                .ok_or_else(|| Refusal::new(&document.file, NotFlatReason::UnknownElement))?,
            _ => (document, element),
        };
        if target.is_abstract {
            return Err(Refusal::new(&home.file, NotFlatReason::Abstract));
        }
        if self.complex(home, &target.content)?.is_some() {
            return Err(Refusal::new(&home.file, NotFlatReason::Nested));
        }
        let resolved = self.simple(home, &target.content, 0)?;
        self.spend(home, element.notes.bytes() + target.notes.bytes())?;
        let notes = element.notes.clone().with_fallback(&target.notes);
        let mut field = self.make_field(home, resolved, &target.name, position, &notes)?;
        if position == FieldPlace::Element {
            field.optional = element.occurs.is_optional();
            field.repeated = element.occurs.is_repeated();
        }
        Ok(field)
    }

    fn attribute_field(
        &mut self,
        document: &'a Document,
        attribute: &'a Attribute,
    ) -> Result<FlatField, Refusal> {
        let target = match &attribute.content {
            Content::Reference(name) => self.schemas.attribute(name),
            _ => Some(attribute),
        };
        let resolved = match target {
            Some(target) => self.simple(document, &target.content, 0)?,
            // Attributes from other specifications, such as xml:lang, are text.
            None => Resolved::new(XsdType::AnySimpleType),
        };
        let (name, position) = (&attribute.name, FieldPlace::Attribute);
        let mut field = self.make_field(document, resolved, name, position, &attribute.notes)?;
        field.optional = !attribute.required;
        Ok(field)
    }

    /// Creates a field of a simple type.
    fn make_field(
        &mut self,
        document: &Document,
        resolved: Resolved,
        name: &Name,
        position: FieldPlace,
        declared: &Notes,
    ) -> Result<FlatField, Refusal> {
        let bytes = size_of::<FlatField>() + name.local.len();
        self.spend(document, bytes + declared.bytes() + resolved.notes.bytes())?;
        Ok(resolved.field(name.clone(), position, declared))
    }

    /// Resolves a simple type to a built-in one.
    fn simple(
        &mut self,
        document: &'a Document,
        content: &'a Content,
        depth: usize,
    ) -> Result<Resolved, Refusal> {
        self.spend(document, 0)?;
        let refuse = |reason| Err(Refusal::new(&document.file, reason));
        if depth == DERIVATION_MAX {
            return refuse(NotFlatReason::Depth(depth));
        }
        let (document, definition) = match content {
            Content::Named(name) if name.namespace == NAMESPACE => {
                return match (XsdType::from_local(&name.local), &*name.local) {
                    (Some(data_type), _) => Ok(Resolved::new(data_type)),
                    (None, "NMTOKENS") => Ok(Resolved::list(XsdType::NmToken)),
                    (None, "IDREFS") => Ok(Resolved::list(XsdType::IdRef)),
                    (None, _) => refuse(NotFlatReason::UnknownType(name.clone())),
                };
            }
            Content::Named(name) => match self.schemas.definition(name) {
                Some(found) => found,
                None => return refuse(NotFlatReason::UnknownType(name.clone())),
            },
            Content::Inline(definition) => (document, &**definition),
            Content::Unbound(text) => return refuse(NotFlatReason::UnboundPrefix(text.clone())),
            Content::Reference(_) | Content::Anything => return refuse(NotFlatReason::Anything),
        };
        match definition {
            Definition::Complex(_) => refuse(NotFlatReason::Nested),
            Definition::Simple(Simple::Union(_), _) => refuse(NotFlatReason::Union),
            Definition::Simple(Simple::Restriction(base, facets), notes) => {
                let mut resolved = self.simple(document, base, depth + 1)?;
                let values = &facets.enumeration;
                if !values.is_empty() {
                    let bytes = values.iter().map(|value| size_of::<String>() + value.len());
                    self.spend(document, bytes.sum())?;
                    resolved.enumeration.clone_from(values);
                }
                self.spend(document, notes.bytes() + resolved.notes.bytes())?;
                resolved.notes = notes.clone().with_fallback(&resolved.notes);
                Ok(resolved)
            }
            Definition::Simple(Simple::List(item), notes) => {
                let mut resolved = self.simple(document, item, depth + 1)?;
                resolved.list = true;
                self.spend(document, notes.bytes() + resolved.notes.bytes())?;
                resolved.notes = notes.clone().with_fallback(&resolved.notes);
                Ok(resolved)
            }
        }
    }
}

impl Resolved {
    fn new(data_type: XsdType) -> Self {
        Self {
            data_type: Some(data_type),
            ..Self::default()
        }
    }

    fn list(data_type: XsdType) -> Self {
        Self {
            list: true,
            ..Self::new(data_type)
        }
    }

    /// Creates the field. Notes on the declaration take precedence over those on the type.
    fn field(self, name: Name, position: FieldPlace, declared: &Notes) -> FlatField {
        let notes = declared.clone().with_fallback(&self.notes);
        let data_type = self.data_type.unwrap_or(XsdType::AnySimpleType);
        let period = notes.sample_period.as_deref().filter(|_| self.list);
        let period = period.and_then(|text| parse_duration(text).ok());
        let period = period.and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
        FlatField {
            place: position,
            list: self.list,
            enumeration: self.enumeration,
            doc: notes.doc,
            model_reference: notes.model_reference,
            unit: notes.unit,
            sample_period: period
                .filter(|period| *period > 0)
                .map(Duration::from_nanos),
            ..FlatField::new(name, data_type)
        }
    }
}

impl Notes {
    /// Bytes of a copy of the notes.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let references = self.model_reference.iter();
        let references = references.map(|reference| size_of::<String>() + reference.len());
        text(&self.doc) + text(&self.unit) + text(&self.sample_period) + references.sum::<usize>()
    }

    /// Fills absent notes from `other`.
    pub(super) fn with_fallback(self, other: &Self) -> Self {
        let model_reference = match self.model_reference.is_empty() {
            true => other.model_reference.clone(),
            false => self.model_reference,
        };
        Self {
            doc: self.doc.or_else(|| other.doc.clone()),
            model_reference,
            unit: self.unit.or_else(|| other.unit.clone()),
            sample_period: self.sample_period.or_else(|| other.sample_period.clone()),
        }
    }
}

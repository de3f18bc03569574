//! From declarations to flat types.

use std::time::Duration;

use chappe_xml::Name;

use super::parse::{Attribute, Complex, Content, Declaration, Definition, Document, Notes, Simple};
use super::{
    FieldPlace, FlatField, FlatType, NAMESPACE, NotFlat, NotFlatReason, Schemas, XsdType,
    parse_duration,
};

/// Types derived from each other. Default 16: SDC's deepest chain has 6.
const DERIVATION_MAX: usize = 16;
/// Fields of a flat type. Default 1,024: as many columns a query can name.
const FIELDS_MAX: usize = 1_024;

/// A refusal while its place is still being built.
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

/// A simple type, followed to the built-in one.
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
    /// Why its content is not fields, and where.
    pub fn flat(&self, name: &Name) -> Result<FlatType, Box<NotFlat>> {
        self.flatten(name).map_err(|refusal| {
            Box::new(NotFlat {
                element: name.clone(),
                file: refusal.file,
                at: refusal.at,
                reason: refusal.reason,
            })
        })
    }

    fn flatten(&self, name: &Name) -> Result<FlatType, Refusal> {
        let Some((document, element)) = self.element(name) else {
            return Err(Refusal::new("no file", NotFlatReason::UnknownElement));
        };
        if element.is_abstract {
            return Err(Refusal::new(&document.file, NotFlatReason::Abstract));
        }
        let mut fields = Vec::new();
        match self.complex(document, &element.content)? {
            Some((document, complex)) => self.fields(document, complex, name, &mut fields, 0)?,
            None => fields.push(self.field(document, element, FieldPlace::Text)?),
        }
        let place = |field: &FlatField| match field.place {
            FieldPlace::Attribute => 1,
            FieldPlace::Element | FieldPlace::Text => 0,
        };
        fields.sort_by_key(place);
        Ok(FlatType {
            name: name.clone(),
            fields,
            doc: element.notes.doc.clone(),
        })
    }

    /// The complex type of some content, if it has one.
    fn complex<'a>(
        &'a self,
        document: &'a Document,
        content: &'a Content,
    ) -> Result<Option<(&'a Document, &'a Complex)>, Refusal> {
        let (document, definition) = match content {
            Content::Inline(definition) => (document, &**definition),
            Content::Named(name) if name.namespace == NAMESPACE => {
                return match &*name.local {
                    "anyType" => Err(Refusal::new(&document.file, NotFlatReason::Anything)),
                    _ => Ok(None),
                };
            }
            Content::Named(name) => self.definition(name).ok_or_else(|| {
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
        &self,
        document: &Document,
        complex: &Complex,
        owner: &Name,
        fields: &mut Vec<FlatField>,
        depth: usize,
    ) -> Result<(), Refusal> {
        let refuse = |reason| Err(Refusal::new(&document.file, reason));
        match complex {
            _ if depth == DERIVATION_MAX => return refuse(NotFlatReason::Depth(depth)),
            Complex {
                restricted: true, ..
            } => return refuse(NotFlatReason::Restriction),
            Complex {
                is_abstract: true, ..
            } if depth == 0 => {
                return refuse(NotFlatReason::Abstract);
            }
            Complex { mixed: true, .. } => return refuse(NotFlatReason::Mixed),
            Complex {
                unusual: Some(what),
                ..
            } => {
                return refuse(NotFlatReason::ContentModel(what));
            }
            Complex { wildcard: true, .. } => return refuse(NotFlatReason::Anything),
            _ => {}
        }
        if let Some(base) = &complex.base {
            match self.complex(document, base)? {
                Some((document, base)) => self.fields(document, base, owner, fields, depth + 1)?,
                None if complex.simple_content => {
                    let resolved = self.simple(document, base, 0)?;
                    fields.push(resolved.field(owner.clone(), FieldPlace::Text, &Notes::default()));
                }
                None => return refuse(NotFlatReason::Mixed),
            }
        }
        for element in &complex.elements {
            if self.is_extension_point(document, element) {
                continue;
            }
            let field = self
                .field(document, element, FieldPlace::Element)
                .map_err(|refusal| refusal.inside(&element.name))?;
            fields.push(field);
        }
        for group in &complex.groups {
            let (document, group) = self.group(group).ok_or_else(|| {
                Refusal::new(&document.file, NotFlatReason::UnknownType(group.clone()))
            })?;
            self.fields(document, group, owner, fields, depth + 1)?;
        }
        for attribute in &complex.attributes {
            let field = self
                .attribute_field(document, attribute)
                .map_err(|refusal| refusal.inside(&attribute.name))?;
            fields.push(field);
        }
        if fields.len() > FIELDS_MAX {
            return refuse(NotFlatReason::Width(FIELDS_MAX));
        }
        Ok(())
    }

    /// Whether an element may be missing and has no content of its own but wildcards: there
    /// vendors put what the schema does not know.
    fn is_extension_point(&self, document: &Document, element: &Declaration) -> bool {
        let target = match &element.content {
            Content::Reference(name) => self.element(name),
            _ => Some((document, element)),
        };
        let content = target.map(|(home, target)| self.complex(home, &target.content));
        let Some(Ok(Some((_, complex)))) = content else {
            return false;
        };
        element.optional
            && complex.base.is_none()
            && complex.unusual.is_none()
            && !complex.restricted
            && complex.elements.is_empty()
            && complex.attributes.is_empty()
            && complex.groups.is_empty()
    }

    fn field(
        &self,
        document: &Document,
        element: &Declaration,
        place: FieldPlace,
    ) -> Result<FlatField, Refusal> {
        let (home, target) = match &element.content {
            Content::Reference(name) => self
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
        let notes = element.notes.clone().or(&target.notes);
        let mut field = resolved.field(target.name.clone(), place, &notes);
        if place == FieldPlace::Element {
            field.optional = element.optional;
            field.repeated = element.repeated;
        }
        Ok(field)
    }

    fn attribute_field(
        &self,
        document: &Document,
        attribute: &Attribute,
    ) -> Result<FlatField, Refusal> {
        let target = match &attribute.content {
            Content::Reference(name) => self.attribute(name),
            _ => Some(attribute),
        };
        let resolved = match target {
            Some(target) => self.simple(document, &target.content, 0)?,
            // Attributes of other specifications, such as xml:lang, hold text.
            None => Resolved::of(XsdType::AnySimpleType),
        };
        let mut field = resolved.field(
            attribute.name.clone(),
            FieldPlace::Attribute,
            &attribute.notes,
        );
        field.optional = !attribute.required;
        Ok(field)
    }

    /// Follows a simple type to the built-in one.
    fn simple(
        &self,
        document: &Document,
        content: &Content,
        depth: usize,
    ) -> Result<Resolved, Refusal> {
        let refuse = |reason| Err(Refusal::new(&document.file, reason));
        if depth == DERIVATION_MAX {
            return refuse(NotFlatReason::Depth(depth));
        }
        let (document, definition) = match content {
            Content::Named(name) if name.namespace == NAMESPACE => {
                return match (XsdType::from_local(&name.local), &*name.local) {
                    (Some(data_type), _) => Ok(Resolved::of(data_type)),
                    (None, "NMTOKENS") => Ok(Resolved::list(XsdType::NmToken)),
                    (None, "IDREFS") => Ok(Resolved::list(XsdType::IdRef)),
                    (None, _) => refuse(NotFlatReason::UnknownType(name.clone())),
                };
            }
            Content::Named(name) => match self.definition(name) {
                Some(found) => found,
                None => return refuse(NotFlatReason::UnknownType(name.clone())),
            },
            Content::Inline(definition) => (document, &**definition),
            Content::Unbound(text) => return refuse(NotFlatReason::UnboundPrefix(text.clone())),
            Content::Reference(_) | Content::Anything => return refuse(NotFlatReason::Anything),
        };
        match definition {
            Definition::Complex(_) => refuse(NotFlatReason::Nested),
            Definition::Simple(Simple::Union, _) => refuse(NotFlatReason::Union),
            Definition::Simple(Simple::Restriction(base, values), notes) => {
                let mut resolved = self.simple(document, base, depth + 1)?;
                if !values.is_empty() {
                    resolved.enumeration.clone_from(values);
                }
                resolved.notes = notes.clone().or(&resolved.notes);
                Ok(resolved)
            }
            Definition::Simple(Simple::List(item), notes) => {
                let mut resolved = self.simple(document, item, depth + 1)?;
                resolved.list = true;
                resolved.notes = notes.clone().or(&resolved.notes);
                Ok(resolved)
            }
        }
    }
}

impl Resolved {
    fn of(data_type: XsdType) -> Self {
        Self {
            data_type: Some(data_type),
            ..Self::default()
        }
    }

    fn list(data_type: XsdType) -> Self {
        Self {
            list: true,
            ..Self::of(data_type)
        }
    }

    /// The field; what its declaration says goes before what its type says.
    fn field(self, name: Name, place: FieldPlace, declared: &Notes) -> FlatField {
        let notes = declared.clone().or(&self.notes);
        let data_type = self.data_type.unwrap_or(XsdType::AnySimpleType);
        let period = notes.sample_period.as_deref().filter(|_| self.list);
        let period = period.and_then(|text| parse_duration(text).ok());
        let period = period.and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
        FlatField {
            place,
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
    /// What `self` does not say, `other` does.
    fn or(self, other: &Self) -> Self {
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

//! The fields of a struct: attributes, elements and choices.

use chappe_xml::Name;

use super::Types;
use super::structure::alternatives;
use super::value::{constraint, number_of};
use crate::rust::ITEMS_MAX;
use crate::rust::names::{Scope, comment, identifier, literal, pascal, plain, snake};
use crate::schema::{AttributeModel, ElementModel, Occurs, Part, TypeContent, TypeId};

/// How often a field occurs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    Optional,
    Many,
}

impl Times {
    pub(super) fn of(occurs: Occurs) -> Self {
        match occurs {
            _ if occurs.is_repeated() => Self::Many,
            _ if occurs.is_optional() => Self::Optional,
            _ => Self::Once,
        }
    }

    /// Those of a part inside of one with these.
    pub(super) fn inside(self, outer: Self) -> Self {
        match (self, outer) {
            (Self::Many, _) | (_, Self::Many) => Self::Many,
            (Self::Optional, _) | (_, Self::Optional) => Self::Optional,
            (Self::Once, Self::Once) => Self::Once,
        }
    }
}

/// A field, or only comments.
pub(super) struct Field {
    pub(super) lines: Vec<String>,
    pub(super) element: Option<FieldElement>,
}

/// The element of a field.
pub(super) struct FieldElement {
    pub(super) name: Name,
    /// The identifier of the field.
    pub(super) field: String,
    /// The type of one element.
    pub(super) data_type: String,
    pub(super) times: Times,
    pub(super) is_nillable: bool,
}

impl FieldElement {
    pub(super) fn rust_type(&self) -> String {
        let data_type = &self.data_type;
        match self.times {
            Times::Once => data_type.clone(),
            Times::Optional => format!("Option<{data_type}>"),
            Times::Many if self.is_nillable => format!("Vec<Option<{data_type}>>"),
            Times::Many => format!("Vec<{data_type}>"),
        }
    }
}

/// The fields of a struct that is being written.
pub(super) struct Fields {
    pub(super) owner: String,
    pub(super) names: Scope,
    pub(super) fields: Vec<Field>,
    pub(super) namespace: Option<String>,
}

impl Fields {
    pub(super) fn comment(&mut self, text: &str) {
        let lines = comment("    //", text);
        self.fields.push(Field {
            lines,
            element: None,
        });
    }
}

impl Types<'_> {
    pub(super) fn attribute(&mut self, fields: &mut Fields, attribute: &AttributeModel) {
        let local = &*attribute.name.local;
        if !attribute.name.namespace.is_empty() {
            let namespace = &attribute.name.namespace;
            let what = "is not read, and not written";
            fields.comment(&format!(
                "Attribute {local} of the namespace {namespace} {what}."
            ));
            return;
        }
        let hint = match &attribute.type_name {
            Some(name) => pascal(&name.local),
            None => format!("{}{}", fields.owner, pascal(local)),
        };
        let data_type = self.simple(&attribute.data_type, &hint, None);
        let field = fields.names.take(snake(local));
        let mut lines = comment(
            "    ///",
            &plain(attribute.doc.as_deref().unwrap_or_default()),
        );
        lines.extend(constraint(&attribute.data_type));
        lines.push("    #[attribute]".to_owned());
        let identifier = identifier(&field);
        if identifier.trim_start_matches("r#") != local {
            lines.push(format!("    #[name({})]", literal(local)));
        }
        lines.push(match attribute.is_required {
            true => format!("    pub {identifier}: {data_type},"),
            false => format!("    pub {identifier}: Option<{data_type}>,"),
        });
        fields.fields.push(Field {
            lines,
            element: None,
        });
    }

    pub(super) fn parts(
        &mut self,
        fields: &mut Fields,
        parts: &[Part],
        outer: Times,
        owner: TypeId,
    ) {
        for part in parts {
            if fields.fields.len() > ITEMS_MAX {
                self.is_too_large = true;
                return;
            }
            match part {
                Part::Element(element) => self.field(fields, element, outer, owner),
                Part::Sequence(occurs, inside) => {
                    let times = Times::of(*occurs).inside(outer);
                    if occurs.is_repeated() {
                        fields.comment(
                            "The next elements are repeated as a group: those of each name are together \
                             here, and written one name after the other.",
                        );
                    } else if occurs.is_optional() {
                        fields.comment("The next elements are there together, or none of them.");
                    }
                    self.parts(fields, inside, times, owner);
                }
                Part::Choice(occurs, inside) => self.choice_part(fields, *occurs, inside, outer, owner),
                Part::Any(_) => fields.comment(
                    "Any further elements may be here (xs:any): they are ignored when read, and not \
                     written.",
                ),
                Part::Unsupported(reason) => {
                    fields.comment(&format!("A part of the content has no type: {reason}."));
                }
            }
        }
    }

    fn choice_part(
        &mut self,
        fields: &mut Fields,
        occurs: Occurs,
        inside: &[Part],
        outer: Times,
        owner: TypeId,
    ) {
        let times = Times::of(occurs).inside(outer);
        let namespace = fields.namespace.clone();
        let alternatives = alternatives(inside).filter(|alternatives| {
            let mut alternatives = alternatives.iter();
            alternatives.all(|element| match &namespace {
                Some(namespace) => element.name.namespace == **namespace,
                None => true,
            })
        });
        let Some(alternatives) = alternatives else {
            fields.comment("One of the next groups of elements is there; which, no type says.");
            let times = Times::Optional.inside(times);
            for part in inside {
                self.parts(fields, std::slice::from_ref(part), times, owner);
            }
            return;
        };
        let first = alternatives.first();
        fields.namespace = fields
            .namespace
            .take()
            .or_else(|| first.map(|element| element.name.namespace.to_string()));
        let name = self.names.take(format!("{}Choice", fields.owner));
        let docs = comment("///", &format!("A choice in `{}`.", fields.owner));
        let field = fields.names.take("choice".to_owned());
        if !self.choice(&alternatives, name.clone(), docs, owner) {
            fields.comment(&format!("No element of the choice `{name}` has a type."));
            return;
        }
        fields.fields.push(Field {
            lines: vec!["    #[choice]".to_owned()],
            element: Some(FieldElement {
                name: Name::local(""),
                field,
                data_type: name,
                times,
                is_nillable: false,
            }),
        });
    }

    fn field(&mut self, fields: &mut Fields, element: &ElementModel, outer: Times, owner: TypeId) {
        let local = &*element.name.local;
        if element.occurs.max == Some(0) {
            fields.comment(&format!("Element {local} must not be there."));
            return;
        }
        let namespace = &element.name.namespace;
        let place = fields
            .namespace
            .get_or_insert_with(|| namespace.to_string());
        if *namespace != **place {
            let what = "is ignored when read, and not written";
            fields.comment(&format!(
                "Element {local} of the namespace {namespace} {what}."
            ));
            return;
        }
        let again = fields.fields.iter_mut().find(|field| {
            let known = field.element.as_ref();
            known.is_some_and(|known| known.name == element.name)
        });
        if let Some(again) = again {
            if let Some(known) = &mut again.element {
                known.times = Times::Many;
                known.is_nillable |= element.is_nillable;
            }
            fields.comment(&format!(
                "Element {local} is here again: all are in the field above."
            ));
            return;
        }
        let hint = format!("{}{}", fields.owner, pascal(local));
        let data_type = match self.type_of(element.data_type, &hint) {
            Ok(data_type) => data_type,
            Err(reason) => {
                let effect = match element.occurs.is_optional() {
                    true => "it is ignored when read, and not written",
                    false => "it is required, so a message without it may be refused",
                };
                fields.comment(&format!("Element {local} has no type: {reason}; {effect}."));
                return;
            }
        };
        let times = Times::of(element.occurs).inside(outer);
        let data_type = match times != Times::Many && self.contains(element.data_type, owner) {
            true => format!("Box<{data_type}>"),
            false => data_type,
        };
        let mut lines = comment(
            "    ///",
            &plain(element.doc.as_deref().unwrap_or_default()),
        );
        if let TypeContent::Simple(simple) = &self.model.type_of(element.data_type).content {
            lines.extend(constraint(simple));
        }
        if element.is_nillable && times == Times::Once {
            let text =
                "The device may send `xsi:nil` in place of a value: such a message is refused.";
            lines.extend(comment("    //", text));
        }
        let is_number = number_of(&data_type);
        if let Some(unit) = element
            .unit
            .as_deref()
            .filter(|unit| unit.trim() == *unit && is_number)
        {
            lines.push(format!("    #[unit({})]", literal(unit)));
        }
        let field = identifier(&fields.names.take(snake(local)));
        if field.trim_start_matches("r#") != local {
            lines.push(format!("    #[name({})]", literal(local)));
        }
        fields.fields.push(Field {
            lines,
            element: Some(FieldElement {
                name: element.name.clone(),
                field,
                data_type,
                times,
                is_nillable: element.is_nillable,
            }),
        });
    }
}

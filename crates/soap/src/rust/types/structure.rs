//! Structs with their fields, and enums of choices.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::fields::{Field, Fields, Times};
use super::value::constraint;
use super::{DERIVES, Item, Types};
use crate::rust::ITEMS_MAX;
use crate::rust::names::{Scope, comment, identifier, literal, pascal, plain};
use crate::schema::{ElementModel, Occurs, Part, TypeContent, TypeId};

impl Types<'_> {
    /// Writes a struct, or the enum of a choice.
    pub(super) fn item(&mut self, id: TypeId, name: String) {
        let found = self.model.type_of(id);
        let docs = comment("///", &plain(found.doc.as_deref().unwrap_or_default()));
        let TypeContent::Complex(complex) = found.content.clone() else {
            return;
        };
        let is_plain = complex.attributes.is_empty() && !complex.is_mixed;
        if is_plain
            && let [Part::Choice(Occurs::ONCE, parts)] = complex.parts.as_slice()
            && let Some(alternatives) = alternatives(parts)
        {
            self.choice(&alternatives, name, docs, id);
            return;
        }
        let mut fields = Fields {
            owner: name.clone(),
            names: Scope::default(),
            fields: Vec::new(),
            namespace: None,
        };
        if complex.attributes.len() > ITEMS_MAX {
            self.is_too_large = true;
            return;
        }
        for attribute in &complex.attributes {
            self.attribute(&mut fields, attribute);
        }
        if let Some(text) = &complex.text {
            let value = self.simple(text, &format!("{name}Text"), None);
            let field = identifier(&fields.names.take("text".to_owned()));
            let mut lines = constraint(text);
            lines.extend([
                "    #[text]".to_owned(),
                format!("    pub {field}: {value},"),
            ]);
            fields.fields.push(Field {
                lines,
                element: None,
            });
        }
        if complex.is_mixed {
            fields.comment("Text between the elements has no type: a message with it is not read.");
        }
        self.parts(&mut fields, &complex.parts, Times::Once, id);
        let mut body = format!("pub struct {name} {{\n");
        for field in fields.fields {
            for line in field.lines {
                body.push_str(&line);
                body.push('\n');
            }
            if let Some(element) = field.element {
                let (field, data_type) = (&element.field, element.rust_type());
                let _ = writeln!(body, "    pub {field}: {data_type},");
            }
        }
        body.push_str("}\n");
        self.items.push(Item {
            namespace: fields.namespace,
            docs,
            derives: DERIVES,
            body,
        });
    }

    /// Writes the enum of a choice in `owner`. False if none of its elements has a type; then it is a
    /// struct without fields.
    pub(super) fn choice(
        &mut self,
        alternatives: &[&ElementModel],
        name: String,
        docs: Vec<String>,
        owner: TypeId,
    ) -> bool {
        if alternatives.len() > ITEMS_MAX {
            self.is_too_large = true;
            return false;
        }
        let mut variants = Scope::default();
        let (mut namespace, mut has_variants) = (None, false);
        let mut body = String::new();
        for element in alternatives {
            let local = &*element.name.local;
            let place = namespace.get_or_insert_with(|| element.name.namespace.to_string());
            let hint = format!("{name}{}", pascal(local));
            let reason = match self.type_of(element.data_type, &hint) {
                _ if *element.name.namespace != **place => "it is in another namespace".to_owned(),
                Err(reason) => reason.to_string(),
                Ok(data_type) => {
                    let variant = variants.take(pascal(local));
                    for line in comment(
                        "    ///",
                        &plain(element.doc.as_deref().unwrap_or_default()),
                    ) {
                        let _ = writeln!(body, "{line}");
                    }
                    if variant != local {
                        let _ = writeln!(body, "    #[name({})]", literal(local));
                    }
                    has_variants = true;
                    let boxed = match self.contains(element.data_type, owner) {
                        true => format!("Box<{data_type}>"),
                        false => data_type,
                    };
                    let _ = writeln!(body, "    {variant}({boxed}),");
                    continue;
                }
            };
            for line in comment("    //", &format!("Element {local} has no type: {reason}.")) {
                let _ = writeln!(body, "{line}");
            }
        }
        let keyword = if has_variants { "enum" } else { "struct" };
        self.items.push(Item {
            namespace,
            docs,
            derives: DERIVES,
            body: format!("pub {keyword} {name} {{\n{body}}}\n"),
        });
        has_variants
    }

    /// Whether a type contains another, so that a field of it needs a box.
    pub(super) fn contains(&self, from: TypeId, wanted: TypeId) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if id == wanted {
                return true;
            }
            if seen.insert(id)
                && let TypeContent::Complex(complex) = &self.model.type_of(id).content
            {
                complex
                    .parts
                    .iter()
                    .for_each(|part| inner_types(part, &mut open));
            }
        }
        false
    }
}

fn inner_types(part: &Part, types: &mut Vec<TypeId>) {
    match part {
        Part::Element(element) => types.push(element.data_type),
        Part::Sequence(_, parts) | Part::Choice(_, parts) => {
            parts.iter().for_each(|part| inner_types(part, types));
        }
        Part::Any(_) | Part::Unsupported(_) => {}
    }
}

/// The elements of a choice in which each alternative is one element, with different names.
pub(super) fn alternatives(parts: &[Part]) -> Option<Vec<&ElementModel>> {
    let mut names = HashSet::new();
    let alternatives = parts.iter().map(|part| match part {
        Part::Element(element) if element.occurs == Occurs::ONCE => {
            names.insert(&element.name).then_some(element)
        }
        _ => None,
    });
    let alternatives: Vec<_> = alternatives.collect::<Option<_>>()?;
    (!alternatives.is_empty()).then_some(alternatives)
}

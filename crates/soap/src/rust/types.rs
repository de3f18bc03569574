//! Structs and enums from the types of elements.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use chappe_xml::Name;

use super::names::{Scope, comment, identifier, literal, pascal, plain, snake};
use super::{ITEMS_MAX, SOURCE_BYTES_MAX, SourceError};
use crate::schema::{
    AttributeModel, ComplexType, ElementModel, Model, NotFlatReason, Occurs, Part, Schemas,
    SimpleType, TypeContent, TypeId, XsdType,
};

/// What stands before a struct or enum of messages.
const DERIVES: &str = "#[derive(Message, Debug, Clone, PartialEq)]";

/// The types of one module.
pub(super) struct Types<'s> {
    model: Model<'s>,
    names: Scope,
    items: Vec<Item>,
    made: HashMap<TypeId, String>,
    /// Enumerations by the name that they asked for and their values.
    enumerations: HashMap<(String, Vec<String>), String>,
    open: VecDeque<(TypeId, String)>,
    /// The namespaces of the messages' elements.
    roots: HashSet<String>,
    /// Whether a struct or enum has more than [`ITEMS_MAX`] fields.
    is_too_large: bool,
}

/// A struct or enum.
struct Item {
    /// The namespace of its elements, if it has any.
    namespace: Option<String>,
    docs: Vec<String>,
    derives: &'static str,
    body: String,
}

/// How often a field occurs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Once,
    Optional,
    Many,
}

impl Times {
    fn of(occurs: Occurs) -> Self {
        match occurs {
            _ if occurs.is_repeated() => Self::Many,
            _ if occurs.is_optional() => Self::Optional,
            _ => Self::Once,
        }
    }

    /// Those of a part inside of one with these.
    fn inside(self, outer: Self) -> Self {
        match (self, outer) {
            (Self::Many, _) | (_, Self::Many) => Self::Many,
            (Self::Optional, _) | (_, Self::Optional) => Self::Optional,
            (Self::Once, Self::Once) => Self::Once,
        }
    }
}

/// A field, or only comments.
struct Field {
    lines: Vec<String>,
    element: Option<FieldElement>,
}

/// The element of a field.
struct FieldElement {
    name: Name,
    /// The identifier of the field.
    field: String,
    /// The type of one element.
    data_type: String,
    times: Times,
    is_nillable: bool,
}

impl FieldElement {
    fn rust_type(&self) -> String {
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
struct Fields {
    owner: String,
    names: Scope,
    fields: Vec<Field>,
    namespace: Option<String>,
}

impl Fields {
    fn comment(&mut self, text: &str) {
        let lines = comment("    //", text);
        self.fields.push(Field {
            lines,
            element: None,
        });
    }
}

impl<'s> Types<'s> {
    pub(super) fn new(schemas: &'s Schemas) -> Self {
        Self {
            model: Model::new(schemas),
            names: Scope::of_types(),
            items: Vec::new(),
            made: HashMap::new(),
            enumerations: HashMap::new(),
            open: VecDeque::new(),
            roots: HashSet::new(),
            is_too_large: false,
        }
    }

    /// The type of a message with this element.
    pub(super) fn element(&mut self, name: &Name) -> Result<String, NotFlatReason> {
        let element = self.model.element(name)?;
        self.roots.insert(name.namespace.to_string());
        self.type_of(element.data_type, &pascal(&name.local))
    }

    /// Adds an enum of faults, and returns its name.
    pub(super) fn faults(&mut self, name: &str, doc: &str, lines: &[String]) -> String {
        let name = self.names.take(name.to_owned());
        self.items.push(Item {
            namespace: None,
            docs: comment("///", doc),
            derives: "#[derive(Fault, Debug, Clone, PartialEq)]",
            body: format!("pub enum {name} {{\n{}\n}}\n", lines.join("\n")),
        });
        name
    }

    /// Writes the open types, and returns the source of all.
    pub(super) fn finish(mut self) -> Result<String, SourceError> {
        let mut written = 0;
        while let Some((id, name)) = self.open.pop_front() {
            if self.items.len() > ITEMS_MAX {
                return Err(SourceError::TooLarge);
            }
            self.item(id, name);
            written += self.items.last().map_or(0, |item| item.body.len());
            if self.is_too_large || written > SOURCE_BYTES_MAX {
                return Err(SourceError::TooLarge);
            }
        }
        let mut namespaces: HashSet<&str> = self.roots.iter().map(|name| &**name).collect();
        let items = self.items.iter();
        namespaces.extend(items.filter_map(|item| item.namespace.as_deref()));
        // One namespace is that of the messages; of several each type states its own.
        let is_uniform = namespaces.len() <= 1;
        let mut source = String::new();
        for item in &self.items {
            let docs = item.docs.join("\n");
            let separator = if docs.is_empty() { "" } else { "\n" };
            let _ = write!(source, "\n{docs}{separator}{}\n", item.derives);
            if let Some(namespace) = item.namespace.as_ref().filter(|_| !is_uniform) {
                let _ = writeln!(source, "#[message(namespace = {})]", literal(namespace));
            }
            source.push_str(&item.body);
            if source.len() > SOURCE_BYTES_MAX {
                return Err(SourceError::TooLarge);
            }
        }
        Ok(imports(&source) + &source)
    }

    /// The Rust type of a type; `hint` is the name of one that has none of its own.
    fn type_of(&mut self, id: TypeId, hint: &str) -> Result<String, NotFlatReason> {
        if let Some(made) = self.made.get(&id) {
            return Ok(made.clone());
        }
        let found = self.model.type_of(id);
        let name = match &found.name {
            Some(name) => pascal(&name.local),
            None => hint.to_owned(),
        };
        let (content, doc) = (found.content.clone(), found.doc.clone());
        let made = match content {
            TypeContent::Unsupported(reason) => return Err(reason),
            TypeContent::Simple(simple) => self.simple(&simple, &name, doc.as_deref()),
            TypeContent::Complex(complex) => match &complex {
                ComplexType {
                    text: Some(text),
                    attributes,
                    ..
                } if attributes.is_empty() => self.simple(text, &name, doc.as_deref()),
                ComplexType {
                    attributes, parts, ..
                } if attributes.is_empty() && parts.is_empty() && complex.text.is_none() => {
                    "()".to_owned()
                }
                _ => {
                    let name = self.names.take(name);
                    self.open.push_back((id, name.clone()));
                    name
                }
            },
        };
        self.made.insert(id, made.clone());
        Ok(made)
    }

    fn simple(&mut self, simple: &SimpleType, name: &str, doc: Option<&str>) -> String {
        let values = &simple.facets.enumeration;
        let number = number(simple.data_type);
        let is_writable = |value: &String| !value.trim().is_empty() && value.trim() == value;
        match number {
            Some(number) if simple.is_list => format!("Samples<{number}>"),
            Some(number) => number.to_owned(),
            None if simple.is_list || !simple.members.is_empty() => "String".to_owned(),
            None if !values.is_empty() && values.iter().all(is_writable) => {
                self.enumeration(values, name, doc)
            }
            None => match simple.data_type {
                XsdType::Boolean => "bool",
                XsdType::Base64Binary => "Vec<u8>",
                XsdType::Duration => "Duration",
                XsdType::DateTime => "SystemTime",
                _ => "String",
            }
            .to_owned(),
        }
    }

    fn enumeration(&mut self, values: &[String], name: &str, doc: Option<&str>) -> String {
        let mut distinct: Vec<String> = Vec::new();
        let mut known = HashSet::new();
        for value in values {
            if known.insert(value.clone()) {
                distinct.push(value.clone());
            }
        }
        let key = (name.to_owned(), distinct);
        if let Some(known) = self.enumerations.get(&key) {
            return known.clone();
        }
        let taken = self.names.take(name.to_owned());
        let mut variants = Scope::default();
        let mut body = format!("pub enum {taken} {{\n");
        for value in &key.1 {
            let variant = variants.take(pascal(value));
            if variant != *value {
                let _ = writeln!(body, "    #[name({})]", literal(value));
            }
            let _ = writeln!(body, "    {variant},");
        }
        body.push_str("}\n");
        self.items.push(Item {
            namespace: None,
            docs: comment("///", &plain(doc.unwrap_or_default())),
            derives: "#[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]",
            body,
        });
        self.enumerations.insert(key, taken.clone());
        taken
    }

    /// Writes a struct, or the enum of a choice.
    fn item(&mut self, id: TypeId, name: String) {
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
    fn choice(
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

    fn attribute(&mut self, fields: &mut Fields, attribute: &AttributeModel) {
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

    fn parts(&mut self, fields: &mut Fields, parts: &[Part], outer: Times, owner: TypeId) {
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

    /// Whether a type contains another, so that a field of it needs a box.
    fn contains(&self, from: TypeId, wanted: TypeId) -> bool {
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
fn alternatives(parts: &[Part]) -> Option<Vec<&ElementModel>> {
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

/// Whether a type is a number, or a list of them.
fn number_of(data_type: &str) -> bool {
    let inner = data_type.strip_prefix("Samples<");
    let inner = inner
        .and_then(|rest| rest.strip_suffix('>'))
        .unwrap_or(data_type);
    matches!(
        inner,
        "i8" | "i16" | "i32" | "i64" | "u16" | "u32" | "u64" | "f32" | "f64"
    )
}

/// The number of a built-in type.
fn number(data_type: XsdType) -> Option<&'static str> {
    Some(match data_type {
        XsdType::Byte => "i8",
        XsdType::Short => "i16",
        XsdType::Int => "i32",
        XsdType::Long
        | XsdType::Integer
        | XsdType::NegativeInteger
        | XsdType::NonPositiveInteger => "i64",
        XsdType::UnsignedByte | XsdType::UnsignedShort => "u16",
        XsdType::UnsignedInt => "u32",
        XsdType::UnsignedLong | XsdType::NonNegativeInteger | XsdType::PositiveInteger => "u64",
        XsdType::Float => "f32",
        XsdType::Double | XsdType::Decimal => "f64",
        _ => return None,
    })
}

/// What the schema demands of a value and the Rust type does not.
fn constraint(simple: &SimpleType) -> Vec<String> {
    let facets = &simple.facets;
    let is_enum = number(simple.data_type).is_none()
        && !facets.enumeration.is_empty()
        && !simple.is_list
        && simple.members.is_empty();
    let is_limited = facets.min.is_some()
        || facets.max.is_some()
        || facets.min_length.is_some()
        || facets.max_length.is_some()
        || !facets.enumeration.is_empty();
    let is_text = matches!(
        simple.data_type,
        XsdType::String | XsdType::Token | XsdType::NormalizedString | XsdType::AnySimpleType
    );
    let is_other = number(simple.data_type).is_none()
        && !is_text
        && !matches!(
            simple.data_type,
            XsdType::Boolean | XsdType::Base64Binary | XsdType::Duration | XsdType::DateTime
        );
    let is_narrower = matches!(
        simple.data_type,
        XsdType::UnsignedByte
            | XsdType::Decimal
            | XsdType::Integer
            | XsdType::PositiveInteger
            | XsdType::NegativeInteger
            | XsdType::NonPositiveInteger
            | XsdType::NonNegativeInteger
    );
    let says = is_limited || is_other || is_narrower || !simple.members.is_empty();
    match says && !is_enum {
        true => comment("    ///", &plain(&format!("In the schema: {simple}."))),
        false => Vec::new(),
    }
}

/// The imports that the source needs.
fn imports(source: &str) -> String {
    let mut imports = String::new();
    let times: Vec<&str> = ["Duration", "SystemTime"]
        .into_iter()
        .filter(|name| has_word(source, name))
        .collect();
    let messages: Vec<&str> = ["Fault", "Message", "Samples"]
        .into_iter()
        .filter(|name| has_word(source, name))
        .collect();
    let mut line = |path: &str, names: &[&str]| {
        let _ = match names {
            [] => Ok(()),
            [name] => writeln!(imports, "use {path}::{name};"),
            names => writeln!(imports, "use {path}::{{{}}};", names.join(", ")),
        };
    };
    line("std::time", &times);
    line("chappe_soap::message", &messages);
    imports
}

/// Whether the code, without its comments, has this word.
fn has_word(source: &str, word: &str) -> bool {
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut words =
        code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.any(|known| known == word)
}

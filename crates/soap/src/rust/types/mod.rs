//! Structs and enums from the types of elements.

mod fields;
mod structure;
mod value;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use chappe_xml::Name;

use super::names::{Scope, comment, literal, pascal, plain};
use super::{ITEMS_MAX, SOURCE_BYTES_MAX, SourceError};
use crate::schema::{
    ComplexType, Model, NotFlatReason, Schemas, SimpleType, TypeContent, TypeId, XsdType,
};

use value::number;

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

    /// Writes the open types, and returns the source of all, with the traits of this crate.
    pub(super) fn finish(mut self, library: &str) -> Result<String, SourceError> {
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
        Ok(imports(&source, library) + &source)
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
}

/// The imports that the source needs.
fn imports(source: &str, library: &str) -> String {
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
    line(&format!("{library}::message"), &messages);
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

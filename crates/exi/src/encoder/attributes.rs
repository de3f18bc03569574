//! Attributes: kept until the start tag is whole, as they are sorted, then written.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Encoder;
use super::body::{Found, shortened};
use super::kept::{Keeper, Kept, Piece};
use crate::bits::width;
use crate::datatype::Ready;
use crate::error::Cause;
use crate::event::Name;
use crate::grammar::{At, Learnt, Second, is_xsi_type};
use crate::schema::{NONE, Terminal, XSD_NAMESPACE, XSI_NAMESPACE};
use crate::value::{Value, collapse};

/// An attribute of the open start tag; its texts are in the keeper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffered {
    namespace: Piece,
    local: Piece,
    prefix: Option<Piece>,
    value: Kept,
}

/// The attributes of the open start tag.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    list: Vec<Buffered>,
    keeper: Keeper,
}

impl Attributes {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.keeper.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn name(&self, one: &Buffered) -> Name<'_> {
        name_of(&self.keeper, one)
    }
}

fn name_of<'k>(keeper: &'k Keeper, one: &Buffered) -> Name<'k> {
    Name {
        namespace: keeper.text(one.namespace),
        local: keeper.text(one.local),
        prefix: one.prefix.map(|prefix| keeper.text(prefix)),
    }
}

impl Encoder {
    /// Keeps an attribute until the start tag is whole, as they are sorted.
    #[inline(never)]
    pub(super) fn buffer(&mut self, name: &Name<'_>, value: &Value<'_>) -> Result<(), Cause> {
        if self.grammar.stack.len() == 1 {
            return Err(Cause::Misuse("an attribute outside an element"));
        }
        let Attributes { list, keeper } = &mut self.attributes;
        list.push(Buffered {
            namespace: keeper.keep_text(name.namespace),
            local: keeper.keep_text(name.local),
            prefix: name.prefix.map(|prefix| keeper.keep_text(prefix)),
            value: keeper.keep(value),
        });
        Ok(())
    }

    /// Writes the attributes of the start tag: xsi:type, xsi:nil, then the others, sorted where
    /// there is a schema (6).
    #[inline(never)]
    pub(super) fn attributes(&mut self) -> Result<(), Cause> {
        let mut attributes = core::mem::take(&mut self.attributes);
        let first = |name: &Name<'_>| match () {
            () if name.is_xsi("type") => 0,
            () if name.is_xsi("nil") => 1,
            () => 2,
        };
        // Built-in grammars take them in any order.
        let of_schema = matches!(self.grammar.top().at, At::Schema(_));
        let sorted = of_schema || self.canonical.is_some();
        let Attributes { list, keeper } = &mut attributes;
        if list.len() > 1 {
            list.sort_unstable_by(|one, other| {
                let (a, b) = (name_of(keeper, one), name_of(keeper, other));
                let order = first(&a).cmp(&first(&b));
                let order = order.then_with(|| match sorted {
                    true => (a.local, a.namespace).cmp(&(b.local, b.namespace)),
                    false => core::cmp::Ordering::Equal,
                });
                // As they came.
                order.then(one.local.cmp(&other.local))
            });
        }
        let mut written = Ok(());
        for one in &attributes.list {
            let value = attributes.keeper.value(one.value);
            written = self.attribute(attributes.name(one), &value);
            if written.is_err() {
                break;
            }
        }
        attributes.clear();
        self.attributes = attributes;
        written
    }

    pub(super) fn attribute(&mut self, name: Name<'_>, value: &Value<'_>) -> Result<(), Cause> {
        match self.grammar.top().at {
            At::Schema(_) if name.is_xsi("type") => self.xsi_type(name, value),
            At::Schema(_) if name.is_xsi("nil") => self.xsi_nil(name, value),
            At::Schema(state) => self.attribute_of_schema(state, name, value),
            _ => self.attribute_of_built_in(name, value),
        }
    }

    /// In front of what follows in the start tag of a built-in grammar that must not learn: a type whose
    /// grammar does not (EXI Profile, 3.1).
    #[inline(never)]
    pub(super) fn limit_learning(&mut self) -> Result<(), Cause> {
        let schema = &self.grammar.schema;
        let lexical = self.grammar.options.preserve.lexical_values;
        if !self.grammar.learns_no_more() || !schema.informed || lexical {
            return Ok(());
        }
        let type_ = |one| self.attributes.name(one).is_xsi("type");
        if self.attributes.list.iter().any(type_) {
            return Ok(());
        }
        let any = Value::QName {
            namespace: XSD_NAMESPACE,
            local: "anyType",
            prefix: None,
        };
        self.attribute_of_built_in(Name::new(XSI_NAMESPACE, "type"), &any)
    }

    pub(super) fn attribute_of_built_in(
        &mut self,
        name: Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        let known = self.find(&name);
        // The EXI Profile wants xsi:type by its event code of two parts.
        let limited = name.is_xsi("type") && self.grammar.learns_no_more();
        let learnt = self.grammar.learnt();
        let count = learnt.len();
        let found = known.filter(|_| !limited).and_then(|known| {
            let place = learnt
                .iter()
                .rposition(|one| *one == Learnt::Attribute(known));
            place.map(|at| (at, known))
        });
        let known = match found {
            Some((at, known)) => {
                self.code(count - 1 - at, count);
                known
            }
            None => {
                self.undeclared(Second::AttributeAny)?;
                let known = self.name(&name)?;
                self.grammar.learn(Learnt::Attribute(known))?;
                known
            }
        };
        self.prefix(known, name.prefix)?;
        if is_xsi_type(&self.grammar.schema, known) {
            return self.type_value(known, value);
        }
        self.untyped(known, value)
    }

    pub(super) fn attribute_of_schema(
        &mut self,
        state: u32,
        name: Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        let found = self.production(state, |terminal, schema| match terminal {
            Terminal::Attribute { name: known, .. } if schema.is(known, &name) => Found::Best,
            Terminal::AttributeIn(uri) if schema.uri(uri) == name.namespace => Found::Good,
            Terminal::AttributeAny => Found::Fair,
            _ => Found::No,
        });
        let count = self.first_parts();
        let mut ready = Ready::NONE;
        let declared = match found.map(|(_, production)| production.terminal) {
            Some(Terminal::Attribute { datatype, .. }) => datatype,
            _ => NONE,
        };
        let text = self.attribute_text(declared, value);
        let value = &text.as_deref().map_or(*value, Value::Text);
        if let Some((at, production)) = found
            && let Terminal::Attribute {
                name: known,
                datatype,
            } = production.terminal
        {
            if self.ready(datatype, value, &mut ready) {
                self.code(at, count);
                self.grammar.follow(production.next);
                self.prefix(known, name.prefix)?;
                return self.put(known, datatype, &ready);
            }
            if !self.has(Second::AttributeUntyped) {
                return Err(self.not_typed(datatype, value));
            }
            self.untyped_code(state, at as u32)?;
            self.grammar.follow(production.next);
            self.prefix(known, name.prefix)?;
            return self.untyped(known, value);
        }
        // By a wildcard, or undeclared: by the global declaration, if there is one.
        let global = self
            .find(&name)
            .and_then(|known| self.grammar.global_attribute(known));
        let datatype = global.unwrap_or(NONE);
        if !self.ready(datatype, value, &mut ready) {
            if !self.has(Second::AttributeUntyped) {
                return Err(self.not_typed(datatype, value));
            }
            let (_, count) = self.grammar.attributes(state);
            self.untyped_code(state, count)?;
            let known = self.name(&name)?;
            self.prefix(known, name.prefix)?;
            return self.untyped(known, value);
        }
        let known = match found {
            Some((at, production)) => {
                self.code(at, count);
                self.grammar.follow(production.next);
                match production.terminal {
                    Terminal::AttributeIn(uri) => self.local_name(uri, name.local)?,
                    _ => self.name(&name)?,
                }
            }
            None if self.has(Second::AttributeAny) => {
                self.undeclared(Second::AttributeAny)?;
                self.name(&name)?
            }
            None => {
                let mut text = String::from("attribute ");
                text.push_str(&shortened(name.local));
                return Err(Cause::NotAllowed(text));
            }
        };
        self.prefix(known, name.prefix)?;
        self.put(known, datatype, &ready)
    }

    /// The event code of an attribute with an untyped value, of three parts.
    pub(super) fn untyped_code(&mut self, state: u32, third: u32) -> Result<(), Cause> {
        let (_, count) = self.grammar.attributes(state);
        self.undeclared(Second::AttributeUntyped)?;
        self.writer.bits(third, width(u64::from(count) + 1));
        Ok(())
    }

    pub(super) fn xsi_type(&mut self, name: Name<'_>, value: &Value<'_>) -> Result<(), Cause> {
        if !self.has(Second::XsiType) {
            // A strict schema has no place for the type that the element has anyway (8.5.4.4.2).
            // A canonical stream leaves nothing out.
            return match self.is_own_type(value) && self.canonical.is_none() {
                true => Ok(()),
                false => Err(self.not_allowed(Second::XsiType)),
            };
        }
        self.undeclared(Second::XsiType)?;
        let known = self.grammar.schema.xsi_type();
        self.prefix(known, name.prefix)?;
        self.type_value(known, value)
    }

    pub(super) fn is_own_type(&self, value: &Value<'_>) -> bool {
        let schema = &self.grammar.schema;
        let name = self.type_name(value);
        let type_ = self
            .find(&name)
            .and_then(|name| schema.names.get(name as usize));
        let type_ = type_.and_then(|name| schema.types.get(name.type_ as usize));
        type_.is_some_and(|type_| At::Schema(type_.start) == self.grammar.top().at)
    }

    /// The expanded name of a type; without a binding for its prefix the whole is the local name.
    pub(super) fn type_name<'v>(&'v self, value: &'v Value<'_>) -> Name<'v> {
        match value {
            Value::QName {
                namespace,
                local,
                prefix,
            } => Name {
                namespace,
                local,
                prefix: *prefix,
            },
            Value::Text(text) | Value::Lexical(text) => {
                let text = collapse(text);
                let (prefix, local) = text.split_once(':').unwrap_or(("", text));
                let bound = self
                    .scope
                    .iter()
                    .rev()
                    .find(|(_, bound, _)| bound == prefix);
                let namespace = bound.map(|(_, _, namespace)| namespace.as_str());
                match namespace {
                    Some(namespace) => Name {
                        namespace,
                        local,
                        prefix: Some(prefix),
                    },
                    None => Name::new("", text),
                }
            }
            _ => Name::new("", ""),
        }
    }

    /// The value of xsi:type: of the structure, as it decides on the grammar.
    pub(super) fn type_value(&mut self, known: u32, value: &Value<'_>) -> Result<(), Cause> {
        let Name {
            namespace,
            local,
            prefix,
        } = self.type_name(value);
        let (namespace, local) = (namespace.to_string(), local.to_string());
        let prefix = prefix.map(ToString::to_string);
        let type_ = Name {
            namespace: &namespace,
            local: &local,
            prefix: prefix.as_deref(),
        };
        let type_name = if self.grammar.options.preserve.lexical_values {
            let text = value.to_string();
            self.write(known, &Ready::Text(&text))?;
            self.find(&type_)
        } else {
            let name = self.name(&type_)?;
            self.prefix(name, type_.prefix)?;
            Some(name)
        };
        if let Some(name) = type_name {
            self.grammar.cast(name);
        }
        Ok(())
    }

    pub(super) fn xsi_nil(&mut self, name: Name<'_>, value: &Value<'_>) -> Result<(), Cause> {
        let known = self.grammar.schema.xsi_nil();
        let nil = match value {
            Value::Boolean(nil) => Some(*nil),
            Value::Text(text) | Value::Lexical(text) => match collapse(text) {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        let At::Schema(state) = self.grammar.top().at else {
            return Ok(());
        };
        match nil {
            Some(nil) if self.has(Second::XsiNil) => {
                let datatype = self.grammar.schema.boolean;
                self.undeclared(Second::XsiNil)?;
                self.prefix(known, name.prefix)?;
                let mut ready = Ready::NONE;
                if !self.ready(datatype, value, &mut ready) {
                    return Err(Cause::Misuse("a boolean that is none"));
                }
                self.write(known, &ready)?;
                if nil {
                    self.grammar.nil();
                }
                Ok(())
            }
            // What says nothing is not missed.
            Some(false) if self.canonical.is_none() => Ok(()),
            None if self.has(Second::AttributeUntyped) => {
                let (_, count) = self.grammar.attributes(state);
                self.untyped_code(state, count)?;
                let known = self.name(&name)?;
                self.prefix(known, name.prefix)?;
                self.untyped(known, value)
            }
            _ => Err(self.not_allowed(Second::XsiNil)),
        }
    }
}

//! Encoding attributes. They are buffered until the start tag is complete, because they may have to
//! be sorted.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Encoder;
use super::body::{MatchRank, truncated};
use super::kept::{StoredRange, StoredValue, ValueStore};
use crate::bits::width;
use crate::datatype::PreparedValue;
use crate::error::Cause;
use crate::event::Name;
use crate::grammar::{LearnedProduction, Position, SecondPart, is_xsi_type};
use crate::schema::{NONE, Terminal, XSD_NAMESPACE, XSI_NAMESPACE};
use crate::value::{Value, collapse};

/// An attribute of the open start tag; its texts are in the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferedAttribute {
    namespace: StoredRange,
    local: StoredRange,
    prefix: Option<StoredRange>,
    value: StoredValue,
}

/// The attributes of the open start tag.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    list: Vec<BufferedAttribute>,
    store: ValueStore,
}

impl Attributes {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.store.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn name(&self, one: &BufferedAttribute) -> Name<'_> {
        name_of(&self.store, one)
    }
}

fn name_of<'k>(store: &'k ValueStore, one: &BufferedAttribute) -> Name<'k> {
    Name {
        namespace: store.text(one.namespace),
        local: store.text(one.local),
        prefix: one.prefix.map(|prefix| store.text(prefix)),
    }
}

impl Encoder {
    /// Buffers an attribute until the start tag is complete.
    #[inline(never)]
    pub(super) fn buffer_attribute(
        &mut self,
        name: &Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        if self.grammar.stack.len() == 1 {
            return Err(Cause::Misuse(
                "an attribute must follow the start of an element",
            ));
        }
        let Attributes { list, store } = &mut self.attributes;
        list.push(BufferedAttribute {
            namespace: store.store_text(name.namespace),
            local: store.store_text(name.local),
            prefix: name.prefix.map(|prefix| store.store_text(prefix)),
            value: store.store_value(value),
        });
        Ok(())
    }

    /// Writes the attributes of the start tag: xsi:type, xsi:nil, then the others, sorted if the
    /// grammar is a schema's (6).
    #[inline(never)]
    pub(super) fn write_attributes(&mut self) -> Result<(), Cause> {
        let mut attributes = core::mem::take(&mut self.attributes);
        let first = |name: &Name<'_>| match () {
            () if name.is_xsi("type") => 0,
            () if name.is_xsi("nil") => 1,
            () => 2,
        };
        // Built-in grammars allow any order.
        let of_schema = matches!(self.grammar.top().position, Position::Schema(_));
        let sorted = of_schema || self.canonical.is_some();
        let Attributes { list, store } = &mut attributes;
        if list.len() > 1 {
            list.sort_unstable_by(|one, other| {
                let (a, b) = (name_of(store, one), name_of(store, other));
                let order = first(&a).cmp(&first(&b));
                let order = order.then_with(|| match sorted {
                    true => (a.local, a.namespace).cmp(&(b.local, b.namespace)),
                    false => core::cmp::Ordering::Equal,
                });
                // Otherwise in the order of the events.
                order.then(one.local.cmp(&other.local))
            });
        }
        let mut written = Ok(());
        for one in &attributes.list {
            let value = attributes.store.value(one.value);
            written = self.write_attribute(attributes.name(one), &value);
            if written.is_err() {
                break;
            }
        }
        attributes.clear();
        self.attributes = attributes;
        written
    }

    pub(super) fn write_attribute(
        &mut self,
        name: Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        match self.grammar.top().position {
            Position::Schema(_) if name.is_xsi("type") => self.write_xsi_type(name, value),
            Position::Schema(_) if name.is_xsi("nil") => self.write_xsi_nil(name, value),
            Position::Schema(state) => self.write_attribute_of_schema(state, name, value),
            _ => self.write_attribute_of_built_in(name, value),
        }
    }

    /// Adds, in the start tag of a built-in grammar that may learn no more, an xsi:type whose
    /// grammar does not learn (EXI Profile, 3.1).
    #[inline(never)]
    pub(super) fn limit_learning(&mut self) -> Result<(), Cause> {
        let schema = &self.grammar.schema;
        let lexical = self.grammar.options.preserve.lexical_values;
        if !self.grammar.is_learning_exhausted() || !schema.informed || lexical {
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
        self.write_attribute_of_built_in(Name::new(XSI_NAMESPACE, "type"), &any)
    }

    pub(super) fn write_attribute_of_built_in(
        &mut self,
        name: Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        let known = self.find_name(&name);
        // The EXI Profile requires the event code of two parts for xsi:type.
        let limited = name.is_xsi("type") && self.grammar.is_learning_exhausted();
        let learned = self.grammar.learned_productions();
        let count = learned.len();
        let found = known.filter(|_| !limited).and_then(|known| {
            let place = learned
                .iter()
                .rposition(|one| *one == LearnedProduction::Attribute(known));
            place.map(|at| (at, known))
        });
        let known = match found {
            Some((at, known)) => {
                self.write_first_part(count - 1 - at, count);
                known
            }
            None => {
                self.write_second_part(SecondPart::AttributeAny)?;
                let known = self.write_name(&name)?;
                self.grammar
                    .learn_production(LearnedProduction::Attribute(known))?;
                known
            }
        };
        self.write_prefix(known, name.prefix)?;
        if is_xsi_type(&self.grammar.schema, known) {
            return self.write_type_value(known, value);
        }
        self.write_untyped(known, value)
    }

    pub(super) fn write_attribute_of_schema(
        &mut self,
        state: u32,
        name: Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        let found = self.find_production(state, |terminal, schema| match terminal {
            Terminal::Attribute { name: known, .. } if schema.is(known, &name) => MatchRank::Name,
            Terminal::AttributeIn(uri) if schema.uri(uri) == name.namespace => MatchRank::Namespace,
            Terminal::AttributeAny => MatchRank::Wildcard,
            _ => MatchRank::NoMatch,
        });
        let count = self.first_part_count();
        let mut ready = PreparedValue::NONE;
        let declared = match found.map(|(_, production)| production.terminal) {
            Some(Terminal::Attribute { datatype, .. }) => datatype,
            _ => NONE,
        };
        let text = self.normalized_attribute(declared, value);
        let value = &text.as_deref().map_or(*value, Value::Text);
        if let Some((at, production)) = found
            && let Terminal::Attribute {
                name: known,
                datatype,
            } = production.terminal
        {
            if self.prepare(datatype, value, &mut ready) {
                self.write_first_part(at, count);
                self.grammar.move_to(production.next);
                self.write_prefix(known, name.prefix)?;
                return self.write_or_enqueue(known, datatype, &ready);
            }
            if !self.has_second_part(SecondPart::AttributeUntyped) {
                return Err(self.not_typed(datatype, value));
            }
            self.write_untyped_code(state, at as u32)?;
            self.grammar.move_to(production.next);
            self.write_prefix(known, name.prefix)?;
            return self.write_untyped(known, value);
        }
        // An attribute that matches a wildcard, or is undeclared, has the type of its global
        // declaration, if there is one.
        let global = self
            .find_name(&name)
            .and_then(|known| self.grammar.global_attribute(known));
        let datatype = global.unwrap_or(NONE);
        if !self.prepare(datatype, value, &mut ready) {
            if !self.has_second_part(SecondPart::AttributeUntyped) {
                return Err(self.not_typed(datatype, value));
            }
            let (_, count) = self.grammar.attributes(state);
            self.write_untyped_code(state, count)?;
            let known = self.write_name(&name)?;
            self.write_prefix(known, name.prefix)?;
            return self.write_untyped(known, value);
        }
        let known = match found {
            Some((at, production)) => {
                self.write_first_part(at, count);
                self.grammar.move_to(production.next);
                match production.terminal {
                    Terminal::AttributeIn(uri) => self.write_local_name(uri, name.local)?,
                    _ => self.write_name(&name)?,
                }
            }
            None if self.has_second_part(SecondPart::AttributeAny) => {
                self.write_second_part(SecondPart::AttributeAny)?;
                self.write_name(&name)?
            }
            None => {
                let mut text = String::from("attribute ");
                text.push_str(&truncated(name.local));
                return Err(Cause::NotAllowed(text));
            }
        };
        self.write_prefix(known, name.prefix)?;
        self.write_or_enqueue(known, datatype, &ready)
    }

    /// Writes the event code of an attribute with an untyped value, which has three parts.
    pub(super) fn write_untyped_code(&mut self, state: u32, third: u32) -> Result<(), Cause> {
        let (_, count) = self.grammar.attributes(state);
        self.write_second_part(SecondPart::AttributeUntyped)?;
        self.writer.bits(third, width(u64::from(count) + 1));
        Ok(())
    }

    pub(super) fn write_xsi_type(
        &mut self,
        name: Name<'_>,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        if !self.has_second_part(SecondPart::XsiType) {
            // A strict grammar may not allow xsi:type, but the element already has the type that it
            // names (8.5.4.4.2). A canonical stream must not omit it.
            return match self.is_current_type(value) && self.canonical.is_none() {
                true => Ok(()),
                false => Err(self.not_allowed(SecondPart::XsiType)),
            };
        }
        self.write_second_part(SecondPart::XsiType)?;
        let known = self.grammar.schema.xsi_type();
        self.write_prefix(known, name.prefix)?;
        self.write_type_value(known, value)
    }

    pub(super) fn is_current_type(&self, value: &Value<'_>) -> bool {
        let schema = &self.grammar.schema;
        let name = self.type_name(value);
        let type_ = self
            .find_name(&name)
            .and_then(|name| schema.names.get(name as usize));
        let type_ = type_.and_then(|name| schema.types.get(name.type_ as usize));
        type_.is_some_and(|type_| Position::Schema(type_.start) == self.grammar.top().position)
    }

    /// The expanded name of a type. If its prefix is not bound, the whole text is the local name.
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

    /// Writes the value of xsi:type. It belongs to the structure because it selects the grammar.
    pub(super) fn write_type_value(&mut self, known: u32, value: &Value<'_>) -> Result<(), Cause> {
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
            self.write_value(known, &PreparedValue::Text(&text))?;
            self.find_name(&type_)
        } else {
            let name = self.write_name(&type_)?;
            self.write_prefix(name, type_.prefix)?;
            Some(name)
        };
        if let Some(name) = type_name {
            self.grammar.apply_xsi_type(name);
        }
        Ok(())
    }

    pub(super) fn write_xsi_nil(&mut self, name: Name<'_>, value: &Value<'_>) -> Result<(), Cause> {
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
        let Position::Schema(state) = self.grammar.top().position else {
            return Ok(());
        };
        match nil {
            Some(nil) if self.has_second_part(SecondPart::XsiNil) => {
                let datatype = self.grammar.schema.boolean;
                self.write_second_part(SecondPart::XsiNil)?;
                self.write_prefix(known, name.prefix)?;
                let mut ready = PreparedValue::NONE;
                if !self.prepare(datatype, value, &mut ready) {
                    return Err(Cause::Misuse("the value of xsi:nil is not a boolean"));
                }
                self.write_value(known, &ready)?;
                if nil {
                    self.grammar.apply_xsi_nil();
                }
                Ok(())
            }
            // `xsi:nil="false"` has no effect and is omitted.
            Some(false) if self.canonical.is_none() => Ok(()),
            None if self.has_second_part(SecondPart::AttributeUntyped) => {
                let (_, count) = self.grammar.attributes(state);
                self.write_untyped_code(state, count)?;
                let known = self.write_name(&name)?;
                self.write_prefix(known, name.prefix)?;
                self.write_untyped(known, value)
            }
            _ => Err(self.not_allowed(SecondPart::XsiNil)),
        }
    }
}

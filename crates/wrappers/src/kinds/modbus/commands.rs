//! Commands over Modbus: the argument `value` of a call is written to registers or a coil.

use std::collections::BTreeMap;

use chappe_stream::DescriptorError;
use chappe_stream::descriptor::toml_words;
use serde::Deserialize;

use super::map::{Map, check_span};
use super::plan::{Span, Table};
use super::value::{Layout, LayoutKeys, Number, Order, TypeKey};
use crate::{Command, WrapperError, WrapperFile};

/// Most registers that one request writes (Modbus Application Protocol 1.1b3, section 6.12).
const WRITTEN_MAX: u16 = 123;
/// The argument of a call.
const ARGUMENT: &str = "value";

/// The keys of a `[[command]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    table: Table,
    address: u16,
    #[serde(rename = "type")]
    type_key: TypeKey,
    unit_id: Option<u8>,
    bit: Option<u8>,
    length: Option<u16>,
    byte_order: Option<Order>,
    word_order: Option<Order>,
    scale: Option<Number>,
    offset: Option<Number>,
}

/// Where a command writes.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    unit_id: u8,
    span: Span,
    layout: Layout,
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) unit_id: u8,
    pub(super) span: Span,
    pub(super) words: Vec<u16>,
    pub(super) bit: Option<u8>,
}

/// The commands of a file, by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Commands(BTreeMap<String, Target>);

impl Commands {
    /// Those of a file with this map.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn of(file: &WrapperFile, map: &Map) -> Result<Self, DescriptorError> {
        let mut commands = BTreeMap::new();
        for table in &file.keys.commands {
            let name = &table.name;
            let fault = |text: String| {
                let hint = "table = \"holding\", address = 100 and type = \"i16\" write the argument `value`";
                file.fault(
                    "command",
                    format!("{name:?}: {text}"),
                    Some(hint.to_owned()),
                )
            };
            let settings = toml::Value::Table(table.settings.clone()).try_into();
            let settings: Settings =
                settings.map_err(|error: toml::de::Error| fault(toml_words(error.message())))?;
            if matches!(settings.table, Table::Input | Table::Discrete) {
                return Err(fault(format!(
                    "the table {} cannot be written",
                    settings.table.name()
                )));
            }
            let layout = Layout::new(LayoutKeys {
                type_key: settings.type_key,
                is_bit: settings.table.has_bits(),
                bit: settings.bit,
                length: settings.length,
                bytes: settings.byte_order.unwrap_or(map.orders.0),
                words: settings.word_order.unwrap_or(map.orders.1),
                scale: settings.scale,
                offset: settings.offset,
                null_number: None,
            });
            let layout = layout.map_err(|(key, text)| fault(format!("{key}: {text}")))?;
            let span = Span {
                table: settings.table,
                address: settings.address,
                count: layout.count(),
            };
            check_span(span, WRITTEN_MAX).map_err(fault)?;
            let target = Target {
                unit_id: settings.unit_id.unwrap_or(map.unit_id),
                span,
                layout,
            };
            if commands.insert(name.clone(), target).is_some() {
                return Err(fault("it is defined twice".to_owned()));
            }
        }
        Ok(Self(commands))
    }

    /// The write of a call.
    ///
    /// # Errors
    /// The command or an argument is not known, or the value does not fit.
    pub(super) fn write(&self, command: &Command) -> Result<Write, WrapperError> {
        let wrong = |text: String| WrapperError::Command(text);
        let target = self.0.get(&command.name);
        let target = target
            .ok_or_else(|| wrong(format!("this wrapper has no command {:?}", command.name)))?;
        if let Some(name) = command.arguments.keys().find(|name| *name != ARGUMENT) {
            return Err(wrong(format!("the command has no argument {name:?}")));
        }
        let value = command.arguments.get(ARGUMENT);
        let value = value.ok_or_else(|| wrong(format!("the argument {ARGUMENT:?} is missing")))?;
        Ok(Write {
            unit_id: target.unit_id,
            span: target.span,
            words: target.layout.encode(value).map_err(wrong)?,
            bit: target.layout.bit(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;
    use serde_json::{Value, json};

    fn commands(keys: &str) -> Result<Commands, String> {
        let file = wrapper_file(&format!(
            "kind = \"modbus\"\naddress = \"modbus://a\"\nunit_id = 3\nword_order = \"little\"\n[[command]]\n\
             name = \"set\"\n{keys}\n[[poll]]\n\
             registers = [{{ name = \"a\", table = \"input\", address = 0, type = \"u16\" }}]\n"
        ));
        let map = Map::of(&file).unwrap();
        Commands::of(&file, &map).map_err(|error| error.to_string())
    }

    fn written(keys: &str, arguments: Value) -> Result<Write, String> {
        let command = Command {
            name: "set".to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
        };
        let write = commands(keys).unwrap().write(&command);
        write.map_err(|error| error.to_string())
    }

    #[test]
    fn the_value_of_a_call_becomes_registers() {
        let keys = "table = \"holding\"\naddress = 10\ntype = \"i32\"\nscale = 0.1";
        let write = written(keys, json!({ "value": -0.2 })).unwrap();
        assert_eq!((write.unit_id, write.words), (3, vec![0xfffe, 0xffff]));
        let bit = "table = \"holding\"\naddress = 10\ntype = \"bool\"\nbit = 4\nunit_id = 9";
        let write = written(bit, json!({ "value": true })).unwrap();
        assert_eq!(
            (write.unit_id, write.words, write.bit),
            (9, vec![1], Some(4))
        );
        for (arguments, word) in [
            (json!({}), "\"value\" is missing"),
            (json!({ "value": 1, "x": 2 }), "no argument \"x\""),
            (json!({ "value": "a" }), "not a number"),
            (json!({ "value": 1e12 }), "2147483647"),
        ] {
            let error = written(keys, arguments.clone()).unwrap_err();
            assert!(error.contains(word), "{arguments}: {error}");
        }
    }

    #[test]
    fn settings_that_write_nothing_are_refused() {
        for (keys, word) in [
            (
                "table = \"input\"\naddress = 1\ntype = \"u16\"",
                "cannot be written",
            ),
            ("table = \"holding\"\ntype = \"u16\"", "address"),
            (
                "table = \"coils\"\naddress = 1\ntype = \"u16\"",
                "of type bool",
            ),
            (
                "table = \"holding\"\naddress = 65535\ntype = \"u32\"",
                "last address",
            ),
            (
                "table = \"holding\"\naddress = 0\ntype = \"text\"\nlength = 124",
                "124",
            ),
        ] {
            let error = commands(keys).unwrap_err();
            assert!(
                error.contains(word) && error.contains("\"set\""),
                "{keys}: {error}"
            );
        }
    }
}

//! Devices that the peer of a wrapper announces: Home Assistant's discovery, birth certificates of Sparkplug.

use std::sync::Arc;

use chappe_stream::{FieldType, Timestamp};

use crate::StreamDefinition;

/// What a peer says about one of its devices. It is the whole of it: later reports take the place of earlier ones.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceReport {
    /// What identifies the device among those of the wrapper.
    pub id: String,
    /// The device; `None`: the peer does not announce it any more.
    pub device: Option<AnnouncedDevice>,
}

/// A device as a peer announces it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnnouncedDevice {
    /// For a person to read.
    pub name: String,
    /// Who made it.
    pub manufacturer: Option<String>,
    /// Which model it is.
    pub model: Option<String>,
    /// The version of its firmware.
    pub firmware: Option<String>,
    /// Its serial number.
    pub serial_number: Option<String>,
    /// Why it is not available; `None`: it is.
    pub offline: Option<String>,
    /// Since when it is available, or is not.
    pub since: Timestamp,
    /// Its streams, some of which may not have an element yet.
    pub streams: Vec<(Arc<str>, Arc<StreamDefinition>)>,
    /// What it can be told to do.
    pub operations: Vec<Operation>,
}

/// An operation of an announced device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operation {
    /// Its name, unique in the device.
    pub name: String,
    /// For a person to read.
    pub description: Option<String>,
    /// The argument `value`, if it has one.
    pub argument: Option<Argument>,
}

/// The argument of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// Its type.
    pub value_type: FieldType,
    /// A UCUM code.
    pub unit: Option<String>,
    /// The lowest number.
    pub minimum: Option<f64>,
    /// The highest number.
    pub maximum: Option<f64>,
    /// The texts that are allowed; empty: any.
    pub choices: Vec<String>,
}

impl Argument {
    /// One of a type, without other limits.
    #[must_use]
    pub fn of(value_type: FieldType) -> Self {
        Self {
            value_type,
            unit: None,
            minimum: None,
            maximum: None,
            choices: Vec::new(),
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Why it is none for this argument.
    pub fn check(&self, value: &serde_json::Value) -> Result<(), String> {
        let fits = match self.value_type {
            FieldType::Boolean => value.is_boolean(),
            FieldType::Integer => value.is_i64() || value.is_u64(),
            FieldType::Double => value.is_number(),
            FieldType::Text => value.is_string(),
            FieldType::Bytes | FieldType::Samples => false,
        };
        if !fits {
            let wanted = match self.value_type {
                FieldType::Boolean => "true or false",
                FieldType::Integer => "a whole number",
                FieldType::Double => "a number",
                _ => "a text",
            };
            return Err(format!("the argument \"value\" is {wanted}"));
        }
        if let Some(number) = value.as_f64() {
            let is_low = self.minimum.is_some_and(|minimum| number < minimum);
            let is_high = self.maximum.is_some_and(|maximum| number > maximum);
            if is_low || is_high {
                let shown = |limit: Option<f64>, otherwise: &str| {
                    limit.map_or_else(|| otherwise.to_owned(), |limit| limit.to_string())
                };
                let (low, high) = (
                    shown(self.minimum, "any number"),
                    shown(self.maximum, "any number"),
                );
                return Err(format!("{number} is not from {low} to {high}"));
            }
        }
        if let Some(text) = value.as_str()
            && !self.choices.is_empty()
            && !self.choices.iter().any(|choice| choice == text)
        {
            return Err(format!(
                "the argument \"value\" is one of {}",
                self.choices.join(", ")
            ));
        }
        Ok(())
    }
}

impl Operation {
    /// The argument of a call, checked; `None` for an operation without one.
    ///
    /// # Errors
    /// It is missing or does not fit, or there are others.
    pub fn argument_of<'a>(
        &self,
        arguments: &'a serde_json::Map<String, serde_json::Value>,
    ) -> Result<Option<&'a serde_json::Value>, String> {
        let is_value = |name: &&String| self.argument.is_some() && *name == "value";
        if let Some(other) = arguments.keys().find(|name| !is_value(name)) {
            return Err(format!("the operation has no argument {other:?}"));
        }
        let Some(argument) = &self.argument else {
            return Ok(None);
        };
        let value = arguments
            .get("value")
            .ok_or("the argument \"value\" is missing")?;
        argument.check(value)?;
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_is_checked_by_type_range_and_choice() {
        let number = Argument {
            minimum: Some(5.0),
            maximum: Some(30.0),
            ..Argument::of(FieldType::Double)
        };
        let choice = Argument {
            choices: vec!["eco".to_owned(), "boost".to_owned()],
            ..Argument::of(FieldType::Text)
        };
        let whole = Argument::of(FieldType::Integer);
        for (argument, value, word) in [
            (&number, json!(21.5), None),
            (&number, json!(5), None),
            (&number, json!(31), Some("from 5 to 30")),
            (&number, json!("21"), Some("a number")),
            (&choice, json!("eco"), None),
            (&choice, json!("off"), Some("eco, boost")),
            (&whole, json!(1.5), Some("whole")),
        ] {
            let checked = argument.check(&value);
            match word {
                None => assert_eq!(checked, Ok(()), "{value}"),
                Some(word) => assert!(checked.unwrap_err().contains(word), "{value}"),
            }
        }
    }

    #[test]
    fn an_operation_takes_exactly_its_argument() {
        let arguments = |value: serde_json::Value| value.as_object().unwrap().clone();
        let press = Operation::default();
        let set = Operation {
            argument: Some(Argument::of(FieldType::Boolean)),
            ..Operation::default()
        };
        assert_eq!(press.argument_of(&arguments(json!({}))), Ok(None));
        assert!(press.argument_of(&arguments(json!({"value": 1}))).is_err());
        let given = arguments(json!({"value": true}));
        assert_eq!(set.argument_of(&given), Ok(Some(&json!(true))));
        for wrong in [
            json!({}),
            json!({"value": 1}),
            json!({"value": true, "x": 1}),
        ] {
            assert!(set.argument_of(&arguments(wrong)).is_err());
        }
    }
}

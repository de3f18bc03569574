//! The operations of announced devices, as the REST API shows them.

use chappe_wrappers::Operation;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::shapes;

/// An operation of a device.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct DeviceOperation {
    /// Its name.
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// The argument `value`; null if it has none.
    pub(crate) argument: Option<OperationArgument>,
}

/// The argument of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct OperationArgument {
    /// Its type.
    #[serde(rename = "type")]
    #[schema(value_type = shapes::FieldType)]
    pub(crate) value_type: String,
    /// A UCUM code.
    pub(crate) unit: Option<String>,
    /// The lowest number.
    pub(crate) minimum: Option<f64>,
    /// The highest number.
    pub(crate) maximum: Option<f64>,
    /// The texts that are allowed; empty: any.
    pub(crate) choices: Vec<String>,
}

impl From<Operation> for DeviceOperation {
    fn from(operation: Operation) -> Self {
        let argument = operation.argument.map(|argument| {
            let word = serde_json::to_value(argument.value_type).unwrap_or_default();
            OperationArgument {
                value_type: word.as_str().unwrap_or_default().to_owned(),
                unit: argument.unit,
                minimum: argument.minimum,
                maximum: argument.maximum,
                choices: argument.choices,
            }
        });
        Self {
            name: operation.name,
            description: operation.description,
            argument,
        }
    }
}

//! Elements in other units: the parameter `units` of reading.

use chappe_stream::ucum::Conversion;
use chappe_stream::{StreamElement, StreamSchema, Value};

use super::problem::Problem;

/// The fields that are converted.
#[derive(Debug, Default)]
pub(super) struct Units {
    fields: Vec<(String, Conversion)>,
}

impl Units {
    /// Reads `FIELD:UNIT` separated by commas.
    pub(super) fn of(text: Option<&str>, schema: &StreamSchema) -> Result<Self, Problem> {
        let mut units = Self::default();
        for part in text.into_iter().flat_map(|text| text.split(',')) {
            let (name, unit) = part.split_once(':').ok_or_else(|| {
                Problem::bad_request(format!("units: {part:?} is not FIELD:UNIT"))
                    .hint("write it as units=temperature:Cel,pressure:kPa")
            })?;
            let field = schema.fields.iter().find(|field| field.name == name);
            let field = field.ok_or_else(|| {
                Problem::bad_request(format!("units: the stream has no field {name:?}"))
            })?;
            let from = field.unit.as_deref().ok_or_else(|| {
                Problem::bad_request(format!("units: the field {name:?} has no unit"))
            })?;
            if units.fields.iter().any(|(known, _)| known == name) {
                let detail = format!("units: the field {name:?} has two units");
                return Err(Problem::bad_request(detail));
            }
            let conversion = Conversion::new(from, unit)
                .map_err(|error| Problem::bad_request(format!("units: {error}")))?;
            units.fields.push((name.to_owned(), conversion));
        }
        Ok(units)
    }

    /// Converts elements of this schema.
    pub(super) fn apply(&self, schema: &StreamSchema, elements: &mut [StreamElement]) {
        for (name, conversion) in &self.fields {
            let index = schema.fields.iter().position(|field| field.name == *name);
            let Some(index) = index else { continue };
            for element in &mut *elements {
                convert(&mut element.values[index], *conversion);
            }
        }
    }
}

fn convert(value: &mut Value, conversion: Conversion) {
    match value {
        Value::Double(number) => *number = conversion.apply(*number),
        Value::Integer(number) => *value = Value::Double(conversion.apply(*number as f64)),
        Value::Samples(samples) => {
            for number in &mut samples.values {
                *number = conversion.apply(*number);
            }
        }
        _ => {}
    }
}

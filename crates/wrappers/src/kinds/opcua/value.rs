//! Values of variables as values of fields, and back.

use chappe_stream::{FieldType, Samples, Timestamp, Value};
use opcua_types::{Array, DateTime, EUInformation, Variant};

/// Ticks of 100 ns from 1601, where OPC UA begins, to 1970.
const TICKS_TO_1970: i64 = 116_444_736_000_000_000;
/// Whole numbers up to here are exact in a double.
const EXACT_MAX: u64 = 1 << 53;
/// Most bytes of one value; reason: a batch has 1 MiB, and one value needs room with others.
const VALUE_BYTES_MAX: usize = 512 << 10;
/// Bytes of a value that a dead letter shows; reason: a person reads it.
const SHOWN_BYTES: usize = 200;
/// The namespace of units whose numbers are common codes of UNECE Recommendation 20 (part 8, section 5.6.3.3).
const UNECE: &str = "http://www.opcfoundation.org/UA/units/un/cefact";

/// A time of OPC UA; none if it is not set, or before 1677 or after 2262, which no element can have.
pub(super) fn timestamp(time: &DateTime) -> Option<Timestamp> {
    let ticks = time.ticks();
    if ticks <= 0 {
        return None;
    }
    let since_1970 = ticks.checked_sub(TICKS_TO_1970)?;
    since_1970.checked_mul(100).map(Timestamp)
}

/// A time for OPC UA, cut to 100 ns.
pub(super) fn date_time(time: Timestamp) -> DateTime {
    DateTime::from(time.0.div_euclid(100) + TICKS_TO_1970)
}

/// The value of a field. An array becomes samples that are `period_ns` apart, from `time` on.
///
/// # Errors
/// Why the value does not fit.
pub(super) fn convert(
    variant: &Variant,
    field_type: FieldType,
    time: Timestamp,
    period_ns: u64,
) -> Result<Value, String> {
    let unfit = || {
        Err(format!(
            "{} is not a value of type {field_type:?}",
            describe(variant)
        ))
    };
    let value = match (variant, field_type) {
        (Variant::Empty, _) => Value::Null,
        (Variant::Variant(inner), _) if !matches!(**inner, Variant::Variant(_)) => {
            return convert(inner, field_type, time, period_ns);
        }
        (Variant::Boolean(value), FieldType::Boolean) => Value::Boolean(*value),
        (Variant::Array(array), FieldType::Samples) => Value::Samples(Samples {
            start: time,
            period_ns,
            values: samples(array)?,
        }),
        (Variant::Array(array), FieldType::Bytes) => match octets(array) {
            Some(bytes) => Value::Bytes(bytes),
            None => return unfit(),
        },
        (Variant::ByteString(bytes), FieldType::Bytes) => {
            bytes.value.clone().map_or(Value::Null, Value::Bytes)
        }
        (_, FieldType::Integer) => match whole(variant) {
            Some(number) => {
                let number = i64::try_from(number);
                number
                    .map(Value::Integer)
                    .map_err(|_| format!("{} is beyond 2^63 - 1", describe(variant)))?
            }
            None => return unfit(),
        },
        (_, FieldType::Double) => match number(variant)? {
            Some(number) => Value::Double(number),
            None => return unfit(),
        },
        (_, FieldType::Text) => match text(variant) {
            Some(text) => text.map_or(Value::Null, Value::Text),
            None => return unfit(),
        },
        _ => return unfit(),
    };
    let bytes = match &value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Samples(samples) => 8 * samples.values.len(),
        _ => 0,
    };
    if bytes > VALUE_BYTES_MAX {
        return Err(format!(
            "a value of {bytes} bytes; the limit is {VALUE_BYTES_MAX}"
        ));
    }
    Ok(value)
}

/// A whole number.
fn whole(variant: &Variant) -> Option<i128> {
    Some(match variant {
        Variant::Boolean(value) => i128::from(*value),
        Variant::SByte(value) => i128::from(*value),
        Variant::Byte(value) => i128::from(*value),
        Variant::Int16(value) => i128::from(*value),
        Variant::UInt16(value) => i128::from(*value),
        Variant::Int32(value) => i128::from(*value),
        Variant::UInt32(value) => i128::from(*value),
        Variant::Int64(value) => i128::from(*value),
        Variant::UInt64(value) => i128::from(*value),
        Variant::StatusCode(code) => i128::from(code.bits()),
        _ => return None,
    })
}

/// A number.
///
/// # Errors
/// It is a whole number that a double would round.
fn number(variant: &Variant) -> Result<Option<f64>, String> {
    match variant {
        Variant::Boolean(_) => return Ok(None),
        Variant::Float(value) => return Ok(Some(f64::from(*value))),
        Variant::Double(value) => return Ok(Some(*value)),
        _ => {}
    }
    let Some(number) = whole(variant) else {
        return Ok(None);
    };
    if number.unsigned_abs() > u128::from(EXACT_MAX) {
        return Err(format!(
            "{} is not exact as a double; use type = \"integer\"",
            describe(variant)
        ));
    }
    Ok(Some(number as f64))
}

/// A text; `Some(None)`: a text without a value.
fn text(variant: &Variant) -> Option<Option<String>> {
    let of = |text: &opcua_types::UAString| text.value().clone();
    Some(match variant {
        Variant::String(text) => of(text),
        Variant::XmlElement(text) => Some(text.to_string()),
        Variant::LocalizedText(text) => of(&text.text),
        Variant::QualifiedName(name) => of(&name.name),
        // Beyond the times that elements have, as the library writes it.
        Variant::DateTime(time) => Some(match timestamp(time) {
            Some(time) => time.to_string(),
            None if time.is_null() => return Some(None),
            None => time.to_rfc3339(),
        }),
        Variant::Guid(guid) => Some(guid.to_string()),
        Variant::NodeId(id) => Some(id.to_string()),
        Variant::ExpandedNodeId(id) => Some(id.to_string()),
        Variant::StatusCode(code) => Some(code.to_string()),
        _ => return None,
    })
}

fn samples(array: &Array) -> Result<Vec<f64>, String> {
    let dimensions = array.dimensions.as_ref().map_or(1, Vec::len);
    if dimensions > 1 {
        return Err(format!(
            "an array of {dimensions} dimensions is not a row of samples"
        ));
    }
    if 8 * array.values.len() > VALUE_BYTES_MAX {
        return Err(format!(
            "an array of {} numbers; the limit is {}",
            array.values.len(),
            VALUE_BYTES_MAX / 8
        ));
    }
    let values = array.values.iter().enumerate().map(|(index, value)| {
        let value = match value {
            Variant::Boolean(value) => Some(f64::from(u8::from(*value))),
            value => number(value)?,
        };
        value.ok_or_else(|| format!("[{index}] is not a number"))
    });
    values.collect()
}

fn octets(array: &Array) -> Option<Vec<u8>> {
    let octets = array.values.iter().map(|value| match value {
        Variant::Byte(value) => Some(*value),
        _ => None,
    });
    octets.collect()
}

/// A value for people, in a few words.
pub(super) fn describe(variant: &Variant) -> String {
    match variant {
        Variant::Array(array) => format!("{:?}[{}]", array.value_type, array.values.len()),
        Variant::ByteString(bytes) => format!("ByteString of {} bytes", bytes.len()),
        Variant::ExtensionObject(object) => {
            format!(
                "structure {}",
                object.type_name().unwrap_or("of an unknown type")
            )
        }
        Variant::String(_) | Variant::XmlElement(_) | Variant::LocalizedText(_) => {
            let text = text(variant).flatten().unwrap_or_default();
            format!("{:?}", beginning(&text))
        }
        other => beginning(&format!("{other:?}")).to_owned(),
    }
}

/// The beginning of a text.
fn beginning(text: &str) -> &str {
    let mut end = SHOWN_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The unit of a variable: a common code of UNECE as UCUM, else the server's own text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unit {
    Ucum(String),
    Text(String),
}

impl Unit {
    /// The unit in a property `EngineeringUnits`.
    pub(super) fn of(units: &EUInformation) -> Option<Self> {
        use chappe_format::units::{Vocabulary, to_ucum};
        let text = units.display_name.text.value().clone().unwrap_or_default();
        let bytes = units.unit_id.to_be_bytes();
        let code: String = bytes
            .iter()
            .filter(|byte| **byte != 0)
            .map(|byte| char::from(*byte))
            .collect();
        let is_unece = units.namespace_uri.as_ref() == UNECE && units.unit_id > 0;
        let ucum = is_unece
            .then(|| to_ucum(Vocabulary::Unece, &code))
            .flatten();
        // A server that has no such code names the unit as people do.
        let ucum = ucum.or_else(|| to_ucum(Vocabulary::Sparkplug, &text));
        match (ucum, text.is_empty()) {
            (Some(ucum), _) => Some(Self::Ucum(ucum)),
            (None, true) => None,
            (None, false) => Some(Self::Text(text.chars().take(64).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opcua_types::{LocalizedText, VariantScalarTypeId};
    use proptest::prelude::*;

    const TIME: Timestamp = Timestamp(1_700_000_000_123_456_700);

    fn of(variant: impl Into<Variant>, field_type: FieldType) -> Result<Value, String> {
        convert(&variant.into(), field_type, TIME, 1_000)
    }

    #[test]
    fn numbers_of_all_sizes_fit_exactly_or_not() {
        use FieldType::{Boolean, Double, Integer};
        assert_eq!(of(-5_i8, Integer), Ok(Value::Integer(-5)));
        assert_eq!(of(u32::MAX, Double), Ok(Value::Double(4_294_967_295.0)));
        assert_eq!(of(i64::MIN, Integer), Ok(Value::Integer(i64::MIN)));
        assert_eq!(
            of(1_u64 << 53, Double),
            Ok(Value::Double(9_007_199_254_740_992.0))
        );
        assert!(
            of((1_u64 << 53) + 1, Double)
                .unwrap_err()
                .contains("not exact")
        );
        assert!(of(u64::MAX, Integer).unwrap_err().contains("beyond"));
        assert_eq!(of(1.5_f32, Double), Ok(Value::Double(1.5)));
        assert!(of(1.5_f64, Integer).is_err());
        assert_eq!(of(true, Boolean), Ok(Value::Boolean(true)));
        assert_eq!(of(true, Integer), Ok(Value::Integer(1)));
        assert!(of(true, Double).is_err() && of(1_i32, Boolean).is_err());
        assert_eq!(of(Variant::Empty, Double), Ok(Value::Null));
    }

    #[test]
    fn texts_bytes_and_arrays_fit() {
        use FieldType::{Bytes, Double, Samples as Row, Text};
        let text = |text: &str| Ok(Value::Text(text.to_owned()));
        assert_eq!(of("on", Text), text("on"));
        assert_eq!(of(LocalizedText::new("en", "open"), Text), text("open"));
        assert_eq!(
            of(date_time(TIME), Text),
            text("2023-11-14T22:13:20.1234567Z")
        );
        assert!(
            of("on", Double)
                .unwrap_err()
                .contains("\"on\" is not a value of type Double")
        );
        let bytes = opcua_types::ByteString::from(&[1, 2]);
        assert_eq!(of(bytes, Bytes), Ok(Value::Bytes(vec![1, 2])));
        let row = |values| Variant::from(Array::new(VariantScalarTypeId::Int32, values).unwrap());
        let values = vec![Variant::Int32(1), Variant::Int32(2)];
        let samples = Value::Samples(Samples {
            start: TIME,
            period_ns: 1_000,
            values: vec![1.0, 2.0],
        });
        assert_eq!(of(row(values), Row), Ok(samples));
        let long = vec![Variant::Int32(1); VALUE_BYTES_MAX / 8 + 1];
        assert!(of(row(long), Row).unwrap_err().contains("limit"));
        let wide = Array::new_multi(
            VariantScalarTypeId::Int32,
            vec![Variant::Int32(1); 4],
            vec![2, 2],
        );
        assert!(
            of(Variant::from(wide.unwrap()), Row)
                .unwrap_err()
                .contains("2 dimensions")
        );
        assert!(
            of("x".repeat(VALUE_BYTES_MAX + 1), Text)
                .unwrap_err()
                .contains("limit")
        );
    }

    #[test]
    fn units_are_ucum_where_there_is_a_counterpart() {
        let unit = |namespace: &str, id: i32, text: &str| {
            Unit::of(&EUInformation {
                namespace_uri: namespace.into(),
                unit_id: id,
                display_name: LocalizedText::new("en", text),
                ..Default::default()
            })
        };
        // `CEL` and `KWH`.
        assert_eq!(
            unit(UNECE, 4_408_652, "?"),
            Some(Unit::Ucum("Cel".to_owned()))
        );
        assert_eq!(
            unit(UNECE, 4_937_544, ""),
            Some(Unit::Ucum("kW.h".to_owned()))
        );
        assert_eq!(unit("urn:own", 7, "°C"), Some(Unit::Ucum("Cel".to_owned())));
        assert_eq!(
            unit(UNECE, 1, "furlong"),
            Some(Unit::Text("furlong".to_owned()))
        );
        assert_eq!(unit("", -1, ""), None);
    }

    #[test]
    fn times_are_kept() {
        assert_eq!(timestamp(&date_time(TIME)), Some(TIME));
        assert_eq!(
            timestamp(&date_time(Timestamp(-100))),
            Some(Timestamp(-100))
        );
        assert_eq!(timestamp(&DateTime::null()), None);
        assert_eq!(timestamp(&DateTime::endtimes()), None);
    }

    fn scalars() -> impl Strategy<Value = Variant> {
        prop_oneof![
            any::<bool>().prop_map(Variant::from),
            any::<i8>().prop_map(Variant::from),
            any::<u8>().prop_map(Variant::from),
            any::<i64>().prop_map(Variant::from),
            any::<u64>().prop_map(Variant::from),
            any::<f32>().prop_map(Variant::from),
            any::<f64>().prop_map(Variant::from),
            any::<i64>().prop_map(|ticks| Variant::from(DateTime::from(ticks))),
            "\\PC{0,300}".prop_map(Variant::from),
        ]
    }

    proptest! {
        #[test]
        fn any_value_fits_or_is_refused(value in scalars(), copies in 0..5_usize) {
            use FieldType::{Boolean, Bytes, Double, Integer, Samples as Row, Text};
            let id = VariantScalarTypeId::Int32;
            let array = Array { value_type: id, values: vec![value.clone(); copies], dimensions: None };
            for variant in [value, Variant::Array(Box::new(array))] {
                for field_type in [Boolean, Bytes, Double, Integer, Row, Text] {
                    match convert(&variant, field_type, TIME, 1) {
                        Ok(Value::Null) | Err(_) => {}
                        Ok(value) => {
                            let schema = chappe_stream::StreamSchema {
                                fields: vec![chappe_stream::Field {
                                    name: "a".to_owned(), field_type, unit: None, observed_property: None, description: None,
                                }],
                                key: None,
                            };
                            let mut element = crate::tests::element(0.0);
                            element.values = vec![value];
                            prop_assert!(schema.check(&element).is_ok());
                        }
                    }
                }
            }
        }
    }
}

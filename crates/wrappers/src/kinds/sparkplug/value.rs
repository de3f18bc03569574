//! Values of Sparkplug B (Eclipse Sparkplug 3.0, 6.4.16 and 6.4.17) and those of elements.

use chappe_stream::{FieldType, Quality, Timestamp, Value};
use serde_json::json;

use super::payload::MetricValue;
use crate::Argument;

/// Numbers of data types.
pub(super) const INT32: u32 = 3;
pub(super) const INT64: u32 = 4;
pub(super) const DOUBLE: u32 = 10;
pub(super) const BOOLEAN: u32 = 11;
pub(super) const STRING: u32 = 12;
const BYTES: u32 = 17;
const DOUBLE_ARRAY: u32 = 31;
/// Codes of the property `Quality`.
const BAD: u32 = 0;
const GOOD: u32 = 192;
const STALE: u32 = 500;
/// Most items of an array; reason: one bit of a message becomes some bytes of text and more of memory.
const ITEMS_MAX: usize = 65_536;
/// Nanoseconds of a millisecond.
const MILLISECOND: i64 = 1_000_000;

/// The data type of a metric, as far as its values can be elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataType {
    /// Bits of a whole number with a sign.
    Signed(u32),
    /// Bits of a whole number without one.
    Unsigned(u32),
    Float,
    Boolean,
    Text,
    DateTime,
    Bytes,
    Array(Items),
}

/// The items of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Items {
    /// Bytes of a whole number with a sign.
    Signed(usize),
    /// Bytes of a whole number without one.
    Unsigned(usize),
    Float,
    Double,
    Boolean,
    Text,
    DateTime,
}

impl DataType {
    /// The one of a number.
    ///
    /// # Errors
    /// Why its values cannot be elements.
    pub(super) fn of(number: u32) -> Result<Self, String> {
        Ok(match number {
            1 => Self::Signed(8),
            2 => Self::Signed(16),
            INT32 => Self::Signed(32),
            INT64 => Self::Signed(64),
            5 => Self::Unsigned(8),
            6 => Self::Unsigned(16),
            7 => Self::Unsigned(32),
            8 => Self::Unsigned(64),
            9 | DOUBLE => Self::Float,
            BOOLEAN => Self::Boolean,
            STRING | 14 | 15 => Self::Text,
            13 => Self::DateTime,
            BYTES | 18 => Self::Bytes,
            22 => Self::Array(Items::Signed(1)),
            23 => Self::Array(Items::Signed(2)),
            24 => Self::Array(Items::Signed(4)),
            25 => Self::Array(Items::Signed(8)),
            26 => Self::Array(Items::Unsigned(1)),
            27 => Self::Array(Items::Unsigned(2)),
            28 => Self::Array(Items::Unsigned(4)),
            29 => Self::Array(Items::Unsigned(8)),
            30 => Self::Array(Items::Float),
            DOUBLE_ARRAY => Self::Array(Items::Double),
            32 => Self::Array(Items::Boolean),
            33 => Self::Array(Items::Text),
            34 => Self::Array(Items::DateTime),
            16 => return Err("a data set is not a single value".to_owned()),
            19 => return Err("a template is not a single value".to_owned()),
            other => return Err(format!("{other} is not a data type of a metric")),
        })
    }

    /// The type of the field.
    pub(super) fn field_type(self) -> FieldType {
        match self {
            Self::Signed(_) | Self::Unsigned(_) => FieldType::Integer,
            Self::Float => FieldType::Double,
            Self::Boolean => FieldType::Boolean,
            Self::Text | Self::DateTime | Self::Array(_) => FieldType::Text,
            Self::Bytes => FieldType::Bytes,
        }
    }

    /// The value of an element. A time is its text, an array its JSON.
    ///
    /// # Errors
    /// The value has another type, or is out of range.
    pub(super) fn read(self, value: &MetricValue) -> Result<Value, String> {
        let number = match value {
            MetricValue::Int(number) => Some(u64::from(*number)),
            // Some implementations write whole numbers of 32 bits so.
            MetricValue::Long(number) => Some(*number),
            _ => None,
        };
        let other = || "the value has another type than its metric".to_owned();
        Ok(match (self, value) {
            (Self::Signed(bits), _) => Value::Integer(signed(number.ok_or_else(other)?, bits)?),
            (Self::Unsigned(bits), _) => Value::Integer(unsigned(number.ok_or_else(other)?, bits)?),
            (Self::DateTime, _) => Value::Text(time(number.ok_or_else(other)?)?.to_string()),
            (Self::Float, MetricValue::Float(number)) => Value::Double(f64::from(*number)),
            (Self::Float, MetricValue::Double(number)) => Value::Double(*number),
            (Self::Boolean, MetricValue::Boolean(flag)) => Value::Boolean(*flag),
            (Self::Text, MetricValue::String(text)) => Value::Text(text.clone()),
            (Self::Bytes, MetricValue::Bytes(bytes)) => Value::Bytes(bytes.clone()),
            (Self::Array(items), MetricValue::Bytes(bytes)) => Value::Text(items.read(bytes)?),
            _ => return Err(other()),
        })
    }
}

/// A number with a sign in the low bits, or with its sign in all bits.
fn signed(number: u64, bits: u32) -> Result<i64, String> {
    let low = 64 - bits;
    let value = ((number << low) as i64) >> low;
    let is_short = bits == 64 || number >> bits == 0;
    let is_long = number == value as u64 || (bits < 32 && number == u64::from(value as u32));
    match is_short || is_long {
        true => Ok(value),
        false => Err(format!("{number} is not a number of {bits} bits")),
    }
}

fn unsigned(number: u64, bits: u32) -> Result<i64, String> {
    if bits < 64 && number >> bits != 0 {
        return Err(format!("{number} is not a number of {bits} bits"));
    }
    i64::try_from(number).map_err(|_| format!("{number} is beyond 9223372036854775807"))
}

/// A time in milliseconds.
pub(super) fn time(milliseconds: u64) -> Result<Timestamp, String> {
    let nanoseconds = i64::try_from(milliseconds)
        .ok()
        .and_then(|milliseconds| milliseconds.checked_mul(MILLISECOND));
    let nanoseconds = nanoseconds.ok_or_else(|| format!("{milliseconds} is not a time"))?;
    Ok(Timestamp(nanoseconds))
}

/// A time as milliseconds since 1970. There are no earlier ones: elements that have one are not sent.
pub(super) fn milliseconds(time: Timestamp) -> u64 {
    u64::try_from(time.0.div_euclid(MILLISECOND)).unwrap_or_default()
}

impl Items {
    /// An array as JSON.
    fn read(self, bytes: &[u8]) -> Result<String, String> {
        let broken = || "the array has a part of an item".to_owned();
        let too_many = || format!("the array has more than {ITEMS_MAX} items");
        let fixed = |size: usize, item: &dyn Fn(&[u8]) -> Result<serde_json::Value, String>| {
            let items = bytes.chunks_exact(size);
            if items.len() > ITEMS_MAX {
                return Err(too_many());
            }
            match items.remainder().is_empty() {
                true => items.map(item).collect::<Result<Vec<_>, _>>(),
                false => Err(broken()),
            }
        };
        let number = |bytes: &[u8]| {
            let digits = bytes.iter().rev();
            digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let items = match self {
            Self::Signed(size) => {
                fixed(size, &|it| Ok(json!(signed(number(it), 8 * size as u32)?)))?
            }
            Self::Unsigned(size) => fixed(size, &|it| Ok(json!(number(it))))?,
            Self::Float => fixed(4, &|it| Ok(json!(f32::from_bits(number(it) as u32))))?,
            Self::Double => fixed(8, &|it| Ok(json!(f64::from_bits(number(it)))))?,
            Self::DateTime => fixed(8, &|it| Ok(json!(time(number(it))?.to_string())))?,
            Self::Boolean => {
                let (count, bits) = bytes.split_at_checked(4).ok_or_else(broken)?;
                let count = number(count) as usize;
                if count > ITEMS_MAX {
                    return Err(too_many());
                }
                if bits.len() != count.div_ceil(8) {
                    return Err(broken());
                }
                // The first value is in the highest bit.
                let flag = |at: usize| bits[at / 8] & (0x80 >> (at % 8)) != 0;
                (0..count).map(|at| json!(flag(at))).collect()
            }
            Self::Text => {
                let texts = match bytes {
                    [] => return Ok("[]".to_owned()),
                    [texts @ .., 0] => texts,
                    _ => return Err(broken()),
                };
                if texts.len() > ITEMS_MAX {
                    return Err(too_many());
                }
                let texts = std::str::from_utf8(texts).map_err(|error| error.to_string())?;
                texts.split('\0').map(|text| json!(text)).collect()
            }
        };
        Ok(serde_json::Value::Array(items).to_string())
    }
}

/// The quality of an element.
pub(super) fn quality(code: Option<u32>) -> Quality {
    match code {
        None | Some(GOOD) => Quality::Good,
        Some(STALE) => Quality::Questionable,
        Some(_) => Quality::Bad,
    }
}

/// The code of a quality that is not good.
pub(super) fn quality_code(quality: Quality) -> Option<u32> {
    match quality {
        Quality::Good => None,
        Quality::Questionable => Some(STALE),
        Quality::Bad => Some(BAD),
    }
}

/// The data type of a field.
pub(super) fn data_type(field_type: FieldType) -> u32 {
    match field_type {
        FieldType::Boolean => BOOLEAN,
        FieldType::Integer => INT64,
        FieldType::Double => DOUBLE,
        FieldType::Text => STRING,
        FieldType::Bytes => BYTES,
        FieldType::Samples => DOUBLE_ARRAY,
    }
}

/// The argument of a command to a metric of a data type; `None`: no command sets it.
pub(super) fn argument(number: u32) -> Option<Argument> {
    let range = |minimum: f64, maximum: f64| Argument {
        minimum: Some(minimum),
        maximum: Some(maximum),
        ..Argument::of(FieldType::Integer)
    };
    Some(match DataType::of(number).ok()? {
        // Numbers of 64 bits are checked exactly when they are written.
        DataType::Signed(64) => Argument::of(FieldType::Integer),
        DataType::Unsigned(64) => Argument {
            minimum: Some(0.0),
            ..Argument::of(FieldType::Integer)
        },
        DataType::Signed(bits) => range(
            -((1_u64 << (bits - 1)) as f64),
            ((1_u64 << (bits - 1)) - 1) as f64,
        ),
        DataType::Unsigned(bits) => range(0.0, ((1_u64 << bits) - 1) as f64),
        DataType::Float => Argument::of(FieldType::Double),
        DataType::Boolean => Argument::of(FieldType::Boolean),
        DataType::Text => Argument::of(FieldType::Text),
        DataType::DateTime | DataType::Bytes | DataType::Array(_) => return None,
    })
}

/// A value of JSON as one of a data type that [`argument`] describes.
///
/// # Errors
/// It does not fit.
pub(super) fn of_json(number: u32, value: &serde_json::Value) -> Result<MetricValue, String> {
    let other = || format!("{value} is not a value of the metric's type");
    Ok(match DataType::of(number)? {
        DataType::Signed(64) => {
            MetricValue::Long(value.as_i64().ok_or_else(other)?.cast_unsigned())
        }
        DataType::Unsigned(64) => MetricValue::Long(value.as_u64().ok_or_else(other)?),
        DataType::Signed(bits) => {
            let wide = value.as_i64().ok_or_else(other)?;
            let low = wide.cast_unsigned() & ((1 << bits) - 1);
            // The range, too: the sign must be that of the low bits.
            if signed(low, bits)? != wide {
                return Err(other());
            }
            MetricValue::Int(low as u32)
        }
        DataType::Unsigned(bits) => {
            let wide = value.as_u64().filter(|wide| wide >> bits == 0);
            MetricValue::Int(wide.ok_or_else(other)? as u32)
        }
        DataType::Float => {
            let wide = value.as_f64().ok_or_else(other)?;
            match number {
                DOUBLE => MetricValue::Double(wide),
                _ if (wide as f32).is_finite() => MetricValue::Float(wide as f32),
                _ => return Err(other()),
            }
        }
        DataType::Boolean => MetricValue::Boolean(value.as_bool().ok_or_else(other)?),
        DataType::Text => MetricValue::String(value.as_str().ok_or_else(other)?.to_owned()),
        DataType::DateTime | DataType::Bytes | DataType::Array(_) => return Err(other()),
    })
}

/// The value of a metric; `None`: it has none.
pub(super) fn metric_value(value: &Value) -> Option<MetricValue> {
    Some(match value {
        Value::Null => return None,
        Value::Boolean(flag) => MetricValue::Boolean(*flag),
        Value::Integer(number) => MetricValue::Long(*number as u64),
        Value::Double(number) => MetricValue::Double(*number),
        Value::Text(text) => MetricValue::String(text.clone()),
        Value::Bytes(bytes) => MetricValue::Bytes(bytes.clone()),
        Value::Samples(samples) => {
            let values = samples.values.iter();
            MetricValue::Bytes(values.flat_map(|value| value.to_le_bytes()).collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(number: u32, value: MetricValue) -> Result<Value, String> {
        DataType::of(number)?.read(&value)
    }

    #[test]
    fn numbers_keep_their_sign_and_all_digits() {
        use MetricValue::{Int, Long};
        for (number, value, expected) in [
            (1, Int(0xEF), -17),
            (1, Int(0xFFFF_FFEF), -17),
            (2, Int(0xFFFF_8AD0), -30_000),
            (INT32, Int(u32::MAX), -1),
            (INT32, Long(u64::MAX), -1),
            (
                INT64,
                Long((-9_007_199_254_740_993_i64) as u64),
                -9_007_199_254_740_993,
            ),
            (5, Int(255), 255),
            (7, Long(4_294_967_295), 4_294_967_295),
            (8, Long(9_007_199_254_740_993), 9_007_199_254_740_993),
        ] {
            assert_eq!(
                read(number, value.clone()),
                Ok(Value::Integer(expected)),
                "{number}: {value:?}"
            );
        }
        assert!(read(1, Int(300)).is_err() && read(5, Int(256)).is_err());
        assert!(read(8, Long(u64::MAX)).unwrap_err().contains("beyond"));
        assert!(read(10, Int(1)).is_err());
    }

    #[test]
    fn other_types_are_read_as_the_specification_shows() {
        let text = |text: &str| Ok(Value::Text(text.to_owned()));
        let bytes = |bytes: &[u8]| MetricValue::Bytes(bytes.to_vec());
        assert_eq!(
            read(13, MetricValue::Long(1_486_144_502_122)),
            text("2017-02-03T17:55:02.122Z")
        );
        assert_eq!(read(22, bytes(&[0xE9, 0x7B])), text("[-23,123]"));
        assert_eq!(
            read(23, bytes(&[0xD0, 0x8A, 0x30, 0x75])),
            text("[-30000,30000]")
        );
        assert_eq!(read(26, bytes(&[0x17, 0xFA])), text("[23,250]"));
        assert_eq!(
            read(32, bytes(&[12, 0, 0, 0, 0x34, 0xD0])),
            text("[false,false,true,true,false,true,false,false,true,true,false,true]")
        );
        assert_eq!(read(33, bytes(b"ABC\0hello\0")), text(r#"["ABC","hello"]"#));
        for (number, array) in [
            (23, &[1][..]),
            (32, &[9, 0, 0, 0, 1]),
            (32, &[1]),
            (33, b"a"),
            (33, b"\xFF\0"),
        ] {
            assert!(read(number, bytes(array)).is_err(), "{number}: {array:?}");
        }
        assert!(DataType::of(16).is_err() && DataType::of(19).is_err() && DataType::of(0).is_err());
    }

    proptest! {
        #[test]
        fn values_of_elements_come_back(number in any::<i64>(), double in any::<f64>(), text in ".{0,20}", flag in any::<bool>()) {
            for value in [Value::Integer(number), Value::Text(text), Value::Boolean(flag), Value::Double(double)] {
                let field_type = value.field_type().unwrap();
                let data_type = DataType::of(data_type(field_type)).unwrap();
                prop_assert_eq!(data_type.field_type(), field_type);
                let back = data_type.read(&metric_value(&value).unwrap()).unwrap();
                match (&back, &value) {
                    (Value::Double(one), Value::Double(other)) => prop_assert_eq!(one.to_bits(), other.to_bits()),
                    _ => prop_assert_eq!(&back, &value),
                }
            }
        }

        #[test]
        fn what_a_command_writes_is_read_back(number in 0_u32..20, value in prop_oneof![
            any::<i64>().prop_map(|it| json!(it)), (-70_000_i64..70_000).prop_map(|it| json!(it)),
            any::<u64>().prop_map(|it| json!(it)), any::<f64>().prop_map(|it| json!(it)), any::<bool>().prop_map(|it| json!(it)),
            ".{0,20}".prop_map(|it| json!(it)),
        ]) {
            let Some(argument) = argument(number) else { return Ok(()) };
            if argument.check(&value).is_err() { return Ok(()) }
            let Ok(written) = of_json(number, &value) else { return Ok(()) };
            // A whole number beyond what an element holds is written all the same.
            let Ok(read) = read(number, written) else { return Ok(()) };
            match read {
                Value::Integer(read) => prop_assert_eq!(json!(read), value),
                Value::Boolean(read) => prop_assert_eq!(json!(read), value),
                Value::Text(read) => prop_assert_eq!(json!(read), value),
                Value::Double(read) if number == DOUBLE => prop_assert_eq!(Some(read), value.as_f64()),
                Value::Double(read) => prop_assert_eq!(Some(read as f32), value.as_f64().map(|it| it as f32)),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn no_array_panics(number in 22_u32..=34, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(number, MetricValue::Bytes(bytes));
        }
    }
}

//! Values in registers: types, orders of bytes and registers, scale and offset; both directions.

use chappe_stream::{FieldType, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::plan::REGISTERS_MAX;

/// What registers hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TypeKey {
    /// A coil, a discrete input, or a bit of a register.
    Bool,
    /// 16 bits without a sign.
    U16,
    /// 16 bits with a sign.
    I16,
    /// 32 bits without a sign, in two registers.
    U32,
    /// 32 bits with a sign.
    I32,
    /// 64 bits without a sign, in four registers.
    U64,
    /// 64 bits with a sign.
    I64,
    /// A number of single precision, in two registers.
    F32,
    /// A number of double precision, in four registers.
    F64,
    /// Text with two characters in each register, up to the first zero byte.
    Text,
}

/// Which part of a number comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    /// The most significant part first, as the protocol requires within a register.
    #[default]
    Big,
    /// The least significant part first.
    Little,
}

/// A number of a file, exact.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Number {
    /// A whole one.
    Whole(i64),
    /// One with a point.
    Real(f64),
}

impl Number {
    fn real(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Real(number) => number,
        }
    }
}

/// What is computed from the number in the registers: times `scale` plus `offset`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    None,
    /// In whole numbers, exact.
    Whole {
        scale: i64,
        offset: i64,
    },
    Real {
        scale: f64,
        offset: f64,
    },
}

impl Scale {
    fn of(scale: Option<Number>, offset: Option<Number>) -> Self {
        match (scale, offset) {
            (None, None) => Self::None,
            (None | Some(Number::Whole(_)), None | Some(Number::Whole(_))) => {
                let whole = |number: Option<Number>, default| match number {
                    Some(Number::Whole(number)) => number,
                    _ => default,
                };
                Self::Whole {
                    scale: whole(scale, 1),
                    offset: whole(offset, 0),
                }
            }
            _ => Self::Real {
                scale: scale.map_or(1.0, Number::real),
                offset: offset.map_or(0.0, Number::real),
            },
        }
    }
}

/// A number times a scale, plus an offset. A scale such as 0.1 is a division by 10, whose result is the nearest double to
/// the decimal.
fn scaled(number: f64, scale: f64, offset: f64) -> f64 {
    let divisor = (1.0 / scale).round();
    let is_fraction = divisor.abs() > 1.0 && 1.0 / divisor == scale;
    let product = if is_fraction {
        number / divisor
    } else {
        number * scale
    };
    product + offset
}

/// How a value lies in its registers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layout {
    coding: Coding,
    bytes: Order,
    words: Order,
    scale: Scale,
    null_number: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Coil,
    Bit(u8),
    Unsigned(u16),
    Signed(u16),
    Single,
    Double,
    Text(u16),
}

/// The keys of a file that say how a value lies in its registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayoutKeys {
    pub(super) type_key: TypeKey,
    /// Whether the table has bits.
    pub(super) is_bit: bool,
    pub(super) bit: Option<u8>,
    pub(super) length: Option<u16>,
    pub(super) bytes: Order,
    pub(super) words: Order,
    pub(super) scale: Option<Number>,
    pub(super) offset: Option<Number>,
    pub(super) null_number: Option<i64>,
}

impl Layout {
    /// The layout of these keys.
    ///
    /// # Errors
    /// The key at fault, and why.
    pub(super) fn new(keys: LayoutKeys) -> Result<Self, (&'static str, String)> {
        let wrong = |key, text: &str| Err((key, text.to_owned()));
        use TypeKey::{Bool, F32, F64, I16, I32, I64, Text, U16, U32, U64};
        if keys.is_bit && keys.type_key != Bool {
            return wrong("type", "coils and discrete inputs are of type bool");
        }
        let coding = match (keys.type_key, keys.bit) {
            (Bool, None) if keys.is_bit => Coding::Coil,
            (Bool, Some(bit)) if !keys.is_bit && bit < 16 => Coding::Bit(bit),
            (Bool, None) => return wrong("type", "a bool in a register needs its `bit`, 0 to 15"),
            (_, Some(_)) => return wrong("bit", "a bit of a register, 0 to 15, is of type bool"),
            (U16, _) => Coding::Unsigned(1),
            (I16, _) => Coding::Signed(1),
            (U32, _) => Coding::Unsigned(2),
            (I32, _) => Coding::Signed(2),
            (U64, _) => Coding::Unsigned(4),
            (I64, _) => Coding::Signed(4),
            (F32, _) => Coding::Single,
            (F64, _) => Coding::Double,
            (Text, _) => match keys.length {
                Some(length @ 1..=REGISTERS_MAX) => Coding::Text(length),
                _ => return wrong("length", "a text has a `length` of 1 to 125 registers"),
            },
        };
        if keys.length.is_some() && keys.type_key != Text {
            return wrong("length", "only a text has a length");
        }
        let scale = Scale::of(keys.scale, keys.offset);
        let is_number = !matches!(coding, Coding::Coil | Coding::Bit(_) | Coding::Text(_));
        if !is_number && (scale != Scale::None || keys.null_number.is_some()) {
            return wrong("scale", "scale, offset and null_number are for numbers");
        }
        let is_sound = match scale {
            Scale::None => true,
            Scale::Whole { scale, .. } => scale != 0,
            Scale::Real { scale, offset } => scale.is_normal() && offset.is_finite(),
        };
        if !is_sound {
            return wrong(
                "scale",
                "scale and offset are finite, and the scale is not 0",
            );
        }
        if keys.null_number.is_some() && matches!(coding, Coding::Single | Coding::Double) {
            return wrong("null_number", "it is for whole numbers; NaN is null anyway");
        }
        Ok(Self {
            coding,
            bytes: keys.bytes,
            words: keys.words,
            scale,
            null_number: keys.null_number,
        })
    }

    /// The entries of the table that it takes.
    pub(super) fn count(&self) -> u16 {
        match self.coding {
            Coding::Coil | Coding::Bit(_) => 1,
            Coding::Unsigned(count) | Coding::Signed(count) | Coding::Text(count) => count,
            Coding::Single => 2,
            Coding::Double => 4,
        }
    }

    /// The bit of its register, if it is one.
    pub(super) fn bit(&self) -> Option<u8> {
        match self.coding {
            Coding::Bit(bit) => Some(bit),
            _ => None,
        }
    }

    /// The type of its field.
    pub(super) fn field_type(&self) -> FieldType {
        match (self.coding, self.scale) {
            (Coding::Coil | Coding::Bit(_), _) => FieldType::Boolean,
            (Coding::Text(_), _) => FieldType::Text,
            (Coding::Single | Coding::Double, _) | (_, Scale::Real { .. }) => FieldType::Double,
            _ => FieldType::Integer,
        }
    }

    /// The bytes, most significant first. Texts are always in the order of their registers.
    fn ordered(&self, words: &[u16]) -> Vec<u8> {
        let is_text = matches!(self.coding, Coding::Text(_));
        let mut words = words.to_vec();
        if self.words == Order::Little && !is_text {
            words.reverse();
        }
        let bytes = words.into_iter().flat_map(|word| match self.bytes {
            Order::Big => word.to_be_bytes(),
            Order::Little => word.to_le_bytes(),
        });
        bytes.collect()
    }

    /// The registers of bytes, most significant first: the inverse of [`Self::ordered`].
    fn registers(&self, bytes: &[u8]) -> Vec<u16> {
        let is_text = matches!(self.coding, Coding::Text(_));
        let words = bytes.chunks_exact(2).map(|pair| match self.bytes {
            Order::Big => u16::from_be_bytes([pair[0], pair[1]]),
            Order::Little => u16::from_le_bytes([pair[0], pair[1]]),
        });
        let mut words: Vec<u16> = words.collect();
        if self.words == Order::Little && !is_text {
            words.reverse();
        }
        words
    }

    /// The value of entries; `Null` if they say that they have none.
    ///
    /// # Errors
    /// Why they are no value of the field's type.
    pub(super) fn decode(&self, words: &[u16]) -> Result<Value, String> {
        if words.len() != usize::from(self.count()) {
            let (needs, has) = (self.count(), words.len());
            return Err(format!("it needs {needs} registers, and {has} were read"));
        }
        let bytes = self.ordered(words);
        let unsigned = || {
            bytes
                .iter()
                .fold(0_u64, |all, byte| all << 8 | u64::from(*byte))
        };
        match self.coding {
            Coding::Coil => Ok(Value::Boolean(words[0] != 0)),
            // The byte order is that of numbers; bits are numbered in the register as it is.
            Coding::Bit(bit) => Ok(Value::Boolean(words[0] >> bit & 1 == 1)),
            Coding::Unsigned(_) => self.whole(i128::from(unsigned())),
            Coding::Signed(count) => {
                let shift = 64 - 16 * u32::from(count);
                self.whole(i128::from((unsigned() << shift).cast_signed() >> shift))
            }
            Coding::Single => {
                let bits = u32::try_from(unsigned()).unwrap_or_default();
                Ok(self.real(f64::from(f32::from_bits(bits))))
            }
            Coding::Double => Ok(self.real(f64::from_bits(unsigned()))),
            Coding::Text(_) => {
                let end = bytes.iter().position(|byte| *byte == 0);
                let text = &bytes[..end.unwrap_or(bytes.len())];
                let text = str::from_utf8(text).map_err(|error| format!("not UTF-8: {error}"))?;
                Ok(Value::Text(text.trim_end().to_owned()))
            }
        }
    }

    fn whole(&self, number: i128) -> Result<Value, String> {
        if self.null_number.map(i128::from) == Some(number) {
            return Ok(Value::Null);
        }
        let result = match self.scale {
            Scale::None => number,
            Scale::Whole { scale, offset } => {
                let product = number.checked_mul(i128::from(scale));
                let sum = product.and_then(|product| product.checked_add(i128::from(offset)));
                sum.unwrap_or(i128::MAX)
            }
            Scale::Real { .. } => return Ok(self.real(number as f64)),
        };
        match i64::try_from(result) {
            Ok(number) => Ok(Value::Integer(number)),
            Err(_) => Err(format!("{number} is beyond 64 bits with a sign")),
        }
    }

    fn real(&self, number: f64) -> Value {
        let number = match self.scale {
            Scale::None => number,
            Scale::Whole { scale, offset } => scaled(number, scale as f64, offset as f64),
            Scale::Real { scale, offset } => scaled(number, scale, offset),
        };
        match number.is_finite() {
            true => Value::Double(number),
            false => Value::Null,
        }
    }

    /// The entries of a value; a bit of a register is 0 or 1.
    ///
    /// # Errors
    /// The value does not fit.
    pub(super) fn encode(&self, value: &Json) -> Result<Vec<u16>, String> {
        let coding = self.coding;
        match coding {
            Coding::Coil | Coding::Bit(_) => match (value.as_bool(), value.as_u64()) {
                (Some(is_on), _) => Ok(vec![u16::from(is_on)]),
                (None, Some(number @ 0..=1)) => Ok(vec![u16::from(number == 1)]),
                _ => Err(format!("{value} is neither true nor false")),
            },
            Coding::Text(count) => {
                let text = value
                    .as_str()
                    .ok_or_else(|| format!("{value} is not a text"))?;
                let mut bytes = text.as_bytes().to_vec();
                let most = 2 * usize::from(count);
                if bytes.len() > most {
                    return Err(format!(
                        "the text has {} bytes, at most {most}",
                        bytes.len()
                    ));
                }
                bytes.resize(most, 0);
                Ok(self.registers(&bytes))
            }
            Coding::Unsigned(count) | Coding::Signed(count) => {
                let number = self.unscaled(value)?;
                let bits = 16 * u32::from(count);
                let (low, high) = match coding {
                    Coding::Signed(_) => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                    _ => (0, (1_i128 << bits) - 1),
                };
                if !(low..=high).contains(&number) {
                    return Err(format!(
                        "{value} is {number} in the registers, which hold {low} to {high}"
                    ));
                }
                let bytes = number.to_be_bytes();
                Ok(self.registers(&bytes[16 - 2 * usize::from(count)..]))
            }
            Coding::Single | Coding::Double => {
                let number = value
                    .as_f64()
                    .ok_or_else(|| format!("{value} is not a number"))?;
                let number = match self.scale {
                    Scale::None => number,
                    Scale::Whole { scale, offset } => (number - offset as f64) / scale as f64,
                    Scale::Real { scale, offset } => (number - offset) / scale,
                };
                let single = number as f32;
                match coding {
                    Coding::Double => Ok(self.registers(&number.to_be_bytes())),
                    _ if single.is_finite() => Ok(self.registers(&single.to_be_bytes())),
                    _ => Err(format!("{value} is beyond single precision")),
                }
            }
        }
    }

    /// The number in the registers of a value.
    fn unscaled(&self, value: &Json) -> Result<i128, String> {
        let whole = value.as_i64().map(i128::from);
        let whole = whole.or_else(|| value.as_u64().map(i128::from));
        match self.scale {
            Scale::None => whole.ok_or_else(|| format!("{value} is not a whole number")),
            Scale::Whole { scale, offset } => {
                let number = whole.ok_or_else(|| format!("{value} is not a whole number"))?;
                let (product, scale) = (number - i128::from(offset), i128::from(scale));
                match product % scale {
                    0 => Ok(product / scale),
                    _ => Err(format!("{value} is not a multiple of the scale {scale}")),
                }
            }
            Scale::Real { scale, offset } => {
                let number = value
                    .as_f64()
                    .ok_or_else(|| format!("{value} is not a number"))?;
                // A conversion of a number beyond the type stops at its end, which no register holds.
                Ok(((number - offset) / scale).round() as i128)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn keys(type_key: TypeKey) -> LayoutKeys {
        LayoutKeys {
            type_key,
            is_bit: false,
            bit: None,
            length: None,
            bytes: Order::Big,
            words: Order::Big,
            scale: None,
            offset: None,
            null_number: None,
        }
    }

    fn layout(keys: LayoutKeys) -> Layout {
        Layout::new(keys).unwrap()
    }

    #[test]
    fn the_orders_of_bytes_and_registers() {
        let orders = [
            (Order::Big, Order::Big, [0x1234, 0x5678]),
            (Order::Big, Order::Little, [0x5678, 0x1234]),
            (Order::Little, Order::Big, [0x3412, 0x7856]),
            (Order::Little, Order::Little, [0x7856, 0x3412]),
        ];
        for (bytes, words, registers) in orders {
            let layout = layout(LayoutKeys {
                bytes,
                words,
                ..keys(TypeKey::U32)
            });
            assert_eq!(layout.decode(&registers), Ok(Value::Integer(0x1234_5678)));
        }
        let text = LayoutKeys {
            length: Some(3),
            words: Order::Little,
            ..keys(TypeKey::Text)
        };
        let registers = [0x6162, 0x6320, 0x0041];
        assert_eq!(
            layout(text).decode(&registers),
            Ok(Value::Text("abc".to_owned()))
        );
        let swapped = LayoutKeys {
            bytes: Order::Little,
            ..text
        };
        let registers = [0x6261, 0x2063, 0x4100];
        assert_eq!(
            layout(swapped).decode(&registers),
            Ok(Value::Text("abc".to_owned()))
        );
        assert!(layout(text).decode(&[0xff00, 0, 0]).is_err());
    }

    #[test]
    fn numbers_beyond_two_to_the_53_are_exact() {
        let words = [0x7fff, 0xffff, 0xffff, 0xffff];
        assert_eq!(
            layout(keys(TypeKey::U64)).decode(&words),
            Ok(Value::Integer(i64::MAX))
        );
        let least = layout(keys(TypeKey::I64)).decode(&[0x8000, 0, 0, 0]);
        assert_eq!(least, Ok(Value::Integer(i64::MIN)));
        let beyond = layout(keys(TypeKey::U64)).decode(&[0x8000, 0, 0, 0]);
        assert!(beyond.unwrap_err().contains("9223372036854775808"));
        let tens = LayoutKeys {
            scale: Some(Number::Whole(10)),
            offset: Some(Number::Whole(-1)),
            ..keys(TypeKey::U64)
        };
        let words = [0x0020, 0, 0, 0x0001];
        let number = 10 * ((1_i64 << 53) + 1) - 1;
        assert_eq!(layout(tens).decode(&words), Ok(Value::Integer(number)));
        assert_eq!(layout(tens).encode(&json!(number)), Ok(words.to_vec()));
        assert!(
            layout(tens)
                .encode(&json!(3))
                .unwrap_err()
                .contains("multiple")
        );
    }

    #[test]
    fn a_scale_gives_the_decimal_and_no_value_is_null() {
        let tenths = LayoutKeys {
            scale: Some(Number::Real(0.1)),
            null_number: Some(-32_768),
            ..keys(TypeKey::I16)
        };
        let tenths = layout(tenths);
        assert_eq!(tenths.field_type(), FieldType::Double);
        assert_eq!(tenths.decode(&[3]), Ok(Value::Double(0.3)));
        assert_eq!(tenths.decode(&[0xffce]), Ok(Value::Double(-5.0)));
        assert_eq!(tenths.decode(&[0x8000]), Ok(Value::Null));
        assert_eq!(tenths.encode(&json!(21.5)), Ok(vec![215]));
        assert!(tenths.encode(&json!(4_000)).unwrap_err().contains("32767"));
        assert!(tenths.encode(&json!(1e300)).is_err());
        let single = layout(keys(TypeKey::F32));
        assert_eq!(single.decode(&[0x41ac, 0]), Ok(Value::Double(21.5)));
        assert_eq!(single.decode(&[0x7fc0, 0]), Ok(Value::Null));
        assert!(single.encode(&json!(1e300)).is_err());
        let bit = layout(LayoutKeys {
            bit: Some(15),
            ..keys(TypeKey::Bool)
        });
        assert_eq!(bit.decode(&[0x8000]), Ok(Value::Boolean(true)));
        assert_eq!(bit.decode(&[0x7fff]), Ok(Value::Boolean(false)));
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        let of = |change: &dyn Fn(&mut LayoutKeys)| {
            let mut keys = keys(TypeKey::U16);
            change(&mut keys);
            Layout::new(keys).unwrap_err().0
        };
        assert_eq!(of(&|it| it.is_bit = true), "type");
        assert_eq!(of(&|it| it.bit = Some(1)), "bit");
        assert_eq!(
            of(&|it| (it.type_key, it.bit) = (TypeKey::Bool, Some(16))),
            "bit"
        );
        assert_eq!(of(&|it| it.type_key = TypeKey::Bool), "type");
        assert_eq!(of(&|it| it.length = Some(1)), "length");
        assert_eq!(of(&|it| it.type_key = TypeKey::Text), "length");
        assert_eq!(of(&|it| it.scale = Some(Number::Whole(0))), "scale");
        assert_eq!(of(&|it| it.scale = Some(Number::Real(f64::NAN))), "scale");
        let null = |it: &mut LayoutKeys| (it.type_key, it.null_number) = (TypeKey::F32, Some(1));
        assert_eq!(of(&null), "null_number");
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        use TypeKey::{F32, F64, I16, I32, I64, Text, U16, U32, U64};
        let types = prop::sample::select(vec![U16, I16, U32, I32, U64, I64, F32, F64, Text]);
        let order = || prop::sample::select(vec![Order::Big, Order::Little]);
        (types, order(), order(), 1..9_u16).prop_map(|(type_key, bytes, words, length)| {
            layout(LayoutKeys {
                bytes,
                words,
                length: (type_key == Text).then_some(length),
                ..keys(type_key)
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_to_the_same_registers(
            layout in any_layout(),
            words in prop::collection::vec(any::<u16>(), 8),
        ) {
            let words = &words[..usize::from(layout.count())];
            let value = match layout.decode(words) {
                Ok(Value::Integer(number)) => json!(number),
                Ok(Value::Double(number)) => json!(number),
                // The rest of a text after its end, and NaN, are not kept.
                Ok(_) | Err(_) => return Ok(()),
            };
            prop_assert_eq!(layout.encode(&value).unwrap(), words);
        }

        #[test]
        fn texts_survive(layout in any_layout(), text in "[a-zäß ]{0,7}[a-z]") {
            if layout.field_type() == FieldType::Text
                && let Ok(words) = layout.encode(&json!(text))
            {
                prop_assert_eq!(layout.decode(&words), Ok(Value::Text(text)));
            }
        }

        #[test]
        fn no_registers_and_no_value_are_a_panic(
            layout in any_layout(),
            scale in prop::option::of(prop_oneof![
                any::<i64>().prop_map(Number::Whole),
                any::<f64>().prop_map(Number::Real)
            ]),
            offset in prop::option::of(any::<i64>().prop_map(Number::Whole)),
            words in prop::collection::vec(any::<u16>(), 0..8),
            number in any::<f64>(),
            whole in any::<i64>(),
        ) {
            let mut layout = layout;
            layout.scale = Scale::of(scale.filter(|it| it.real() != 0.0), offset);
            let _ = layout.decode(&words);
            let _ = layout.encode(&json!(number));
            let _ = layout.encode(&json!(whole));
        }
    }
}

//! Values of built-in types.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use chappe_xml::{Name, Value, trim};

use super::{Message, ReadError, Reader, Types, WriteError, Writer, lexical};
use crate::schema::{
    LexicalError, NAMESPACE, XsdType, format_date_time, format_duration, parse_date_time,
    parse_duration,
};

/// A value of a built-in type.
pub trait Simple: Sized {
    /// The type.
    const TYPE: XsdType;

    /// The value in a message.
    fn to_value(&self) -> Value<'_>;

    /// Writes the value. Types whose value is a text of its own write it without a copy.
    ///
    /// # Errors
    /// Those of the sink.
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        writer.value(self.to_value())
    }

    /// Parses the value.
    ///
    /// # Errors
    /// The text is not a value of the type.
    fn parse(text: &str) -> Result<Self, LexicalError>;
}

/// A value as text, in an attribute or beside attributes. Enums without fields are values, too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a single value",
    note = "an attribute or text is a built-in type, `Samples` or an enum without fields"
)]
pub trait Text: Message {
    /// The text.
    fn to_text(&self) -> Cow<'_, str>;

    /// Parses the text.
    ///
    /// # Errors
    /// The text is not a value of the type.
    fn from_text(text: &str) -> Result<Self, LexicalError>;
}

impl<T: Simple + Message> Text for T {
    fn to_text(&self) -> Cow<'_, str> {
        self.to_value().into_lexical()
    }

    fn from_text(text: &str) -> Result<Self, LexicalError> {
        Self::parse(text)
    }
}

/// A type that `#[unit(…)]` may describe: numbers, lists of samples, and both optional or repeated.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no unit",
    note = "`#[unit]` belongs to a number or to `Samples` of numbers; remove it, or make the field a number"
)]
pub trait Quantity {}

impl<T: Quantity> Quantity for Option<T> {}
impl<T: Quantity> Quantity for Vec<T> {}
impl<T: Quantity> Quantity for Samples<T> {}

/// A type that `#[sample_period_ms(…)]` may describe.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no samples",
    note = "`#[sample_period_ms]` belongs to `Samples`, for example `Samples<f64>`"
)]
pub trait Sampled {}

impl<T> Sampled for Samples<T> {}
impl<T> Sampled for Option<Samples<T>> {}

/// Samples of a waveform, as one list of numbers separated by spaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples<T>(pub Vec<T>);

impl<T> From<Vec<T>> for Samples<T> {
    fn from(samples: Vec<T>) -> Self {
        Self(samples)
    }
}

impl<T: Simple + Quantity> Message for Samples<T> {
    fn declare(types: &mut Types) -> Name {
        types.list(T::TYPE)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        writer.plain(format_args!("{}", List(&self.0)))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        reader.value(Self::from_text)
    }
}

impl<T: Simple + Quantity> Text for Samples<T> {
    fn to_text(&self) -> Cow<'_, str> {
        List(&self.0).to_string().into()
    }

    fn from_text(text: &str) -> Result<Self, LexicalError> {
        let samples = text.split_ascii_whitespace().map(T::parse);
        samples.collect::<Result<_, _>>().map(Self)
    }
}

/// A message that contains itself needs a box.
impl<T: Message> Message for Box<T> {
    fn declare(types: &mut Types) -> Name {
        T::declare(types)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        T::write(self, writer)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        T::read(reader).map(Self::new)
    }
}

/// The values of a list, separated by spaces.
struct List<'l, T>(&'l [T]);

impl<T: Simple> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.0.iter().enumerate() {
            let separator = if index > 0 { " " } else { "" };
            write!(f, "{separator}{}", value.to_value())?;
        }
        Ok(())
    }
}

impl Message for () {
    fn declare(types: &mut Types) -> Name {
        types.empty()
    }

    fn write(&self, _: &mut Writer<'_>) -> Result<(), WriteError> {
        Ok(())
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        reader.child(&[]).map(|_| ())
    }
}

/// The message of a simple type.
macro_rules! message {
    ($($type:ty),*) => {$(
        impl Message for $type {
            fn declare(_: &mut Types) -> Name {
                Name::new(NAMESPACE, Self::TYPE.local())
            }

            fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
                Simple::write(self, writer)
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
                reader.value(Self::parse)
            }
        }
    )*};
}

message!(
    bool,
    i8,
    i16,
    i32,
    i64,
    u16,
    u32,
    u64,
    f32,
    f64,
    String,
    Vec<u8>,
    Duration,
    SystemTime
);

/// Integers; `xs:unsignedLong` exceeds the integers of events, so it is text.
macro_rules! integer {
    ($($type:ty: $xsd:ident $name:literal),*) => {$(
        impl Quantity for $type {}

        impl Simple for $type {
            const TYPE: XsdType = XsdType::$xsd;

            fn to_value(&self) -> Value<'_> {
                match i64::try_from(*self) {
                    Ok(integer) => Value::Integer(integer),
                    Err(_) => Value::Text(self.to_string().into()),
                }
            }

            fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
                match i64::try_from(*self) {
                    Ok(integer) => writer.value(Value::Integer(integer)),
                    Err(_) => writer.plain(format_args!("{self}")),
                }
            }

            fn parse(text: &str) -> Result<Self, LexicalError> {
                trim(text).parse().map_err(|_| lexical($name, text))
            }
        }
    )*};
}

integer!(
    i8: Byte "xs:byte", i16: Short "xs:short", i32: Int "xs:int", i64: Long "xs:long",
    u16: UnsignedShort "xs:unsignedShort", u32: UnsignedInt "xs:unsignedInt",
    u64: UnsignedLong "xs:unsignedLong"
);

impl Simple for bool {
    const TYPE: XsdType = XsdType::Boolean;

    fn to_value(&self) -> Value<'_> {
        Value::Boolean(*self)
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        let value = Value::from(text).boolean();
        value.map_err(|_| lexical("xs:boolean", text))
    }
}

impl Quantity for f64 {}

impl Simple for f64 {
    const TYPE: XsdType = XsdType::Double;

    fn to_value(&self) -> Value<'_> {
        Value::Double(*self)
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        let value = Value::from(text).double();
        value.map_err(|_| lexical("xs:double", text))
    }
}

impl Quantity for f32 {}

impl Simple for f32 {
    const TYPE: XsdType = XsdType::Float;

    /// As text, because its shortest form as a double has more digits.
    fn to_value(&self) -> Value<'_> {
        match self.is_finite() {
            true => Value::Text(self.to_string().into()),
            false => Value::Double(f64::from(*self)),
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        match self.is_finite() {
            true => writer.plain(format_args!("{self}")),
            false => writer.value(Value::Double(f64::from(*self))),
        }
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        let invalid = || lexical("xs:float", text);
        let double = Value::from(text).double().map_err(|_| invalid())?;
        match double.is_finite() {
            // Rounding a double again could miss the nearest float.
            true => trim(text).parse().map_err(|_| invalid()),
            false => Ok(double as Self),
        }
    }
}

impl Simple for String {
    const TYPE: XsdType = XsdType::String;

    fn to_value(&self) -> Value<'_> {
        Value::Text(self.as_str().into())
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        Ok(text.to_owned())
    }
}

impl Simple for Vec<u8> {
    const TYPE: XsdType = XsdType::Base64Binary;

    fn to_value(&self) -> Value<'_> {
        Value::Text(STANDARD.encode(self).into())
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        writer.plain(format_args!("{}", Base64Display::new(self, &STANDARD)))
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        // White space may occur between characters (XML Schema part 2, section 3.2.16).
        let packed: String = text.split_ascii_whitespace().collect();
        STANDARD
            .decode(packed)
            .map_err(|_| lexical("xs:base64Binary", text))
    }
}

impl Simple for Duration {
    const TYPE: XsdType = XsdType::Duration;

    /// Durations above 292 years are written as 292 years.
    fn to_value(&self) -> Value<'_> {
        let nanoseconds = i64::try_from(self.as_nanos()).unwrap_or(i64::MAX);
        Value::Text(format_duration(nanoseconds).into())
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        let nanoseconds = parse_duration(text)?;
        let nanoseconds = u64::try_from(nanoseconds);
        let nanoseconds = nanoseconds.map_err(|_| lexical("xs:duration of zero or more", text))?;
        Ok(Self::from_nanos(nanoseconds))
    }
}

impl Simple for SystemTime {
    const TYPE: XsdType = XsdType::DateTime;

    /// Times before 1678 and after 2261 are written as the nearest of these years.
    fn to_value(&self) -> Value<'_> {
        let nanoseconds = match self.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => {
                let before = i64::try_from(before.duration().as_nanos());
                before.map_or(i64::MIN, |before| -before)
            }
        };
        Value::Text(format_date_time(nanoseconds).into())
    }

    fn parse(text: &str) -> Result<Self, LexicalError> {
        let nanoseconds = parse_date_time(text)?;
        let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
        Ok(match nanoseconds < 0 {
            true => UNIX_EPOCH - distance,
            false => UNIX_EPOCH + distance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_break_space_is_no_white_space() {
        assert_eq!(i32::parse(" 5\n").unwrap(), 5);
        assert_eq!(f32::parse("\t0.1\r").unwrap(), 0.1);
        assert!(bool::parse(" 1 ").unwrap());
        for wrong in ["\u{a0}1", "1\u{2003}"] {
            assert!(i32::parse(wrong).is_err() && u64::parse(wrong).is_err());
            assert!(f32::parse(wrong).is_err() && f64::parse(wrong).is_err());
            assert!(bool::parse(wrong).is_err());
        }
        assert!(Duration::parse("PT1S\u{a0}").is_err());
        assert!(SystemTime::parse("\u{a0}2024-01-01T00:00:00Z").is_err());
    }
}

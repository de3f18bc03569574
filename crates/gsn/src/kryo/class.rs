//! The classes that a frame may name: those of the values of an element.

/// A class of a value, or of the array of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Integer,
    Text,
    Float,
    Byte,
    Short,
    Long,
    Double,
    /// The array of an element's values.
    Values,
    Bytes,
}

/// Kryo numbers the classes that every program has; the others are named.
const NUMBERS: [(Class, u32); 7] = [
    (Class::Integer, 0),
    (Class::Text, 1),
    (Class::Float, 2),
    (Class::Byte, 4),
    (Class::Short, 6),
    (Class::Long, 7),
    (Class::Double, 8),
];
const NAMES: [(Class, &str); 2] = [
    (Class::Values, "[Ljava.io.Serializable;"),
    (Class::Bytes, "[B"),
];

impl Class {
    pub(super) fn number(self) -> Option<u32> {
        let found = NUMBERS.iter().find(|(class, _)| *class == self);
        found.map(|(_, number)| *number)
    }

    pub(super) fn from_number(number: u32) -> Option<Self> {
        let found = NUMBERS.iter().find(|(_, known)| *known == number);
        found.map(|(class, _)| *class)
    }

    /// The name of a class without a number, else empty.
    pub(super) fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(class, _)| *class == self);
        found.map_or("", |(_, name)| *name)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(class, _)| *class)
    }
}

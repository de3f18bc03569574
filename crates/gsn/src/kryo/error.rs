//! Errors of decoding and encoding frames.

/// A frame that is not what GSN 2.0.1 sends, or an element that it cannot receive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KryoError {
    /// The frame ends too early, or a length in it reaches beyond its end.
    #[error("the frame is truncated at byte {offset}: {what}")]
    Truncated {
        /// The missing part.
        what: &'static str,
        /// Its offset.
        offset: usize,
    },
    /// Bytes follow the object.
    #[error("{count} bytes follow the object at byte {offset}")]
    Trailing {
        /// Their number.
        count: usize,
        /// The offset of the first.
        offset: usize,
    },
    /// A class that is not among those of an element or a structure.
    #[error("the frame has the class {class:?} at byte {offset}, which is not accepted here")]
    Class {
        /// The class name, as far as it is printable, or its number.
        class: String,
        /// The offset.
        offset: usize,
    },
    /// A reference to an object that does not exist or has another type, such as one that contains itself.
    #[error(
        "the reference {reference} at byte {offset} does not name an earlier object of this type"
    )]
    Reference {
        /// The number of the object.
        reference: u32,
        /// The offset.
        offset: usize,
    },
    /// The bytes violate the format.
    #[error("the frame is malformed at byte {offset}: {what}")]
    Malformed {
        /// The violation.
        what: &'static str,
        /// The offset.
        offset: usize,
    },
    /// A limit was exceeded.
    #[error("the frame exceeds the limit {limit} of {bound}")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        bound: usize,
    },
    /// The element or structure cannot be represented.
    #[error("cannot encode {name:?}: {what}")]
    Unrepresentable {
        /// The field or sensor.
        name: String,
        /// The reason.
        what: &'static str,
    },
}

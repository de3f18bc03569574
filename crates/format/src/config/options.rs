//! The options of each format.

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::{NonFinite, Texts};

/// The options that every format has, borrowed from its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common<'c> {
    pub(crate) time: Option<&'c Spanned<Texts>>,
    pub(crate) time_format: Option<&'c Spanned<String>>,
    pub(crate) time_zone: Option<&'c Spanned<String>>,
    pub(crate) null: &'c [String],
    pub(crate) non_finite: NonFinite,
}

impl Common<'_> {
    /// The defaults.
    pub(crate) const NONE: Self = Self {
        time: None,
        time_format: None,
        time_zone: None,
        null: &[],
        non_finite: NonFinite::Refuse,
    };
}

/// Declares the options of a format: its own, and the common ones. Serde's `flatten` would lose the
/// positions of keys.
macro_rules! options {
    (
        $(#[$about:meta])*
        $name:ident {
            $( $(#[$field_about:meta])* $field:ident: $field_type:ty, )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $( $(#[$field_about])* pub $field: $field_type, )*
            /// Where the time of a record is; several are joined by a space. Default: the time of the
            /// format itself if it has one, otherwise the time of receipt.
            #[schemars(with = "Option<Texts>")]
            pub time: Option<Spanned<Texts>>,
            /// "rfc3339", "s", "ms", "us", "ns" (since 1970), or a pattern such as "%d.%m.%Y %H:%M:%S".
            /// Default: "rfc3339".
            #[schemars(with = "Option<String>")]
            pub time_format: Option<Spanned<String>>,
            /// The offset for times without one, such as "+02:00". Default: "UTC".
            #[schemars(with = "Option<String>")]
            pub time_zone: Option<Spanned<String>>,
            /// Texts that mean null, such as "NA".
            #[serde(default)]
            pub null: Vec<String>,
            /// NaN and infinite numbers: refuse the record, or store null. Default: refuse.
            #[serde(default)]
            pub non_finite: NonFinite,
        }

        impl $name {
            pub(crate) fn common(&self) -> Common<'_> {
                Common {
                    time: self.time.as_ref(),
                    time_format: self.time_format.as_ref(),
                    time_zone: self.time_zone.as_ref(),
                    null: &self.null,
                    non_finite: self.non_finite,
                }
            }
        }
    };
}

options! {
    /// JSON.
    #[derive(Default)]
    JsonConfig {
        /// The records: a path (RFC 9535). Default: the message is one record.
        #[schemars(with = "Option<String>")]
        each: Option<Spanned<String>>,
        /// Each line is a separate document. Default: false.
        #[serde(default)]
        lines: bool,
    }
}

options! {
    /// Delimited columns.
    #[derive(Default)]
    CsvConfig {
        /// The names of the columns. Default: the first row names them.
        #[schemars(with = "Option<Vec<String>>")]
        columns: Option<Spanned<Vec<String>>>,
        /// The first row names the columns; with `columns` it is skipped. Default: true without `columns`.
        #[schemars(with = "Option<bool>")]
        header: Option<Spanned<bool>>,
        /// The character between cells. Default: ",".
        #[schemars(with = "Option<String>")]
        delimiter: Option<Spanned<String>>,
        /// The character around cells; "" for none. Default: "\"".
        #[schemars(with = "Option<String>")]
        quote: Option<Spanned<String>>,
        /// The decimal sign: "." or ",". Default: ".".
        #[schemars(with = "Option<String>")]
        decimal: Option<Spanned<String>>,
        /// Lines with this first character are skipped. Default: none.
        #[schemars(with = "Option<String>")]
        comment: Option<Spanned<String>>,
        /// The number of lines before the first row. Default: 0.
        #[serde(default)]
        skip_lines: u32,
    }
}

options! {
    /// Pairs of key and value.
    #[derive(Default)]
    KeyValueConfig {
        /// The characters between pairs. Default: space, tab, `,`, `;` and `&`.
        #[schemars(with = "Option<String>")]
        between: Option<Spanned<String>>,
        /// The character between key and value. Default: "=".
        #[schemars(with = "Option<String>")]
        assign: Option<Spanned<String>>,
        /// The whole message is one record, not each line. Default: false.
        #[serde(default)]
        whole: bool,
    }
}

options! {
    /// The named groups of a regular expression.
    RegexConfig {
        /// The expression, with groups `(?<name>...)`, in the syntax of the Rust library `regex`.
        #[schemars(with = "String")]
        pattern: Spanned<String>,
        /// The whole message is searched for records, not each line for one. Default: false.
        #[serde(default)]
        whole: bool,
        /// Lines without a match: refuse or skip. Default: refuse.
        #[serde(default)]
        unmatched: Unmatched,
    }
}

/// What becomes of a line that the expression does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unmatched {
    /// The line counts as a fault.
    #[default]
    Refuse,
    /// The line is ignored.
    Skip,
}

options! {
    /// InfluxDB's line protocol.
    #[derive(Default)]
    LineProtocolConfig {
        /// The unit of timestamps: "s", "ms", "us" or "ns". Default: "ns".
        #[serde(default)]
        precision: Precision,
    }
}

/// The unit of timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    #[default]
    Ns,
}

options! {
    /// Sensor Measurement Lists.
    #[derive(Default)]
    SenmlConfig {
        /// One record for each SenML record, or one for all that share a base name and time. Default: record.
        #[serde(default)]
        each: SenmlEach,
    }
}

/// The SenML records that make a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SenmlEach {
    /// One record for each SenML record. Paths are `n`, `u`, `t`, and `value` or one of `v`, `vs`, `vb`, `vd`, `s`.
    #[default]
    Record,
    /// One record for successive SenML records with the same base name and time. A path is the rest of a name after the
    /// base name.
    Time,
}

options! {
    /// NMEA 0183 sentences.
    #[derive(Default)]
    NmeaConfig {
        /// Accept sentences without a checksum. Default: false.
        #[serde(default)]
        checksum_optional: bool,
    }
}

options! {
    /// Numbers at fixed offsets.
    BinaryConfig {
        /// The fields of a record.
        #[schemars(with = "Vec<LayoutField>")]
        layout: Vec<Spanned<LayoutField>>,
        /// The fields of the message before its first record.
        #[serde(default)]
        #[schemars(with = "Vec<LayoutField>")]
        header: Vec<Spanned<LayoutField>>,
        /// The bytes before the first record. Default: 0.
        #[serde(default)]
        header_bytes: u32,
        /// The length of a record; a message may then have any number of records. Default: the
        /// message is one record.
        #[schemars(with = "Option<u32>")]
        record_bytes: Option<Spanned<u32>>,
        /// The order of the bytes of a number: "big" or "little". Default: big.
        #[serde(default)]
        byte_order: ByteOrder,
    }
}

options! {
    /// XML.
    #[derive(Default)]
    XmlConfig {
        /// The records: a path from the root element. Default: the message is one record.
        #[schemars(with = "Option<String>")]
        each: Option<Spanned<String>>,
    }
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ByteOrder {
    /// The most significant byte first.
    #[default]
    Big,
    /// The least significant byte first.
    Little,
}

/// A field of a binary layout.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutField {
    /// The name, which paths and placeholders use.
    pub name: String,
    /// The byte at which it starts, from 0.
    pub at: u32,
    /// u8, i8, u16, i16, u24, i24, u32, i32, u64, i64, f32, f64, text or bytes.
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    pub layout_type: Spanned<String>,
    /// The bytes of a text, or of bytes. Default: up to the end of the record.
    pub length: Option<u32>,
    /// A bit, or the first of `bits`, of an unsigned number; 0 is the least significant.
    #[schemars(with = "Option<u32>")]
    pub bit: Option<Spanned<u32>>,
    /// The number of bits. Default: 1.
    pub bits: Option<u32>,
    /// The order of its bytes, if not that of the layout.
    pub byte_order: Option<ByteOrder>,
    /// The value is the number times this. Default: 1.
    pub scale: Option<f64>,
    /// The value is the scaled number plus this. Default: 0.
    pub add: Option<f64>,
    /// The number of successive numbers, for a field of type samples.
    pub count: Option<u32>,
    /// A raw number that means null.
    pub null_number: Option<i64>,
}

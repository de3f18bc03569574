//! The common interface of mappings from XML to stream elements.

use chappe_stream::{Quality, Samples, StreamElement, StreamSchema, Timestamp, Value};
use chappe_xml::Element;

/// A stream offered by a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The last part of the stream's name, after the device's.
    pub name: String,
    /// The structure and meaning of its elements.
    pub schema: StreamSchema,
    /// A title for people.
    pub description: Option<String>,
}

/// The size of a trouble's detail. Reason: a report of 4 MiB may cause a hundred thousand, each with the
/// same text of a megabyte.
const DETAIL_BYTES_MAX: usize = 256;

/// The reason why an event could not be mapped completely. Counted by `reason`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// A short constant for a counter.
    pub reason: &'static str,
    /// The details, truncated to 256 bytes.
    pub detail: String,
    /// A remedy, if one is known.
    pub hint: Option<&'static str>,
}

impl Trouble {
    /// Whether the only problem is that the device has not answered yet.
    #[must_use]
    pub fn is_first_answer(&self) -> bool {
        matches!(self.reason, "subscription_asked" | "sdc_not_read")
    }

    /// A problem without a hint.
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Self {
        let mut detail: String = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            let end = (0..=DETAIL_BYTES_MAX)
                .rev()
                .find(|end| detail.is_char_boundary(*end));
            detail.truncate(end.unwrap_or(0));
            detail.shrink_to_fit();
        }
        Self {
            reason,
            detail,
            hint: None,
        }
    }

    /// The same problem with this hint.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

/// The result of mapping one event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mapped {
    /// Elements with the index of their stream.
    pub elements: Vec<(usize, StreamElement)>,
    /// The problems.
    pub troubles: Vec<Trouble>,
}

/// Maps the events of one device to elements of its streams.
pub trait Mapping: std::fmt::Debug + Send {
    /// The streams, in the order of the indexes in [`Mapped::elements`].
    fn offers(&self) -> &[Offer];

    /// The actions to subscribe to.
    fn actions(&self) -> Vec<String>;

    /// Maps the body of one event.
    fn map(&mut self, action: &str, body: &Element, received: Timestamp) -> Mapped;
}

/// Parses `text` as the type of `field`; the time is that of the element, for samples.
pub(crate) fn element(
    source_time: Timestamp,
    receive_time: Timestamp,
    quality: Quality,
    values: Vec<Value>,
) -> StreamElement {
    StreamElement {
        position: chappe_stream::Position::default(),
        source_time,
        receive_time,
        key: None,
        values,
        quality,
        origin: None,
    }
}

/// Parses samples from a list of numbers.
pub(crate) fn samples(
    text: &str,
    start: Timestamp,
    period_ns: u64,
) -> Result<Samples, chappe_xml::ValueError> {
    let values = text
        .split_ascii_whitespace()
        .map(|word| chappe_xml::Value::from(word).double())
        .collect::<Result<_, _>>()?;
    Ok(Samples {
        start,
        period_ns,
        values,
    })
}

/// A column name from any text: lower case, with `_` for invalid characters.
pub(crate) fn column_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut lower_before = false;
    for c in text.chars().take(64) {
        if c.is_ascii_uppercase() && lower_before {
            name.push('_');
        }
        lower_before = c.is_ascii_lowercase() || c.is_ascii_digit();
        name.push(if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        });
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name.truncate(64);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_names_are_lower_case_words() {
        assert_eq!(column_name("AirTemperature"), "air_temperature");
        assert_eq!(column_name("CO2 level"), "co2_level");
        assert_eq!(column_name("2nd"), "_2nd");
        assert_eq!(column_name("ECG"), "ecg");
        assert_eq!(column_name(""), "_");
    }
}

//! Units of other vocabularies as UCUM codes, and back.
//!
//! What has no counterpart gives nothing: then its text is kept as it is, and nothing is converted.

mod table;

use chappe_stream::ucum::Unit;

use table::{METRIC_WORDS, SPELLINGS, UNITS};

/// Who names units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vocabulary {
    /// `unit_of_measurement` of Home Assistant.
    HomeAssistant,
    /// The property `engUnit` of Sparkplug B: free text.
    Sparkplug,
    /// `symbol` or `name` of a `unitOfMeasurement` of OGC SensorThings: free text.
    SensorThings,
    /// The unit of a metric of OpenMetrics: a word in the plural.
    OpenMetrics,
    /// Common codes of UNECE Recommendation 20, which OPC UA uses.
    Unece,
}

/// The UCUM code of a unit in another vocabulary.
///
/// In free text, a UCUM code is one, too, unless it is a single letter that people use otherwise:
/// `C` and `F` are coulomb and farad in UCUM, and temperatures elsewhere.
///
/// ```
/// use chappe_format::units::{Vocabulary, to_ucum};
/// assert_eq!(to_ucum(Vocabulary::HomeAssistant, "µg/m³").as_deref(), Some("ug/m3"));
/// assert_eq!(to_ucum(Vocabulary::Unece, "KWH").as_deref(), Some("kW.h"));
/// assert_eq!(to_ucum(Vocabulary::Sparkplug, "furlong"), None);
/// ```
#[must_use]
pub fn to_ucum(vocabulary: Vocabulary, text: &str) -> Option<String> {
    if vocabulary == Vocabulary::Unece {
        let row = UNITS
            .iter()
            .find(|row| !text.is_empty() && row.unece == text);
        return row.map(|row| row.ucum.to_owned());
    }
    if vocabulary == Vocabulary::OpenMetrics
        && let Some(code) = of_metric_word(&text.to_ascii_lowercase())
    {
        return Some(code.to_owned());
    }
    let plain = plain(text);
    if plain.is_empty() || AMBIGUOUS.contains(&plain.as_str()) {
        return None;
    }
    let by_symbol = UNITS.iter().find(|row| self::plain(row.symbol) == plain);
    if let Some(row) = by_symbol {
        return Some(row.ucum.to_owned());
    }
    let lower = plain.to_lowercase();
    let by_name = UNITS.iter().find(|row| row.name.to_lowercase() == lower);
    let spelled = || {
        SPELLINGS
            .iter()
            .find(|(spelling, _)| *spelling == plain || spelling.to_lowercase() == lower)
    };
    by_name
        .map(|row| row.ucum)
        .or_else(|| spelled().map(|(_, ucum)| *ucum))
        .map(str::to_owned)
        .or_else(|| Unit::parse(&plain).is_ok().then_some(plain))
}

/// How another vocabulary names the unit of a UCUM code.
///
/// ```
/// use chappe_format::units::{Vocabulary, from_ucum};
/// assert_eq!(from_ucum(Vocabulary::HomeAssistant, "Cel"), Some("°C"));
/// assert_eq!(from_ucum(Vocabulary::Unece, "kW.h"), Some("KWH"));
/// ```
#[must_use]
pub fn from_ucum(vocabulary: Vocabulary, code: &str) -> Option<&'static str> {
    let row = UNITS.iter().find(|row| row.ucum == code)?;
    match vocabulary {
        Vocabulary::Unece => (!row.unece.is_empty()).then_some(row.unece),
        Vocabulary::OpenMetrics => {
            let word = METRIC_WORDS.iter().find(|(_, ucum)| *ucum == code);
            word.map(|(word, _)| *word)
        }
        Vocabulary::HomeAssistant | Vocabulary::Sparkplug | Vocabulary::SensorThings => {
            Some(row.symbol)
        }
    }
}

/// The English name of the unit of a UCUM code.
#[must_use]
pub fn name(code: &str) -> Option<&'static str> {
    UNITS
        .iter()
        .find(|row| row.ucum == code)
        .map(|row| row.name)
}

/// The UCUM code of the unit that the name of a metric ends with, before words that say how it is counted.
///
/// ```
/// use chappe_format::units::of_metric_name;
/// assert_eq!(of_metric_name("process_cpu_seconds_total"), Some("s"));
/// assert_eq!(of_metric_name("http_requests_total"), None);
/// ```
#[must_use]
pub fn of_metric_name(name: &str) -> Option<&'static str> {
    let suffix = METRIC_SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    let name = suffix.unwrap_or(name);
    let word = name.rsplit_once('_').map(|(_, word)| word)?;
    of_metric_word(&word.to_ascii_lowercase())
}

fn of_metric_word(word: &str) -> Option<&'static str> {
    let found = METRIC_WORDS.iter().find(|(known, _)| *known == word);
    found.map(|(_, ucum)| *ucum)
}

/// Endings after the unit: they say how it is counted.
const METRIC_SUFFIXES: [&str; 4] = ["_total", "_sum", "_max", "_min"];

/// Letters that free text uses for something else than UCUM does.
const AMBIGUOUS: [&str; 4] = ["C", "F", "G", "R"];

/// A text without the differences of typography: both signs for micro, powers above the line, dots of products.
fn plain(text: &str) -> String {
    let written = text.trim().chars().filter_map(|letter| match letter {
        'µ' | 'μ' => Some('u'),
        '²' => Some('2'),
        '³' => Some('3'),
        '·' | '⋅' => Some('.'),
        '\u{2126}' => Some('Ω'),
        '^' => None,
        other => Some(other),
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const TEXTS: [Vocabulary; 3] = [
        Vocabulary::HomeAssistant,
        Vocabulary::Sparkplug,
        Vocabulary::SensorThings,
    ];

    #[test]
    fn every_row_is_a_ucum_unit_and_comes_back() {
        for row in UNITS {
            Unit::parse(row.ucum).unwrap_or_else(|error| panic!("{error}"));
            for vocabulary in TEXTS {
                let text = from_ucum(vocabulary, row.ucum).unwrap();
                if !AMBIGUOUS.contains(&text) {
                    assert_eq!(to_ucum(vocabulary, text).as_deref(), Some(row.ucum));
                }
            }
            if let Some(code) = from_ucum(Vocabulary::Unece, row.ucum) {
                assert_eq!(to_ucum(Vocabulary::Unece, code).as_deref(), Some(row.ucum));
            }
            assert_eq!(name(row.ucum), Some(row.name));
        }
        for (spelling, ucum) in SPELLINGS {
            let known = to_ucum(Vocabulary::Sparkplug, spelling);
            assert_eq!(known.as_deref(), Some(*ucum), "{spelling}");
        }
    }

    #[test]
    fn metrics_name_units_by_words() {
        for (word, ucum) in METRIC_WORDS {
            Unit::parse(ucum).unwrap();
            let known = to_ucum(Vocabulary::OpenMetrics, word);
            assert_eq!(known.as_deref(), Some(*ucum), "{word}");
            assert_eq!(of_metric_name(&format!("a_{word}_total")), Some(*ucum));
        }
        assert_eq!(of_metric_name("node_memory_MemFree_bytes"), Some("By"));
        assert_eq!(of_metric_name("http_request_duration_seconds_count"), None);
        assert_eq!(of_metric_name("seconds"), None);
        // Words of others are units, too; a word that is none is not.
        let metric = |text| to_ucum(Vocabulary::OpenMetrics, text);
        assert_eq!(metric("kilometer").as_deref(), Some("km"));
        assert_eq!(metric("°C").as_deref(), Some("Cel"));
        assert_eq!(metric("requests"), None);
    }

    #[test]
    fn codes_and_symbols_are_there_once() {
        let mut ucum = BTreeSet::new();
        let mut symbols = BTreeSet::new();
        let mut unece = BTreeSet::new();
        for row in UNITS {
            assert!(ucum.insert(row.ucum), "{}", row.ucum);
            assert!(symbols.insert(plain(row.symbol)), "{}", row.symbol);
            assert!(
                row.unece.is_empty() || unece.insert(row.unece),
                "{}",
                row.unece
            );
        }
    }

    #[test]
    fn what_has_no_counterpart_gives_nothing() {
        for text in ["", " ", "UV index", "dBA", "steps", "€", "C", "F"] {
            assert_eq!(to_ucum(Vocabulary::HomeAssistant, text), None, "{text:?}");
        }
        for code in ["", "CE", "cel", "°C", "XYZ"] {
            assert_eq!(to_ucum(Vocabulary::Unece, code), None, "{code:?}");
        }
        assert_eq!(from_ucum(Vocabulary::Unece, "mm/d"), None);
        assert_eq!(from_ucum(Vocabulary::Sparkplug, "furlong"), None);
    }

    #[test]
    fn typography_makes_no_difference() {
        for text in ["µg/m³", "μg/m³", "ug/m3", " µg/m^3 "] {
            let ucum = to_ucum(Vocabulary::SensorThings, text);
            assert_eq!(ucum.as_deref(), Some("ug/m3"), "{text:?}");
        }
        let celsius = to_ucum(Vocabulary::SensorThings, "Degree Celsius");
        assert_eq!(celsius.as_deref(), Some("Cel"));
        assert_eq!(
            to_ucum(Vocabulary::Sparkplug, "mm[Hg]").as_deref(),
            Some("mm[Hg]")
        );
    }

    proptest! {
        #[test]
        fn whatever_is_found_is_a_ucum_unit(text in "\\PC{0,12}") {
            for vocabulary in TEXTS {
                if let Some(code) = to_ucum(vocabulary, &text) {
                    prop_assert!(Unit::parse(&code).is_ok(), "{}", code);
                }
            }
        }
    }
}

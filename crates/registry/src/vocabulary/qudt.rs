//! Units of QUDT for UCUM codes.
//!
//! A table of common units, by hand from the public vocabulary of units (QUDT 2.1). A code that it
//! does not have stays a UCUM code only.

use oxrdf::NamedNode;

/// Namespace of units.
pub const UNITS: &str = "http://qudt.org/vocab/unit/";

/// UCUM code and local name of the unit, in the order of the codes.
const TABLE: [(&str, &str); 75] = [
    ("%", "PERCENT"),
    ("/min", "PER-MIN"),
    ("1", "UNITLESS"),
    ("A", "A"),
    ("By", "BYTE"),
    ("Cel", "DEG_C"),
    ("F", "FARAD"),
    ("Hz", "HZ"),
    ("J", "J"),
    ("K", "K"),
    ("L", "L"),
    ("L/min", "L-PER-MIN"),
    ("MHz", "MegaHZ"),
    ("MPa", "MegaPA"),
    ("N", "N"),
    ("Ohm", "OHM"),
    ("Pa", "PA"),
    ("T", "T"),
    ("V", "V"),
    ("W", "W"),
    ("W.h", "W-HR"),
    ("W/m2", "W-PER-M2"),
    ("[degF]", "DEG_F"),
    ("[ppb]", "PPB"),
    ("[ppm]", "PPM"),
    ("bar", "BAR"),
    ("bit", "BIT"),
    ("cd", "CD"),
    ("cm", "CentiM"),
    ("cm[H2O]", "CentiM_H2O"),
    ("d", "DAY"),
    ("dB", "DeciB"),
    ("deg", "DEG"),
    ("g", "GM"),
    ("g/L", "GM-PER-L"),
    ("h", "HR"),
    ("hPa", "HectoPA"),
    ("kHz", "KiloHZ"),
    ("kJ", "KiloJ"),
    ("kPa", "KiloPA"),
    ("kV", "KiloV"),
    ("kW", "KiloW"),
    ("kW.h", "KiloW-HR"),
    ("kg", "KiloGM"),
    ("kg/m3", "KiloGM-PER-M3"),
    ("km", "KiloM"),
    ("km/h", "KiloM-PER-HR"),
    ("l", "L"),
    ("lm", "LM"),
    ("lx", "LUX"),
    ("m", "M"),
    ("m/s", "M-PER-SEC"),
    ("m/s2", "M-PER-SEC2"),
    ("m2", "M2"),
    ("m3", "M3"),
    ("m3/h", "M3-PER-HR"),
    ("mA", "MilliA"),
    ("mL", "MilliL"),
    ("mL/h", "MilliL-PER-HR"),
    ("mV", "MilliV"),
    ("mW", "MilliW"),
    ("mbar", "MilliBAR"),
    ("mg", "MilliGM"),
    ("mg/dL", "MilliGM-PER-DeciL"),
    ("min", "MIN"),
    ("mm", "MilliM"),
    ("mm[Hg]", "MilliM_HG"),
    ("mmol/L", "MilliMOL-PER-L"),
    ("mol", "MOL"),
    ("ms", "MilliSEC"),
    ("rad", "RAD"),
    ("s", "SEC"),
    ("uV", "MicroV"),
    ("ug/m3", "MicroGM-PER-M3"),
    ("us", "MicroSEC"),
];

/// The unit of a UCUM code.
#[must_use]
pub fn unit(ucum: &str) -> Option<NamedNode> {
    let index = TABLE.binary_search_by_key(&ucum, |(code, _)| *code).ok()?;
    let (_, name) = TABLE.get(index)?;
    Some(NamedNode::new_unchecked(format!("{UNITS}{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_names_are_iris() {
        assert!(TABLE.is_sorted_by(|(a, _), (b, _)| a < b));
        for (code, name) in TABLE {
            let unit = unit(code).unwrap();
            assert_eq!(unit.as_str(), format!("{UNITS}{name}"));
            assert!(NamedNode::new(unit.as_str()).is_ok(), "{unit}");
        }
        assert_eq!(unit("cel"), None);
        assert_eq!(unit("{beats}/min"), None);
    }
}

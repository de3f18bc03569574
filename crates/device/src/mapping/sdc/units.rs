//! Units and observed properties: converts codes of IEEE 11073-10101 to UCUM and URIs.

/// The default coding system of BICEPS (11073-10207, CodedValue).
pub(crate) const MDC: &str = "urn:oid:1.2.840.10004.1.1.1.0.0.1";

/// The first code of dimensions: partition 4, shifted by 16 bits.
const DIMENSIONS: u32 = 4 << 16;

/// Base units of the partition and their UCUM codes; the low five bits of a code are its prefix.
const BASES: [(u32, &str); 25] = [
    (512, "1"),
    (544, "%"),
    (1280, "m"),
    (1600, "L"),
    (1728, "g"),
    (2112, "g/dL"),
    (2176, "s"),
    (2208, "min"),
    (2240, "h"),
    (2464, "Hz"),
    (2720, "{beat}/min"),
    (2784, "{breath}/min"),
    (3072, "L/min"),
    (3104, "L/h"),
    (3840, "Pa"),
    (3872, "mm[Hg]"),
    (3904, "cm[H2O]"),
    (4032, "W"),
    (4128, "A"),
    (4256, "V"),
    (4288, "Ohm"),
    (4384, "K"),
    (4416, "[degF]"),
    (4704, "mol/L"),
    (6048, "Cel"),
];

/// Decimal prefixes by their low five bits.
const PREFIXES: [(u32, &str); 14] = [
    (0, ""),
    (1, "da"),
    (2, "h"),
    (3, "k"),
    (4, "M"),
    (5, "G"),
    (6, "T"),
    (16, "d"),
    (17, "c"),
    (18, "m"),
    (19, "u"),
    (20, "n"),
    (21, "p"),
    (22, "f"),
];

/// The UCUM code of a dimension's code, if both base and prefix are known.
pub(crate) fn ucum(code: u32) -> Option<String> {
    let offset = code.checked_sub(DIMENSIONS)?;
    let find = |table: &[(u32, &'static str)], wanted: u32| {
        table
            .iter()
            .find(|(known, _)| *known == wanted)
            .map(|(_, text)| *text)
    };
    let base = find(&BASES, offset & !31)?;
    let prefix = find(&PREFIXES, offset & 31)?;
    if !prefix.is_empty() && !base.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    Some(format!("{prefix}{base}"))
}

/// A code of a coding system as a URI: an arc of an object identifier, else another path segment.
pub(crate) fn concept(coding_system: Option<&str>, code: &str) -> String {
    let system = coding_system.filter(|text| !text.is_empty()).unwrap_or(MDC);
    let separator = match system {
        _ if system.starts_with("urn:oid:") => '.',
        _ if system.starts_with("urn:") => ':',
        _ => '/',
    };
    format!("{system}{separator}{code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_standard_have_their_ucum_unit() {
        let known = [
            (262_656, "1"),
            (262_688, "%"),
            (264_864, "{beat}/min"),
            (266_016, "mm[Hg]"),
            (265_987, "kPa"),
            (266_418, "mV"),
            (266_419, "uV"),
            (268_192, "Cel"),
            (263_762, "mL"),
            (264_338, "ms"),
            (265_266, "mL/h"),
            (266_866, "mmol/L"),
            (264_274, "mg/dL"),
        ];
        for (code, unit) in known {
            assert_eq!(ucum(code).as_deref(), Some(unit), "{code}");
        }
        assert_eq!(ucum(17), None);
        assert_eq!(ucum(262_656 + 18), None, "a pure number has no prefix");
        assert_eq!(ucum(u32::MAX), None);
    }
}

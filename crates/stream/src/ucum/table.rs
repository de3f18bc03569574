//! The units and prefixes of UCUM (section 4) that Chappe knows.

use super::Unit;

/// The base units.
pub(super) const BASES: [&str; 7] = ["m", "s", "g", "rad", "K", "C", "cd"];

/// Units that no other measures: logarithmic ones, whose arguments differ, and arbitrary ones
/// (UCUM sections 4.5 and 3.2). The flag: takes prefixes.
const ALONE: [(&str, bool); 8] = [
    ("B", true),
    ("Np", true),
    ("[pH]", false),
    ("[iU]", true),
    ("[IU]", true),
    ("[arb'U]", false),
    ("[CFU]", false),
    ("[hnsf'U]", false),
];

/// Units by their definition; the flag: takes prefixes.
pub(super) const UNITS: [(&str, bool, (f64, &str)); 108] = [
    // Numbers.
    ("10*", false, (10.0, "1")),
    ("10^", false, (10.0, "1")),
    ("[pi]", false, (std::f64::consts::PI, "1")),
    ("%", false, (0.01, "1")),
    ("[ppth]", false, (1e-3, "1")),
    ("[ppm]", false, (1e-6, "1")),
    ("[ppb]", false, (1e-9, "1")),
    ("[pptr]", false, (1e-12, "1")),
    ("mol", true, (6.022_140_76e23, "1")),
    ("eq", true, (1.0, "mol")),
    ("osm", true, (1.0, "mol")),
    ("bit", true, (1.0, "1")),
    ("By", true, (8.0, "bit")),
    ("Bd", true, (1.0, "/s")),
    ("[drp]", false, (0.05, "mL")),
    // Of the International System.
    ("sr", true, (1.0, "rad2")),
    ("Hz", true, (1.0, "/s")),
    ("N", true, (1.0, "kg.m/s2")),
    ("Pa", true, (1.0, "N/m2")),
    ("J", true, (1.0, "N.m")),
    ("W", true, (1.0, "J/s")),
    ("A", true, (1.0, "C/s")),
    ("V", true, (1.0, "J/C")),
    ("F", true, (1.0, "C/V")),
    ("Ohm", true, (1.0, "V/A")),
    ("S", true, (1.0, "/Ohm")),
    ("mho", true, (1.0, "S")),
    ("Wb", true, (1.0, "V.s")),
    ("T", true, (1.0, "Wb/m2")),
    ("H", true, (1.0, "Wb/A")),
    ("lm", true, (1.0, "cd.sr")),
    ("lx", true, (1.0, "lm/m2")),
    ("Bq", true, (1.0, "/s")),
    ("Gy", true, (1.0, "J/kg")),
    ("Sv", true, (1.0, "J/kg")),
    ("kat", true, (1.0, "mol/s")),
    ("U", true, (1.0, "umol/min")),
    // Angles.
    ("deg", false, (std::f64::consts::PI / 180.0, "rad")),
    ("gon", false, (0.9, "deg")),
    ("'", false, (1.0 / 60.0, "deg")),
    ("''", false, (1.0 / 3_600.0, "deg")),
    ("circ", false, (2.0 * std::f64::consts::PI, "rad")),
    // Times.
    ("min", false, (60.0, "s")),
    ("h", false, (60.0, "min")),
    ("d", false, (24.0, "h")),
    ("wk", false, (7.0, "d")),
    ("a_t", false, (365.242_19, "d")),
    ("a_j", false, (365.25, "d")),
    ("a_g", false, (365.242_5, "d")),
    ("a", false, (1.0, "a_j")),
    ("mo_j", false, (1.0 / 12.0, "a_j")),
    ("mo", false, (1.0, "mo_j")),
    // Volumes, areas, lengths, masses.
    ("L", true, (1e-3, "m3")),
    ("l", true, (1e-3, "m3")),
    ("ar", true, (100.0, "m2")),
    ("t", true, (1_000.0, "kg")),
    ("u", true, (1.660_539_066_6e-24, "g")),
    ("AU", false, (149_597_870.7, "km")),
    ("pc", true, (3.085_677_581_491_367e16, "m")),
    ("Ao", false, (0.1, "nm")),
    ("[in_i]", false, (2.54, "cm")),
    ("[ft_i]", false, (12.0, "[in_i]")),
    ("[yd_i]", false, (3.0, "[ft_i]")),
    ("[mi_i]", false, (5_280.0, "[ft_i]")),
    ("[nmi_i]", false, (1_852.0, "m")),
    ("[sin_i]", false, (1.0, "[in_i]2")),
    ("[sft_i]", false, (1.0, "[ft_i]2")),
    ("[cin_i]", false, (1.0, "[in_i]3")),
    ("[cft_i]", false, (1.0, "[ft_i]3")),
    ("[acr_us]", false, (4_046.872_609_874_252, "m2")),
    ("[gal_us]", false, (231.0, "[in_i]3")),
    ("[qt_us]", false, (0.25, "[gal_us]")),
    ("[pt_us]", false, (0.5, "[qt_us]")),
    ("[foz_us]", false, (0.0625, "[pt_us]")),
    ("[gal_br]", false, (4.546_09, "L")),
    ("[lb_av]", false, (453.592_37, "g")),
    ("[oz_av]", false, (0.0625, "[lb_av]")),
    ("[ston_av]", false, (2_000.0, "[lb_av]")),
    ("[gr]", false, (64.798_91, "mg")),
    // Speeds, accelerations, forces.
    ("[kn_i]", false, (1.0, "[nmi_i]/h")),
    ("[c]", true, (299_792_458.0, "m/s")),
    ("[g]", true, (9.806_65, "m/s2")),
    ("Gal", true, (1.0, "cm/s2")),
    ("gf", true, (1.0, "g.[g]")),
    ("[lbf_av]", false, (1.0, "[lb_av].[g]")),
    ("dyn", true, (1.0, "g.cm/s2")),
    // Pressures.
    ("bar", true, (1e5, "Pa")),
    ("atm", false, (101_325.0, "Pa")),
    ("att", false, (1.0, "kgf/cm2")),
    ("[psi]", false, (1.0, "[lbf_av]/[in_i]2")),
    ("m[H2O]", true, (9.806_65, "kPa")),
    ("m[Hg]", true, (133.322, "kPa")),
    ("[in_i'H2O]", false, (1.0, "m[H2O].[in_i]/m")),
    ("[in_i'Hg]", false, (1.0, "m[Hg].[in_i]/m")),
    // Energies and powers.
    ("erg", true, (1.0, "dyn.cm")),
    ("eV", true, (1.602_176_634e-19, "J")),
    ("cal", true, (4.184, "J")),
    ("cal_th", true, (4.184, "J")),
    ("cal_IT", true, (4.186_8, "J")),
    ("[Cal]", false, (1.0, "kcal_th")),
    ("[Btu]", false, (1.054_35, "kJ")),
    ("[HP]", false, (550.0, "[ft_i].[lbf_av]/s")),
    // Viscosities, magnetic fields, radiation.
    ("P", true, (1.0, "dyn.s/cm2")),
    ("St", true, (1.0, "cm2/s")),
    ("G", true, (1e-4, "T")),
    ("Ci", true, (3.7e10, "Bq")),
    ("R", true, (2.58e-4, "C/kg")),
    ("REM", true, (1.0, "cSv")),
];

/// Prefixes; the longer ones first, so that `da` is not `d`.
const PREFIXES: [(&str, f64); 25] = [
    ("da", 1e1),
    ("Ki", 1_024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Y", 1e24),
    ("Z", 1e21),
    ("E", 1e18),
    ("P", 1e15),
    ("T", 1e12),
    ("G", 1e9),
    ("M", 1e6),
    ("k", 1e3),
    ("h", 1e2),
    ("d", 1e-1),
    ("c", 1e-2),
    ("m", 1e-3),
    ("u", 1e-6),
    ("n", 1e-9),
    ("p", 1e-12),
    ("f", 1e-15),
    ("a", 1e-18),
    ("z", 1e-21),
    ("y", 1e-24),
    ("", 1.0),
];

/// The unit of a symbol with or without a prefix. The whole symbol comes first: `min` is a minute and
/// no milliinch, `Pa` no petayear.
///
/// # Errors
/// What of the symbol is not known.
pub(super) fn unit(symbol: &str) -> Result<Unit, String> {
    if let Some((unit, _)) = atom(symbol) {
        return Ok(unit);
    }
    let mut takes_no_prefix = false;
    for (prefix, factor) in PREFIXES {
        let rest = symbol.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        match rest.and_then(atom) {
            Some((unit, true)) => {
                return Ok(Unit {
                    factor: unit.factor * factor,
                    // One of it is a thousandth of a degree: the offset is as many of it.
                    offset: unit.offset / factor,
                    ..unit
                });
            }
            Some((_, false)) => takes_no_prefix = true,
            None => {}
        }
    }
    Err(match takes_no_prefix {
        true => format!("the unit of {symbol:?} takes no prefix"),
        false => format!("{symbol:?} is not known"),
    })
}

/// The unit of a symbol without a prefix, and whether it takes one.
fn atom(symbol: &str) -> Option<(Unit, bool)> {
    if let Some(index) = BASES.iter().position(|base| *base == symbol) {
        let mut unit = Unit::ONE;
        unit.dimension[index] = 1;
        return Some((unit, true));
    }
    if let Some((code, metric)) = ALONE.iter().find(|(code, _)| *code == symbol) {
        // Both spellings are one unit.
        let code = if *code == "[IU]" { "[iU]" } else { code };
        let unit = Unit {
            alone: Some((code, 1)),
            ..Unit::ONE
        };
        return Some((unit, *metric));
    }
    let kelvin = |factor, offset| {
        let (mut unit, _) = atom("K")?;
        (unit.factor, unit.offset) = (factor, offset);
        Some(unit)
    };
    match symbol {
        "Cel" => return Some((kelvin(1.0, 273.15)?, true)),
        "[degF]" => return Some((kelvin(5.0 / 9.0, 459.67)?, false)),
        "[degR]" => return Some((kelvin(5.0 / 9.0, 0.0)?, false)),
        _ => {}
    }
    let (_, metric, (factor, definition)) = UNITS.iter().find(|(code, ..)| *code == symbol)?;
    // Definitions are of this table, which a test holds, and none refers to itself.
    let unit = super::parse::unit(definition).ok()?;
    let unit = Unit {
        factor: unit.factor * factor,
        ..unit
    };
    Some((unit, *metric))
}

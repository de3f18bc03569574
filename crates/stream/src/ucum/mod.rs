//! Units of measure: the Unified Code for Units of Measure (UCUM), its case-sensitive codes.
//!
//! A code is a product of units with prefixes, powers and annotations: `mmol/L`, `kg.m/s2`, `mm[Hg]`,
//! `{beat}/min`. Units of the same dimension convert into each other; Celsius and Fahrenheit have an
//! offset and cannot be part of a product. The table holds the units of measurement in plants, buildings, medicine and
//! the environment, not all of UCUM. Not here: conversion of logarithmic units (`dB`, `[pH]`) into
//! others, and of arbitrary units (`[iU]`), which UCUM does not define either.
//!
//! Source: UCUM version 2.1, <https://ucum.org/ucum>.

mod parse;
mod table;

use std::fmt;

/// Longest code in bytes; reason: it is part of every schema, and people read it.
pub const CODE_BYTES_MAX: usize = 255;

/// Exponents of the base units m, s, g, rad, K, C and cd.
type Dimension = [i16; 7];

/// What a code measures.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Base units of one of this.
    factor: f64,
    /// Added before the factor: Celsius and Fahrenheit.
    offset: f64,
    dimension: Dimension,
    /// A unit that no other measures: logarithmic or arbitrary, and its exponent.
    alone: Option<(&'static str, i16)>,
}

/// A text that is no unit, or no conversion between two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// A code that is not UCUM, or not in the table.
    #[error("{code:?} is not a UCUM unit: {reason}")]
    Code {
        /// The beginning of the code.
        code: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Units of different dimensions.
    #[error("{from:?} does not convert into {to:?}: they measure different quantities")]
    Incommensurable {
        /// One.
        from: String,
        /// The other.
        to: String,
    },
}

/// Converts numbers of one unit into another.
///
/// ```
/// use chappe_stream::ucum::Conversion;
/// let to_celsius = Conversion::new("[degF]", "Cel")?;
/// assert!((to_celsius.apply(98.6) - 37.0).abs() < 1e-9);
/// assert!(Conversion::new("mm[Hg]", "Cel").is_err());
/// # Ok::<(), chappe_stream::ucum::UnitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conversion {
    scale: f64,
    offset: f64,
}

impl Unit {
    /// The unit of a code.
    ///
    /// # Errors
    /// The first part of it that is not UCUM or not in the table.
    pub fn parse(code: &str) -> Result<Self, UnitError> {
        parse::unit(code).map_err(|reason| UnitError::Code {
            code: code.chars().take(64).collect(),
            reason,
        })
    }

    /// Whether its numbers convert into those of `other`.
    #[must_use]
    pub fn is_commensurable(&self, other: &Self) -> bool {
        self.dimension == other.dimension && self.alone == other.alone
    }

    /// The conversion of its numbers into those of `target`; `None` when that measures something else.
    #[must_use]
    pub fn conversion_to(&self, target: &Self) -> Option<Conversion> {
        if self == target {
            return Some(Conversion {
                scale: 1.0,
                offset: 0.0,
            });
        }
        let scale = self.factor / target.factor;
        self.is_commensurable(target).then_some(Conversion {
            scale,
            offset: self.offset * scale - target.offset,
        })
    }

    /// The number one.
    const ONE: Self = Self {
        factor: 1.0,
        offset: 0.0,
        dimension: [0; 7],
        alone: None,
    };

    fn is_special(&self) -> bool {
        self.offset != 0.0
    }

    /// This times `other` to the power of `exponent`.
    fn times(mut self, other: &Self, exponent: i16) -> Option<Self> {
        self.factor *= other.factor.powi(i32::from(exponent));
        for (own, more) in self.dimension.iter_mut().zip(other.dimension) {
            *own = own.checked_add(more.checked_mul(exponent)?)?;
        }
        if let Some((code, power)) = other.alone {
            let power = power.checked_mul(exponent)?;
            self.alone = match self.alone {
                None => Some((code, power)),
                Some((own, held)) if own == code => Some((own, held.checked_add(power)?)),
                Some(_) => return None,
            };
            self.alone = self.alone.filter(|(_, power)| *power != 0);
        }
        let is_usable = self.factor.is_finite() && self.factor > 0.0;
        is_usable.then_some(self)
    }
}

impl Conversion {
    /// From the unit `from` into the unit `to`.
    ///
    /// # Errors
    /// A code that is no unit, or units of different dimensions.
    pub fn new(from: &str, to: &str) -> Result<Self, UnitError> {
        let (source, target) = (Unit::parse(from)?, Unit::parse(to)?);
        source
            .conversion_to(&target)
            .ok_or_else(|| UnitError::Incommensurable {
                from: from.to_owned(),
                to: to.to_owned(),
            })
    }

    /// The number in the target unit.
    #[must_use]
    pub fn apply(self, number: f64) -> f64 {
        number * self.scale + self.offset
    }
}

/// The exponents of the base units, for reading.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.factor)?;
        for (name, exponent) in table::BASES.iter().zip(self.dimension) {
            if exponent != 0 {
                write!(f, ".{name}{exponent}")?;
            }
        }
        match self.alone {
            Some((code, exponent)) => write!(f, ".{code}{exponent}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn convert(number: f64, from: &str, to: &str) -> f64 {
        Conversion::new(from, to).unwrap().apply(number)
    }

    #[test]
    fn known_quantities_convert() {
        // NIST Special Publication 811 (2008), appendix B, and the definitions of UCUM.
        let table = [
            (100.0, "Cel", "[degF]", 212.0),
            (-40.0, "[degF]", "Cel", -40.0),
            (25.0, "Cel", "K", 298.15),
            (37_000.0, "mCel", "Cel", 37.0),
            (1.0, "bar", "Pa", 100_000.0),
            (760.0, "mm[Hg]", "kPa", 101.324_72),
            (1.0, "atm", "hPa", 1_013.25),
            (1.0, "[psi]", "kPa", 6.894_757),
            (10.0, "cm[H2O]", "Pa", 980.665),
            (60.0, "{beat}/min", "Hz", 1.0),
            (1.0, "kW.h", "MJ", 3.6),
            (1.0, "km/h", "m/s", 0.277_777_8),
            (1.0, "[kn_i]", "m/s", 0.514_444_4),
            (1.0, "[lb_av]", "g", 453.592_37),
            (1.0, "[gal_us]", "L", 3.785_411_784),
            (5.5, "mmol/L", "umol/mL", 5.5),
            (1.0, "g/dL", "kg/m3", 10.0),
            (180.0, "deg", "rad", std::f64::consts::PI),
            (1.0, "V.A", "W", 1.0),
            (1.0, "10*3/uL", "10*9/L", 1.0),
            (50.0, "%", "1", 0.5),
            (400.0, "[ppm]", "%", 0.04),
            (1.0, "J/(kg.K)", "m2/s2/K", 1.0),
            (1.0, "/s", "Hz", 1.0),
            (1.0, "KiBy", "By", 1_024.0),
            (2.0, "dB", "B", 0.2),
            (1.0, "k[iU]/L", "[iU]/mL", 1.0),
            (1.0, "g{creat}", "mg", 1_000.0),
        ];
        for (number, from, to, wanted) in table {
            let found = convert(number, from, to);
            assert!(
                (found - wanted).abs() <= wanted.abs() * 1e-6,
                "{from} to {to}: {found}"
            );
        }
    }

    #[test]
    fn every_unit_of_the_table_is_one() {
        for (code, metric, _) in table::UNITS {
            let unit = Unit::parse(code).unwrap();
            if metric {
                let kilo = Unit::parse(&format!("k{code}")).unwrap();
                assert!((kilo.factor / unit.factor - 1_000.0).abs() < 1e-9, "{code}");
            }
        }
    }

    #[test]
    fn units_of_other_quantities_do_not_convert() {
        for (from, to) in [
            ("m", "s"),
            ("Cel", "Pa"),
            ("[iU]", "g"),
            ("dB", "1"),
            ("[iU]", "[arb'U]"),
        ] {
            let error = Conversion::new(from, to).unwrap_err();
            assert!(
                matches!(error, UnitError::Incommensurable { .. }),
                "{from} {to}"
            );
        }
    }

    #[test]
    fn what_is_no_unit_is_refused_with_the_part() {
        let long = "m.".repeat(200);
        let deep = "(".repeat(40);
        let table = [
            ("", "empty"),
            ("°C", "\"°C\""),
            ("celsius", "\"celsius\""),
            ("kmin", "takes no prefix"),
            ("m/", "missing"),
            ("m..s", "missing"),
            ("m s", "\"m s\""),
            ("(m", "bracket"),
            ("m)", "\")\""),
            ("m{a", "annotation"),
            ("m{é}", "annotation"),
            ("Cel/min", "part of a product"),
            ("Cel2", "part of a product"),
            ("m9999", "power"),
            ("m-", "power"),
            ("0", "zero"),
            (long.as_str(), "longer"),
            (deep.as_str(), "bracket"),
        ];
        for (code, part) in table {
            let error = Unit::parse(code).unwrap_err().to_string();
            assert!(error.contains(part), "{code}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_conversion_and_its_inverse_give_the_number_back(
            number in -1e9..1e9_f64, index in 0..table::UNITS.len(),
        ) {
            let (code, _, _) = table::UNITS[index];
            // Base units of the same dimension.
            let there = Conversion::new(code, code).unwrap();
            prop_assert_eq!(there.apply(number), number);
            if Conversion::new(code, "Pa").is_ok() {
                let back = convert(convert(number, code, "Pa"), "Pa", code);
                prop_assert!((back - number).abs() <= number.abs() * 1e-12);
            }
        }

        #[test]
        fn no_text_panics(text in "[a-zA-Z0-9\\[\\](){}./*^'%µ+-]{0,40}") {
            let _ = Unit::parse(&text);
        }
    }
}

//! Targets: a measurement divided by a reference of the same run, and the limit of that ratio.
//!
//! An absolute figure depends on the machine as much as on the program, so it is a row of the
//! report and never judged. The reference is a peer (quick-xml, EXIficient, SQLite, JetStream), a
//! floor (a raw socket, `fdatasync`, a copy of the same bytes) or the number requested (elements
//! produced, searches started). If a reference was not measured, its target is skipped, with the
//! reason.

use std::fmt;

use serde::Serialize;

/// The side of the limit on which a ratio meets its target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The largest ratio.
    AtMost(f64),
    /// The smallest ratio.
    AtLeast(f64),
}

/// The reference of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reference {
    /// Its name, as it appears in the rows.
    pub name: String,
    /// Its value, in the unit of the measurement.
    pub value: f64,
}

impl Reference {
    /// A reference that was measured in this run.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        let name = name.into();
        Self { name, value }
    }
}

/// The result of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The ratio is within the limit.
    Met,
    /// The ratio exceeds the limit, or is undefined because the reference is zero.
    Missed,
    /// The reference was not measured.
    Skipped {
        /// The reason.
        reason: String,
    },
}

/// A target and its result.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// The judged property.
    pub name: String,
    /// The measurement.
    pub measured: f64,
    /// The unit of the measurement and of the reference.
    pub unit: &'static str,
    /// The reference; `None` if it was not measured.
    pub reference: Option<Reference>,
    /// Measurement divided by reference.
    pub ratio: Option<f64>,
    /// The limit of the ratio.
    pub limit: Limit,
    /// Whether the target is met.
    pub verdict: Verdict,
}

impl Target {
    /// Compares a measurement with its reference, or records why there is none.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        (measured, unit): (f64, &'static str),
        reference: Result<Reference, String>,
        limit: Limit,
    ) -> Self {
        // Nothing out of nothing is no evidence: 0 / 0 misses every limit.
        let ratio = |reference: &Reference| measured / reference.value;
        let within = |ratio: f64| match limit {
            Limit::AtMost(most) => ratio <= most,
            Limit::AtLeast(least) => ratio >= least,
        };
        let (reference, ratio, verdict) = match reference {
            Ok(reference) => {
                let ratio = ratio(&reference);
                let verdict = match ratio.is_finite() && within(ratio) {
                    true => Verdict::Met,
                    false => Verdict::Missed,
                };
                (Some(reference), Some(ratio), verdict)
            }
            Err(reason) => (None, None, Verdict::Skipped { reason }),
        };
        Self {
            name: name.into(),
            measured,
            unit,
            reference,
            ratio,
            limit,
            verdict,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, measured, unit) = (&self.name, self.measured, self.unit);
        let limit = match self.limit {
            Limit::AtMost(most) => format!("at most {most}"),
            Limit::AtLeast(least) => format!("at least {least}"),
        };
        let (word, (reference, ratio)) =
            match (&self.verdict, self.reference.as_ref().zip(self.ratio)) {
                (Verdict::Met, Some(compared)) => ("met   ", compared),
                (Verdict::Missed, Some(compared)) => ("MISSED", compared),
                (Verdict::Skipped { reason }, _) => {
                    return write!(f, "skipped: {reason}: {name} ({limit})");
                }
                (_, None) => return write!(f, "skipped: no reference: {name} ({limit})"),
            };
        let value = reference.value;
        let of = &reference.name;
        write!(
            f,
            "{word} {name}: {measured:.3} {unit} / {value:.3} {unit} ({of}) = {ratio:.3}, {limit}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(measured: f64, reference: f64, limit: Limit) -> Verdict {
        let reference = Ok(Reference::new("a floor", reference));
        Target::new("a target", (measured, "ms"), reference, limit).verdict
    }

    #[test]
    fn a_ratio_is_judged_on_the_right_side_of_its_limit() {
        assert_eq!(verdict(3.0, 1.5, Limit::AtMost(2.0)), Verdict::Met);
        assert_eq!(verdict(3.1, 1.5, Limit::AtMost(2.0)), Verdict::Missed);
        assert_eq!(verdict(99.0, 100.0, Limit::AtLeast(0.99)), Verdict::Met);
        assert_eq!(verdict(98.0, 100.0, Limit::AtLeast(0.99)), Verdict::Missed);
        assert_eq!(verdict(0.0, 100.0, Limit::AtMost(0.0)), Verdict::Met);
    }

    #[test]
    fn a_reference_of_zero_meets_nothing() {
        for limit in [Limit::AtMost(1.0), Limit::AtLeast(1.0)] {
            assert_eq!(verdict(0.0, 0.0, limit), Verdict::Missed);
            assert_eq!(verdict(1.0, 0.0, limit), Verdict::Missed);
        }
    }

    #[test]
    fn a_reference_that_was_not_measured_is_named_and_not_passed() {
        let reason = Err("mosquitto is not installed".to_owned());
        let target = Target::new("p99", (1.0, "ms"), reason, Limit::AtMost(2.0));
        assert_ne!(target.verdict, Verdict::Met);
        let line = target.to_string();
        assert!(
            line.starts_with("skipped: mosquitto is not installed"),
            "{line}"
        );
    }
}

//! Sums of values and of their squares, for variances and standard deviations.

use super::digits::{Digits, Magnitude, weight_of};
use super::{LOWEST, parts};

/// Which variance or deviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deviation {
    /// Of a sample (divided by one less than the count), or of the population.
    pub(crate) is_of_sample: bool,
    /// The root, or the variance itself.
    pub(crate) is_root: bool,
}

impl Deviation {
    /// The names of the functions in SQL.
    pub(crate) const ALL: [(&str, Self); 6] = [
        ("stddev", Self::new(true, true)),
        ("stddev_samp", Self::new(true, true)),
        ("stddev_pop", Self::new(false, true)),
        ("variance", Self::new(true, false)),
        ("var_samp", Self::new(true, false)),
        ("var_pop", Self::new(false, false)),
    ];

    const fn new(is_of_sample: bool, is_root: bool) -> Self {
        Self {
            is_of_sample,
            is_root,
        }
    }

    /// The one with this name in SQL.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, deviation)| *deviation)
    }
}

/// The exact sums of some values and of their squares. Integers beyond 2^53 are rounded to doubles.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moments {
    count: u64,
    /// The number of values that are infinite.
    infinite: u64,
    sum: Digits,
    squares: Digits,
}

impl Moments {
    /// Adds a value, which is not NaN.
    #[inline]
    pub(crate) fn add(&mut self, number: f64) {
        self.count += 1;
        match number.is_finite() {
            true => self.change(number, false),
            false => self.infinite += 1,
        }
    }

    /// Takes a value away that was added.
    #[inline]
    pub(crate) fn remove(&mut self, number: f64) {
        self.count = self.count.saturating_sub(1);
        match number.is_finite() {
            true => self.change(number, true),
            false => self.infinite = self.infinite.saturating_sub(1),
        }
    }

    #[inline]
    fn change(&mut self, number: f64, is_removed: bool) {
        let (is_negative, mantissa, shift) = parts(number);
        self.sum
            .add_mantissa(mantissa, shift, is_negative != is_removed);
        let mantissa = u128::from(mantissa);
        self.squares.add(mantissa * mantissa, 2 * shift, is_removed);
    }

    /// The variance or deviation; `None` with too few values, or an infinite one.
    ///
    /// With n values, n · Σx² − (Σx)² is computed exactly and rounded once, then divided by n · n or
    /// n · (n − 1).
    pub(crate) fn finish(&self, which: Deviation) -> Option<f64> {
        let divisor = self.count.checked_sub(u64::from(which.is_of_sample))?;
        if divisor == 0 || self.infinite > 0 {
            return None;
        }
        let (_, sum) = self.sum.magnitude();
        let (_, squares) = self.squares.magnitude();
        let (below_sum, below_squares) = (2 * self.sum.below(), self.squares.below());
        let below = below_sum.min(below_squares);
        let squares = squares.times(&Magnitude::from(self.count));
        let square = sum.times(&sum).above(below_sum - below);
        let spread = squares.above(below_squares - below).distance(&square);
        let (number, exponent) = spread.scaled(2 * LOWEST + weight_of(below));
        let odd = exponent.rem_euclid(2);
        // From 1 to below 4, so that the exponent is even.
        let number = number * f64::from(1 + odd) / (self.count as f64 * divisor as f64);
        let exponent = exponent - odd;
        Some(match which.is_root {
            true => shifted(number.sqrt(), exponent / 2),
            false => shifted(number, exponent),
        })
    }
}

/// `number` times 2^`exponent`.
fn shifted(mut number: f64, mut exponent: i32) -> f64 {
    const STEP: i32 = 1_000;
    while exponent > STEP {
        (number, exponent) = (number * 2_f64.powi(STEP), exponent - STEP);
    }
    while exponent < -STEP {
        (number, exponent) = (number * 2_f64.powi(-STEP), exponent + STEP);
    }
    number * 2_f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, values: &[f64]) -> Option<f64> {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments.finish(Deviation::of(name).unwrap())
    }

    #[test]
    fn variances_are_what_they_are_by_hand() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(of("stddev_pop", &values), Some(2.0));
        assert_eq!(of("var_pop", &values), Some(4.0));
        assert_eq!(of("variance", &values), Some(32.0 / 7.0));
        assert_eq!(of("stddev", &values), Some((32.0_f64 / 7.0).sqrt()));
        assert_eq!(of("stddev_samp", &[1.0]), None);
        assert_eq!(of("stddev_pop", &[1.0]), Some(0.0));
        assert_eq!(of("var_pop", &[]), None);
        assert_eq!(of("var_pop", &[1.0, f64::INFINITY]), None);
        // A mean that is large compared with the spread, where the textbook's formula gives noise.
        let far = [1e15 + 4.0, 1e15 + 7.0, 1e15 + 13.0, 1e15 + 16.0];
        assert_eq!(of("variance", &far), Some(30.0));
        assert_eq!(of("variance", &[1e200, -1e200]), Some(f64::INFINITY));
        assert_eq!(of("stddev_pop", &[1e200, -1e200]), Some(1e200));
        assert_eq!(of("stddev_pop", &[3e-200, -3e-200]), Some(3e-200));
        assert_eq!(of("stddev_pop", &[0.1; 7]), Some(0.0));
    }

    #[test]
    fn a_removed_value_leaves_no_trace() {
        let (mut sliding, mut fresh) = (Moments::default(), Moments::default());
        let values: Vec<f64> = (0..100)
            .map(|n| f64::from(n).sin() * 10_f64.powi(n % 7))
            .collect();
        for (index, value) in values.iter().enumerate() {
            sliding.add(*value);
            if index >= 9 {
                sliding.remove(values[index - 9]);
            }
        }
        values[91..].iter().for_each(|value| fresh.add(*value));
        for (name, which) in Deviation::ALL {
            assert_eq!(sliding.finish(which), fresh.finish(which), "{name}");
        }
    }
}

//! Exact sums of doubles, from which values can also be taken away again.
//!
//! A sum is a fixed-point number with 32 bits a digit, in the manner of the small superaccumulator of
//! R. Neal, "Fast exact summation using small and large superaccumulators" (2015): every double is a
//! whole multiple of 2^-1074, so adding it touches three digits and loses nothing. A digit has 64 bits
//! and takes 2^30 additions before carries are passed on. Only the digits in use are stored.
//!
//! The result is rounded once, to nearest, ties to even, so it does not depend on the order of the
//! values, and a value that leaves a window is subtracted without a trace. [`Sum`] adds integers
//! and infinities; [`Moments`] adds squares, for variances.
//!
//! It deliberately knows no SQL: the compiled path, SQLite's functions and the aggregates over stored
//! streams use the same sums, so they agree to the bit.

mod digits;
mod moments;

use digits::Digits;
pub(crate) use moments::{Deviation, Moments};

/// Weight of the lowest bit of a sum of doubles, as a power of two: that of the least double.
const LOWEST: i32 = -1_074;

/// A sum of numbers: exact, rounded once when it is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum {
    integers: i128,
    /// The number of integers, and of reals.
    counts: [i64; 2],
    /// The number of values that are positive, and negative infinity.
    infinities: [i64; 2],
    reals: Digits,
}

impl Sum {
    /// The number of values.
    pub(crate) fn count(&self) -> i64 {
        self.counts[0] + self.counts[1]
    }

    /// Whether a real is among the values.
    pub(crate) fn has_reals(&self) -> bool {
        self.counts[1] > 0
    }

    /// Adds an integer.
    #[inline]
    pub(crate) fn add_integer(&mut self, number: i64) {
        self.counts[0] += 1;
        self.integers += i128::from(number);
    }

    /// Takes an integer away that was added.
    #[inline]
    pub(crate) fn remove_integer(&mut self, number: i64) {
        self.counts[0] -= 1;
        self.integers -= i128::from(number);
    }

    /// Adds a real, which is not NaN.
    #[inline]
    pub(crate) fn add_real(&mut self, number: f64) {
        self.counts[1] += 1;
        self.change(number, 1);
    }

    /// Takes a real away that was added.
    #[inline]
    pub(crate) fn remove_real(&mut self, number: f64) {
        self.counts[1] -= 1;
        self.change(-number, -1);
    }

    #[inline]
    fn change(&mut self, number: f64, by: i64) {
        if number.is_finite() {
            let (is_negative, mantissa, shift) = parts(number);
            self.reals.add_mantissa(mantissa, shift, is_negative);
        } else if !number.is_nan() {
            let is_negative = (number < 0.0) == (by > 0);
            self.infinities[usize::from(is_negative)] += by;
        }
    }

    /// The sum as an integer; `None` beyond 64 bits. Only if no real is among the values.
    pub(crate) fn integer(&self) -> Option<i64> {
        i64::try_from(self.integers).ok()
    }

    /// The sum, rounded once; NaN for infinities of both signs.
    pub(crate) fn total(&self) -> f64 {
        match self.infinities {
            [0, 0] => {}
            [_, 0] => return f64::INFINITY,
            [0, _] => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        match (self.integers, self.has_reals()) {
            (integers, false) => integers as f64,
            (0, true) => self.reals.rounded(LOWEST),
            (integers, true) => {
                let mut all = self.reals.clone();
                let magnitude = integers.unsigned_abs();
                let is_negative = integers < 0;
                let (low, high) = (magnitude & u128::from(u64::MAX), magnitude >> 64);
                all.add(low, LOWEST.unsigned_abs(), is_negative);
                all.add(high, LOWEST.unsigned_abs() + 64, is_negative);
                all.rounded(LOWEST)
            }
        }
    }
}

/// Sign, mantissa, and how far the mantissa is shifted above 2^-1074, of a finite number.
#[inline]
fn parts(number: f64) -> (bool, u64, u32) {
    let bits = number.to_bits();
    let exponent = u32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    let fraction = bits & ((1 << 52) - 1);
    let is_negative = bits >> 63 == 1;
    match exponent {
        0 => (is_negative, fraction, 0),
        _ => (is_negative, fraction | 1 << 52, exponent - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = Sum::default();
        values.iter().for_each(|value| sum.add_real(*value));
        sum.total()
    }

    #[test]
    fn a_sum_is_rounded_once() {
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[1e100, 1.0, -1e100, 1e-100]), 1.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[-f64::MAX, -f64::MAX]), f64::NEG_INFINITY);
        assert_eq!(sum(&[5e-324, 5e-324, -5e-324]), 5e-324);
        assert_eq!(
            sum(&[f64::MIN_POSITIVE, -5e-324]),
            f64::MIN_POSITIVE - 5e-324
        );
        // A tie goes to even; the least more breaks it.
        let tie = 2_f64.powi(53);
        assert_eq!(sum(&[tie, 1.0]), tie);
        assert_eq!(sum(&[tie, 1.0, 5e-324]), tie + 2.0);
        assert_eq!(sum(&[-tie, -1.0, -5e-324]), -tie - 2.0);
        assert_eq!(sum(&[tie + 2.0, 1.0]), tie + 4.0);
        assert_eq!(sum(&[-0.0, -0.0]).to_bits(), 0.0_f64.to_bits());
        assert_eq!(sum(&[f64::INFINITY, 1.0]), f64::INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    }

    #[test]
    fn integers_and_reals_add_up_exactly() {
        let mut sum = Sum::default();
        for _ in 0..1_000 {
            sum.add_integer(i64::MAX);
        }
        assert_eq!(sum.integer(), None);
        assert_eq!(sum.total(), (i128::from(i64::MAX) * 1_000) as f64);
        sum.add_real(0.5);
        for _ in 0..999 {
            sum.remove_integer(i64::MAX);
        }
        // 2^63 - 1 + 0.5 is nearer to 2^63 than to the double below.
        assert_eq!(sum.total(), 9_223_372_036_854_775_808.0);
        sum.remove_integer(i64::MAX);
        assert_eq!((sum.total(), sum.count()), (0.5, 1));
        sum.remove_real(0.5);
        sum.add_integer(-3);
        assert_eq!((sum.integer(), sum.has_reals()), (Some(-3), false));
    }

    /// SplitMix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn the_order_does_not_matter_and_what_is_removed_leaves_no_trace() {
        let mut state = 5;
        for round in 0..500 {
            let mut any = || match f64::from_bits(next(&mut state)) {
                number if number.is_finite() => number,
                _ => -0.0,
            };
            let values: Vec<f64> = (0..40).map(|_| any()).collect();
            let mut sliding = Sum::default();
            for (index, value) in values.iter().enumerate() {
                sliding.add_real(*value);
                if index >= 7 {
                    sliding.remove_real(values[index - 7]);
                    let window: Vec<f64> = values[index - 6..=index].to_vec();
                    let reversed: Vec<f64> = window.iter().rev().copied().collect();
                    assert_eq!(sliding.total().to_bits(), sum(&window).to_bits(), "{round}");
                    assert_eq!(sum(&reversed).to_bits(), sum(&window).to_bits(), "{round}");
                }
            }
        }
    }

    #[test]
    fn two_values_add_up_as_the_processor_adds_them() {
        let mut state = 9;
        for _ in 0..20_000 {
            let one = f64::from_bits(next(&mut state));
            // Near the other, so that the sum is rounded.
            let near = one.to_bits() ^ (next(&mut state) >> (next(&mut state) % 24 + 2));
            let other = f64::from_bits(near);
            if one.is_finite() && other.is_finite() {
                let wanted = one + other + 0.0;
                assert_eq!(
                    sum(&[one, other]).to_bits(),
                    wanted.to_bits(),
                    "{one:e} {other:e}"
                );
            }
        }
    }
}

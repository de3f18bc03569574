//! Fixed-point numbers with as many digits as their values need.

use std::cmp::Ordering;

/// Bits of a digit.
const BITS: u32 = 32;
/// The value part of a digit.
const MASK: i64 = 0xffff_ffff;
/// Additions after which carries are passed on: each adds less than 2^33 to a digit of 64 bits.
const ADDITIONS_MAX: u32 = 1 << 29;

/// A signed fixed-point number.
#[derive(Debug, Clone, Default)]
pub(super) struct Digits {
    /// The number of digits below the first stored one, which are zero.
    below: usize,
    /// Least first; each may be negative or above 32 bits.
    digits: Vec<i64>,
    additions: u32,
}

/// An unsigned number, least digit first, without zeros above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Magnitude(Vec<u32>);

impl Digits {
    /// Adds or subtracts `value` shifted by `shift` bits.
    #[inline]
    pub(super) fn add(&mut self, value: u128, shift: u32, is_negative: bool) {
        if value == 0 {
            return;
        }
        if self.additions == ADDITIONS_MAX {
            self.carry();
        }
        self.additions += 1;
        let (at, by) = ((shift / BITS) as usize, shift % BITS);
        let low = (value & u128::from(u64::MAX)) << by;
        let high = (value >> 64) << by;
        let width = if value >> 64 == 0 { 3 } else { 5 };
        let digit = |of: u128, index: u32| ((of >> (index * BITS)) as i64) & MASK;
        let digits = [
            digit(low, 0),
            digit(low, 1),
            digit(low, 2) + digit(high, 0),
            digit(high, 1),
            digit(high, 2),
        ];
        self.reach(at, width);
        let stored = &mut self.digits[at - self.below..][..width];
        for (stored, digit) in stored.iter_mut().zip(digits) {
            *stored += if is_negative { -digit } else { digit };
        }
    }

    /// Adds or subtracts a mantissa of at most 53 bits, as [`Self::add`], where its digits are stored.
    #[inline]
    pub(super) fn add_mantissa(&mut self, mantissa: u64, shift: u32, is_negative: bool) {
        let (at, by) = ((shift / BITS) as usize, shift % BITS);
        let first = at.wrapping_sub(self.below);
        let stored = self
            .digits
            .get_mut(first..)
            .and_then(|it| it.first_chunk_mut::<3>());
        let Some([low, middle, high]) = stored.filter(|_| self.additions < ADDITIONS_MAX) else {
            return self.add(mantissa.into(), shift, is_negative);
        };
        self.additions += 1;
        let value = u128::from(mantissa) << by;
        let sign = -i64::from(is_negative);
        let signed = |digit: u128| ((digit as i64 & MASK) ^ sign) - sign;
        *low += signed(value);
        *middle += signed(value >> BITS);
        *high += signed(value >> (2 * BITS));
    }

    /// Stores at least the `width` digits from `at`.
    #[inline]
    fn reach(&mut self, at: usize, width: usize) {
        if self.digits.is_empty() {
            self.below = at;
        }
        if at < self.below {
            let more = self.below - at;
            self.digits.splice(0..0, std::iter::repeat_n(0, more));
            self.below = at;
        }
        let end = at - self.below + width;
        if self.digits.len() < end {
            self.digits.resize(end, 0);
        }
    }

    /// Passes carries on, so that all digits but the last have 32 bits.
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits {
            let sum = *digit + carry;
            *digit = sum & MASK;
            carry = sum >> BITS;
        }
        while carry != 0 && carry != -1 {
            self.digits.push(carry & MASK);
            carry >>= BITS;
        }
        if carry == -1 {
            self.digits.push(-1);
        }
        self.additions = 0;
    }

    /// The number of digits below those of [`Self::magnitude`].
    pub(super) fn below(&self) -> usize {
        self.below
    }

    /// Its sign and its magnitude, without the digits below.
    pub(super) fn magnitude(&self) -> (bool, Magnitude) {
        let of = |sign: i64| {
            let mut digits = Vec::with_capacity(self.digits.len() + 2);
            let mut carry = 0;
            for digit in &self.digits {
                let sum = sign * digit + carry;
                digits.push((sum & MASK) as u32);
                carry = sum >> BITS;
            }
            while carry > 0 {
                digits.push((carry & MASK) as u32);
                carry >>= BITS;
            }
            (carry == 0).then(|| Magnitude::new(digits))
        };
        match of(1) {
            Some(magnitude) => (false, magnitude),
            None => (true, of(-1).unwrap_or_else(|| Magnitude::new(Vec::new()))),
        }
    }

    /// The nearest double, if the lowest bit weighs 2^`lowest`.
    pub(super) fn rounded(&self, lowest: i32) -> f64 {
        let (is_negative, magnitude) = self.magnitude();
        let rounded = magnitude.rounded(lowest + weight_of(self.below));
        if is_negative { -rounded } else { rounded }
    }
}

/// The weight of so many digits, as a power of two.
pub(super) fn weight_of(digits: usize) -> i32 {
    i32::try_from(digits).unwrap_or(i32::MAX / 64) * BITS.cast_signed()
}

impl Magnitude {
    /// The number with so many zeros below.
    pub(super) fn above(mut self, zeros: usize) -> Self {
        if !self.0.is_empty() {
            self.0.splice(0..0, std::iter::repeat_n(0, zeros));
        }
        self
    }

    fn new(mut digits: Vec<u32>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self(digits)
    }

    /// The number of its bits.
    pub(super) fn bits(&self) -> usize {
        let top = self
            .0
            .last()
            .map_or(0, |top| (BITS - top.leading_zeros()) as usize);
        self.0.len().saturating_sub(1) * BITS as usize + top
    }

    fn bit(&self, at: usize) -> bool {
        let digit = self.0.get(at / BITS as usize);
        digit.is_some_and(|digit| digit >> (at % BITS as usize) & 1 == 1)
    }

    /// Whether a bit below `end` is set.
    fn has_below(&self, end: usize) -> bool {
        let (whole, part) = (end / BITS as usize, end % BITS as usize);
        let partly = self
            .0
            .get(whole)
            .is_some_and(|it| it & ((1 << part) - 1) != 0);
        partly || self.0.iter().take(whole).any(|digit| *digit != 0)
    }

    /// At most 64 bits from `start`.
    fn bits_from(&self, start: usize) -> u64 {
        let (at, by) = (start / BITS as usize, start % BITS as usize);
        let digit = |at: usize| u128::from(self.0.get(at).copied().unwrap_or(0));
        let three = digit(at) | digit(at + 1) << BITS | digit(at + 2) << (2 * BITS);
        (three >> by) as u64
    }

    /// The nearest double, ties to even, if the lowest bit weighs 2^`lowest`.
    pub(super) fn rounded(&self, lowest: i32) -> f64 {
        let Some(top) = self.bits().checked_sub(1) else {
            return 0.0;
        };
        let weight = i32::try_from(top)
            .unwrap_or(i32::MAX)
            .saturating_add(lowest);
        if weight > 1_023 {
            return f64::INFINITY;
        }
        // The weight of the double's last bit.
        let mut unit = (weight - 52).max(super::LOWEST);
        let Ok(cut) = usize::try_from(unit - lowest) else {
            let mantissa = self.bits_from(0);
            return compose(mantissa << (lowest - unit).unsigned_abs(), unit);
        };
        let mut mantissa = match cut > top {
            true => 0,
            false => self.bits_from(cut),
        };
        let is_half = cut > 0 && self.bit(cut - 1);
        if is_half && (mantissa & 1 == 1 || self.has_below(cut - 1)) {
            mantissa += 1;
        }
        if mantissa == 1 << 53 {
            (mantissa, unit) = (1 << 52, unit + 1);
        }
        match unit > 971 {
            true => f64::INFINITY,
            false => compose(mantissa, unit),
        }
    }

    /// The number as a double from 1 to below 2, or 0, and a power of two.
    pub(super) fn scaled(&self, lowest: i32) -> (f64, i32) {
        let Some(top) = self.bits().checked_sub(1) else {
            return (0.0, 0);
        };
        let top = i32::try_from(top).unwrap_or(i32::MAX);
        let number = self.rounded(-top);
        match number < 2.0 {
            true => (number, top + lowest),
            false => (number / 2.0, top + lowest + 1),
        }
    }

    /// The product of two.
    pub(super) fn times(&self, other: &Self) -> Self {
        let mut product = vec![0_u32; self.0.len() + other.0.len()];
        for (shift, one) in self.0.iter().enumerate().filter(|(_, it)| **it != 0) {
            let mut carry = 0_u64;
            for (index, two) in other.0.iter().enumerate() {
                let digit = &mut product[shift + index];
                let sum = u64::from(*one) * u64::from(*two) + u64::from(*digit) + carry;
                *digit = (sum & 0xffff_ffff) as u32;
                carry = sum >> BITS;
            }
            product[shift + other.0.len()] = carry as u32;
        }
        Self::new(product)
    }

    /// The distance of two.
    pub(super) fn distance(&self, other: &Self) -> Self {
        let (more, less) = match self.order(other) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        let mut borrow = 0_i64;
        let digits = more.0.iter().enumerate().map(|(index, digit)| {
            let less = i64::from(less.0.get(index).copied().unwrap_or(0));
            let difference = i64::from(*digit) - less + borrow;
            borrow = difference >> BITS;
            (difference & MASK) as u32
        });
        Self::new(digits.collect())
    }

    fn order(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl From<u64> for Magnitude {
    fn from(number: u64) -> Self {
        Self::new(vec![(number & 0xffff_ffff) as u32, (number >> BITS) as u32])
    }
}

/// `mantissa` times 2^`unit`, which a double has.
fn compose(mantissa: u64, unit: i32) -> f64 {
    if mantissa < 1 << 52 {
        // Only the least unit has mantissas without their leading bit.
        return f64::from_bits(mantissa);
    }
    let exponent = u64::try_from(unit + 1_075).unwrap_or(0);
    f64::from_bits(exponent << 52 | (mantissa - (1 << 52)))
}

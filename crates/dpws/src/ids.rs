//! Unguessable identifiers, derived from a secret and a counter.
//!
//! SipHash-2-4 (Aumasson and Bernstein, 2012) keyed by the secret is a pseudorandom function: some
//! identifiers reveal nothing about the others.

use chappe_xml::Str;

/// A generator of 128-bit identifiers.
#[derive(Clone)]
pub(crate) struct Ids {
    key: [u64; 2],
    next: u64,
}

/// Hides the key.
impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ids")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Ids {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let half = |at: usize| {
            let bytes = secret[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        Self {
            key: [half(0), half(8)],
            next: 0,
        }
    }

    pub(crate) fn next(&mut self) -> u128 {
        let mut block = [0; 9];
        block[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        let low = self.hash(&block);
        block[8] = 1;
        (u128::from(self.hash(&block)) << 64) | u128::from(low)
    }

    /// Creates a new `urn:uuid:…`.
    pub(crate) fn urn(&mut self) -> Str {
        let random = self.next().to_le_bytes();
        let uuid = uuid::Builder::from_random_bytes(random).into_uuid();
        uuid.urn().to_string().into()
    }

    /// A random number in `0..=1` with 53 bits.
    pub(crate) fn fraction(&mut self) -> f64 {
        // 53 bits fit a double.
        let high = (self.next() as u64 >> 11) as f64;
        high / (1_u64 << 53) as f64
    }

    /// The keyed hash of the bytes.
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        let [k0, k1] = self.key;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            absorb(
                &mut v,
                u64::from_le_bytes(chunk.try_into().unwrap_or_default()),
            );
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        last[7] = bytes.len().to_le_bytes()[0];
        absorb(&mut v, u64::from_le_bytes(last));
        v[2] ^= 0xff;
        (0..4).for_each(|_| round(&mut v));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_siphash_2_4() {
        // The example of the paper's appendix A: key 00..0f, message 00..0e.
        let key = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(Ids::new(key).hash(&message), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn identifiers_differ_by_count_and_secret() {
        let (mut one, mut other) = (Ids::new([1; 16]), Ids::new([2; 16]));
        let (first, second) = (one.next(), one.next());
        assert_ne!(first, second);
        assert_ne!(first, other.next());
        assert!(one.urn().starts_with("urn:uuid:"));
        assert!((0.0..=1.0).contains(&one.fraction()));
    }
}

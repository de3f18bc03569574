//! The content of a sample: a header and filling up to the size.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | `cpf1` |
//! | 4–5 | flags: 1 warm-up, 2 send back, 4 the last of the run |
//! | 6–7 | phase, from 0 |
//! | 8–15 | the run, a random number |
//! | 16–23 | the publisher's machine since it was started, see [`host`] |
//! | 24–31 | number, from 1, through all phases |
//! | 32–39 | the time of writing, nanoseconds of the machine's monotonic clock |
//!
//! Numbers are little-endian.

use std::sync::OnceLock;

/// Bytes of the head: no sample is smaller.
pub const SAMPLE_BYTES_MIN: usize = 40;
/// The largest sample, which is the largest element of a stream.
pub const SAMPLE_BYTES_MAX: usize = 2 << 20;

const MAGIC: [u8; 4] = *b"cpf1";
const WARM_UP: u16 = 1;
const ECHO: u16 = 2;
const LAST: u16 = 4;

/// The head of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    /// It is not measured.
    pub(crate) warm_up: bool,
    /// The subscriber sends it back.
    pub(crate) echo: bool,
    /// Nothing follows.
    pub(crate) last: bool,
    pub(crate) phase: u16,
    pub(crate) run: u64,
    pub(crate) host: u64,
    pub(crate) number: u64,
    pub(crate) written_ns: u64,
}

impl Head {
    /// Writes it to the start of a sample of at least [`SAMPLE_BYTES_MIN`].
    pub(crate) fn write(&self, sample: &mut [u8]) {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let flags = flag(self.warm_up, WARM_UP) | flag(self.echo, ECHO) | flag(self.last, LAST);
        let mut head = [0; SAMPLE_BYTES_MIN];
        head[..4].copy_from_slice(&MAGIC);
        head[4..6].copy_from_slice(&flags.to_le_bytes());
        head[6..8].copy_from_slice(&self.phase.to_le_bytes());
        let numbers = [self.run, self.host, self.number, self.written_ns];
        for (place, number) in head[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        if let Some(place) = sample.get_mut(..SAMPLE_BYTES_MIN) {
            place.copy_from_slice(&head);
        }
    }

    /// Parses it; `None`: not a sample of a measurement.
    pub(crate) fn read(sample: &[u8]) -> Option<Self> {
        let head: &[u8; SAMPLE_BYTES_MIN] = sample.first_chunk()?;
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let mut numbers = head[8..].chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        });
        let mut next = || numbers.next().unwrap_or_default();
        let flags = short(4);
        (head[..4] == MAGIC).then(|| Self {
            warm_up: flags & WARM_UP != 0,
            echo: flags & ECHO != 0,
            last: flags & LAST != 0,
            phase: short(6),
            run: next(),
            host: next(),
            number: next(),
            written_ns: next(),
        })
    }
}

/// Identifies this machine since its start: processes with the same number share the monotonic
/// clock.
pub(crate) fn host() -> u64 {
    static HOST: OnceLock<u64> = OnceLock::new();
    *HOST.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // A time namespace has its own clock.
        let time = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let text = format!("{boot}{}", time.display());
        // FNV-1a: a name, not a secret.
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written_and_nothing_else_is() {
        let head = Head {
            warm_up: true,
            last: true,
            phase: 7,
            run: 1,
            host: host(),
            number: u64::MAX,
            written_ns: 5,
            ..Head::default()
        };
        let mut sample = vec![9; 64];
        head.write(&mut sample);
        assert_eq!(Head::read(&sample), Some(head));
        assert_eq!(sample[SAMPLE_BYTES_MIN..], [9; 24]);
        for length in 0..SAMPLE_BYTES_MIN {
            assert_eq!(Head::read(&sample[..length]), None);
        }
        sample[0] = b'x';
        assert_eq!(Head::read(&sample), None);
        assert_ne!(host(), 0);
    }
}

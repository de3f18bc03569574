//! Randomness from the operating system: seeds for machines and keys.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// 32 unpredictable bytes: for keys and tokens.
///
/// # Errors
/// The operating system provides no randomness.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(io::Error::other(
            "the operating system provides no randomness",
        )),
    }
}

/// An unpredictable number, to seed a machine.
///
/// # Errors
/// The operating system provides no randomness.
pub fn seed_number() -> io::Result<u64> {
    let bytes = seed()?;
    let (head, _) = bytes.split_at(8);
    Ok(head
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

//! Randomness from the operating system: the seeds that machines and keys are made from.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// 32 unpredictable bytes: for keys and tokens.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(io::Error::other("the operating system gives no randomness")),
    }
}

/// An unpredictable number: for the seed of a machine.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn seed_number() -> io::Result<u64> {
    let bytes = seed()?;
    let (head, _) = bytes.split_at(8);
    Ok(head
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

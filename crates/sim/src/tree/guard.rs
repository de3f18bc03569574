//! Signatures and receipts that cost nothing and cannot be guessed inside a simulation.

use chappe_notification_tree::{EventId, Guard, SIGNATURE_BYTES};

/// A node's keys: numbers, mixed with the secret of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimGuard {
    pub(super) node: u32,
    pub(super) secret: u64,
    pub(super) authenticates: bool,
}

/// The key by which others name a node.
pub(super) fn key(node: u32) -> [u8; 32] {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&node.to_be_bytes());
    key
}

/// The node of a key.
pub(super) fn node(key: &[u8; 32]) -> u32 {
    u32::from_be_bytes([key[0], key[1], key[2], key[3]])
}

/// A permutation of 64 bits in which each bit depends on all (SplitMix64's).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

fn digest(secret: u64, bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    chunks.fold(
        mix(secret ^ bytes.len() as u64),
        |sum, word| mix(sum ^ word),
    )
}

impl Guard for SimGuard {
    fn authenticates(&self) -> bool {
        self.authenticates
    }

    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let mut signature = [0; SIGNATURE_BYTES];
        let sum = digest(self.secret ^ u64::from(self.node), bytes);
        signature[..8].copy_from_slice(&sum.to_le_bytes());
        signature
    }

    fn verify(&mut self, source: &[u8; 32], bytes: &[u8], signature: &[u8; 64]) -> bool {
        let sum = digest(self.secret ^ u64::from(node(source)), bytes);
        signature[..8] == sum.to_le_bytes()
    }

    fn hop_tag(&mut self, _: &[u8; 32], _: &[u8]) -> Option<u128> {
        // The simulation knows the sender: nobody can impersonate another node.
        Some(0)
    }

    fn receipt(&mut self, peer: &[u8; 32], id: EventId, sink: u32) -> Option<u128> {
        let pair = u64::from(self.node) ^ u64::from(node(peer));
        let event = mix(id.topic ^ mix(id.sequence ^ u64::from(id.boot) << 40));
        let low = mix(self.secret ^ mix(pair ^ event) ^ u64::from(sink) << 20);
        Some(u128::from(low) << 64 | u128::from(mix(low)))
    }
}

//! Bits that flip on a disk.

use crate::SimDisk;

/// Flips a bit of an element's bytes wherever they lie on the disk; false if they lie nowhere.
pub(super) fn flip(disk: &SimDisk, element: &[u8], random: &mut fastrand::Rng) -> bool {
    let mark = &element[..element.len().min(32)];
    for name in disk.names() {
        let Some(bytes) = disk.bytes(&name) else {
            continue;
        };
        let found = bytes.windows(mark.len()).position(|window| window == mark);
        if let Some(at) = found {
            let bit = at as u64 * 8 + random.u64(..mark.len() as u64 * 8);
            return disk.flip(&name, bit);
        }
    }
    false
}

//! Whether the operating system has memory enough to put datagrams together.
//!
//! A datagram larger than a frame travels in fragments. One of which a fragment was lost stays half a
//! minute in a memory of 4 MiB on most systems (`net.ipv4.ipfrag_high_thresh`); when that is full,
//! fragments of others are dropped that have lost nothing, and a reliable sender repeats them. At 25 MB/s
//! and 1 % of frames lost it is full after three seconds (measured, `docs/dds.md`).

/// What is wanted: half a minute of what is lost of 25 MB/s in datagrams of ten frames, of which 1 % is
/// lost.
const WANTED_BYTES: u64 = 128 << 20;
const LIMIT: &str = "/proc/sys/net/ipv4/ipfrag_high_thresh";

/// The memory for fragments of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentMemory {
    /// `net.ipv4.ipfrag_high_thresh`, of this network namespace.
    pub limit_bytes: u64,
}

impl FragmentMemory {
    /// Reads it; none where the system does not tell.
    #[must_use]
    pub fn read() -> Option<Self> {
        let text = std::fs::read_to_string(LIMIT).ok()?;
        let limit_bytes = text.trim().parse().ok()?;
        Some(Self { limit_bytes })
    }

    /// What is wrong, when it is too small for a network that loses frames.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (have, wanted) = (self.limit_bytes >> 10, WANTED_BYTES >> 10);
        (self.limit_bytes < WANTED_BYTES).then(|| {
            format!(
                "the system keeps {have} KiB of fragments, {wanted} KiB are wanted: where frames are lost, \
                 datagrams larger than a frame are dropped that have lost nothing"
            )
        })
    }

    /// What the operator has to do then.
    #[must_use]
    pub fn remedy(&self) -> String {
        format!(
            "sysctl -w net.ipv4.ipfrag_high_thresh={WANTED_BYTES}, and for good: \
             echo net.ipv4.ipfrag_high_thresh={WANTED_BYTES} > /etc/sysctl.d/91-chappe.conf"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_is_said_with_the_remedy() {
        let little = FragmentMemory {
            limit_bytes: 4 << 20,
        };
        assert!(little.complaint().unwrap().contains("4096 KiB"));
        assert!(little.remedy().contains("ipfrag_high_thresh=134217728"));
        let enough = FragmentMemory {
            limit_bytes: WANTED_BYTES,
        };
        assert_eq!(enough.complaint(), None);
        if cfg!(target_os = "linux") {
            assert!(FragmentMemory::read().is_some_and(|it| it.limit_bytes > 0));
        }
    }
}

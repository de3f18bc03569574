//! Checks the memory of the operating system for reassembling datagrams.
//!
//! A datagram larger than a frame travels in fragments. If one of them is lost, the others stay for half a
//! minute in a memory of 4 MiB on most systems (`net.ipv4.ipfrag_high_thresh`). Once that is full, fragments of
//! complete datagrams are dropped, and a reliable sender repeats them. At 25 MB/s and 1 % frame loss it is full
//! after three seconds (measured, `docs/reference/dds.md`).

/// The recommended size: half a minute of incomplete datagrams of ten frames, at 25 MB/s and 1 % frame loss.
const WANTED_BYTES: u64 = 128 << 20;
const LIMIT: &str = "/proc/sys/net/ipv4/ipfrag_high_thresh";

/// The memory for fragments of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentMemory {
    /// `net.ipv4.ipfrag_high_thresh`, of this network namespace.
    pub limit_bytes: u64,
}

impl FragmentMemory {
    /// Reads the limit; `None` if the system does not report it.
    #[must_use]
    pub fn read() -> Option<Self> {
        let text = std::fs::read_to_string(LIMIT).ok()?;
        let limit_bytes = text.trim().parse().ok()?;
        Some(Self { limit_bytes })
    }

    /// The problem, if it is too small for a network that loses frames.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (have, wanted) = (self.limit_bytes >> 10, WANTED_BYTES >> 10);
        (self.limit_bytes < WANTED_BYTES).then(|| {
            format!(
                "the system keeps {have} KiB of fragments, {wanted} KiB are recommended: on a network \
                 that loses frames, complete datagrams larger than a frame are dropped, too"
            )
        })
    }

    /// The remedy for the operator.
    #[must_use]
    pub fn remedy(&self) -> String {
        format!(
            "sysctl -w net.ipv4.ipfrag_high_thresh={WANTED_BYTES}, and permanently: \
             echo net.ipv4.ipfrag_high_thresh={WANTED_BYTES} > /etc/sysctl.d/91-chappe.conf"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_is_reported_with_the_remedy() {
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

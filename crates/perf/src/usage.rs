//! The resource usage of this process.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Processor time and when it was read, to be compared with later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    at_ns: u64,
    processor_s: f64,
}

impl Usage {
    pub(super) fn now() -> Self {
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        Self {
            at_ns: chappe_transport::monotonic_ns(),
            processor_s: usage.map_or(0.0, |it| {
                seconds(it.user_time()) + seconds(it.system_time())
            }),
        }
    }

    /// Percent of one processor since the last call.
    pub(super) fn percent(&mut self) -> f64 {
        let now = Self::now();
        let seconds = now.at_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        let percent = (now.processor_s - self.processor_s) / seconds.max(1e-9) * 100.0;
        *self = now;
        percent
    }
}

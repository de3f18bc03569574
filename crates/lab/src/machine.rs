//! The machine on which a figure was measured.

use serde::Serialize;

/// The machine and the commit of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel.
    pub kernel: String,
    /// Mean number of runnable threads in the previous minute: if it exceeds the number of
    /// processors, other programs disturbed the run.
    pub load: f64,
}

impl Machine {
    /// This machine, as described in /proc.
    #[must_use]
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split(':').nth(1))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kibibytes: u64 = memory
            .split(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap_or(0);
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|first| first.parse().ok())
                .unwrap_or(0.0),
        }
    }
}

/// The commit of the checkout in which the program runs, if any.
pub(crate) fn commit() -> Option<String> {
    let output = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

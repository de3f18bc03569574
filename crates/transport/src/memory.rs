//! The memory of this process, as reported by the operating system.

/// Resident bytes of this process; 0 if the system does not report them.
#[must_use]
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_running_process_has_resident_memory() {
        assert!(super::resident_bytes() > 0);
    }
}

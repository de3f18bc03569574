//! Detects new states of a metric (11073-10207, StateVersion).
//!
//! States arrive in reports and in the answer to GetMdib. A report sent before the answer may arrive after it, so
//! both have their own marks: a state in a report is new unless that report or a later one arrived before, or
//! the answer contained this very state.

/// The versions of one metric's state that have arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateVersions {
    /// The newest version in a report.
    reported: Option<u64>,
    /// The version of the last answer with a new state.
    read: Option<u64>,
}

/// The freshness of a state in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateFreshness {
    /// It is new; this many states before it were missed.
    New { missed: u64 },
    /// It arrived before.
    Repeated,
}

impl StateVersions {
    /// Notes a state in a report.
    pub(super) fn report(&mut self, version: u64) -> StateFreshness {
        let newest = match self.reported {
            Some(reported) if version <= reported => return StateFreshness::Repeated,
            Some(reported) => Some(reported),
            // Reports follow the answer without a gap, or started before it.
            None => self.read.filter(|read| *read < version),
        };
        let between = newest.map_or(0, |newest| version - newest - 1);
        let is_read = |read: &u64| newest.is_some_and(|newest| newest < *read) && *read < version;
        let read_between = u64::from(self.read.as_ref().is_some_and(is_read));
        self.reported = Some(version);
        if self.read == Some(version) {
            return StateFreshness::Repeated;
        }
        StateFreshness::New {
            missed: between.saturating_sub(read_between),
        }
    }

    /// Notes a state in an answer. Returns whether it is new.
    pub(super) fn read(&mut self, version: u64) -> bool {
        let newest = self.reported.max(self.read);
        if newest.is_some_and(|newest| version <= newest) {
            return false;
        }
        if self.read.is_some() {
            self.reported = newest;
        }
        self.read = Some(version);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: StateFreshness = StateFreshness::New { missed: 0 };

    #[test]
    fn a_state_is_new_once_in_reports_and_answers() {
        let mut versions = StateVersions::default();
        assert!(versions.read(7));
        // Sent before the answer, arrived after it.
        let late = [5, 6, 7, 8, 8, 6].map(|version| versions.report(version));
        let repeated = StateFreshness::Repeated;
        assert_eq!(late, [NEW, NEW, repeated, NEW, repeated, repeated]);
        assert!(!versions.read(8) && !versions.read(3));
    }

    #[test]
    fn missed_states_are_counted_once() {
        let mut versions = StateVersions::default();
        assert_eq!(versions.report(50), NEW, "the first one has no predecessor");
        assert_eq!(versions.report(53), StateFreshness::New { missed: 2 });
        // 54 to 59 were missed, except the one in the answer.
        assert!(versions.read(57));
        assert_eq!(versions.report(60), StateFreshness::New { missed: 5 });
        assert_eq!(versions.report(61), NEW);
        let mut versions = StateVersions::default();
        assert!(versions.read(3));
        assert_eq!(versions.report(5), StateFreshness::New { missed: 1 });
    }
}

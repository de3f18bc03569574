//! Which states of a metric are new (11073-10207, StateVersion).
//!
//! States arrive in reports and in the answer to GetMdib. A report that was sent before the answer
//! may arrive after it, so both have marks of their own: a state of a report is new unless that
//! report or a later one came before, or the answer held this very state.

/// The versions of one metric's state that have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateVersions {
    /// The newest that a report held.
    reported: Option<u64>,
    /// That of the last answer which held a new one.
    read: Option<u64>,
}

/// What a state of a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// It is new; so many states before it never came.
    New { missed: u64 },
    /// It has come before.
    Repeated,
}

impl StateVersions {
    /// Takes a state of a report.
    pub(super) fn report(&mut self, version: u64) -> Judged {
        let newest = match self.reported {
            Some(reported) if version <= reported => return Judged::Repeated,
            Some(reported) => Some(reported),
            // Reports follow the answer without a gap, or began before it.
            None => self.read.filter(|read| *read < version),
        };
        let between = newest.map_or(0, |newest| version - newest - 1);
        let is_read = |read: &u64| newest.is_some_and(|newest| newest < *read) && *read < version;
        let read_between = u64::from(self.read.as_ref().is_some_and(is_read));
        self.reported = Some(version);
        if self.read == Some(version) {
            return Judged::Repeated;
        }
        Judged::New {
            missed: between.saturating_sub(read_between),
        }
    }

    /// Takes a state of an answer; says whether it is new.
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

    const NEW: Judged = Judged::New { missed: 0 };

    #[test]
    fn a_state_is_new_once_whichever_way_it_comes() {
        let mut versions = StateVersions::default();
        assert!(versions.read(7));
        // Sent before the answer, arrived after it.
        let late = [5, 6, 7, 8, 8, 6].map(|version| versions.report(version));
        let repeated = Judged::Repeated;
        assert_eq!(late, [NEW, NEW, repeated, NEW, repeated, repeated]);
        assert!(!versions.read(8) && !versions.read(3));
    }

    #[test]
    fn states_that_never_came_are_counted_once() {
        let mut versions = StateVersions::default();
        assert_eq!(versions.report(50), NEW, "the first one follows nothing");
        assert_eq!(versions.report(53), Judged::New { missed: 2 });
        // 54 to 59 were missed, but for the one that the answer held.
        assert!(versions.read(57));
        assert_eq!(versions.report(60), Judged::New { missed: 5 });
        assert_eq!(versions.report(61), NEW);
        let mut versions = StateVersions::default();
        assert!(versions.read(3));
        assert_eq!(versions.report(5), Judged::New { missed: 1 });
    }
}

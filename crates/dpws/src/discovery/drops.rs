//! Why a message is dropped, and how often that happened.

use std::time::Duration;

use chappe_machine::Instant;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $reason:ident => $label:literal,)+) => {
        /// Why an arrived message was dropped. Each dropped message has exactly one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])+ $reason,)+ }

        impl DropReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$reason,)+];

            /// The reason as a metric label and in JSON.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$reason => $label,)+ }
            }
        }
    };
}

drop_reasons! {
    /// More bytes than an envelope, or what a device says of itself, may have.
    TooLarge => "too_large",
    /// Not XML, or no SOAP 1.2 envelope with an action.
    Malformed => "malformed",
    /// A discovery message that lacks what the specification demands, or is beyond a limit.
    Invalid => "invalid",
    /// A SOAP message that is none of discovery.
    NotDiscovery => "not_discovery",
    /// A header that must be understood and is not.
    NotUnderstood => "not_understood",
    /// A repeat of a message that was seen.
    Duplicate => "duplicate",
    /// One's own message, looped back.
    Own => "own",
    /// A message for the other role: a Probe at a client, a Hello at a target service.
    OtherRole => "other_role",
    /// A question in a dialect that is not answered here.
    OtherDialect => "other_dialect",
    /// A Probe that does not describe this target service.
    NoMatch => "no_match",
    /// A Probe with a match rule that is not known here.
    UnknownMatchRule => "unknown_match_rule",
    /// A Resolve for another endpoint.
    OtherEndpoint => "other_endpoint",
    /// The machine is not started, or is stopped.
    NotStarted => "not_started",
    /// It came by an interface that is not configured.
    OtherInterface => "other_interface",
    /// An answer is wanted at another address than the one it came from.
    ReplyElsewhere => "reply_elsewhere",
    /// The answer would be too many times larger than the question.
    Amplification => "amplification",
    /// More messages from there than the rate allows.
    RateLimited => "rate_limited",
    /// As many answers wait to be sent as may.
    QueueFull => "queue_full",
    /// An answer to no question that is open.
    Unrelated => "unrelated",
    /// Older than what the same sender said before (AppSequence).
    Stale => "stale",
    /// None of the transport addresses may be contacted.
    AddressRefused => "address_refused",
    /// The table is full of devices that are confirmed.
    TableFull => "table_full",
    /// As many target services are remembered from that address as may be, all confirmed.
    SourceFull => "source_full",
    /// The Hello of a discovery proxy: managed mode is not spoken.
    DiscoveryProxy => "discovery_proxy",
    /// A fault in answer to a question.
    Fault => "fault",
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}

/// How many messages were dropped, by reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropCounts {
    counts: [u64; DropReason::ALL.len()],
}

impl Default for DropCounts {
    fn default() -> Self {
        Self {
            counts: [0; DropReason::ALL.len()],
        }
    }
}

impl DropCounts {
    pub(crate) fn add(&mut self, reason: DropReason) {
        self.counts[reason as usize] += 1;
    }

    /// How many for this reason.
    #[must_use]
    pub fn count(&self, reason: DropReason) -> u64 {
        self.counts[reason as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.count(*reason)))
    }

    /// How many in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Lets one report for each reason pass in each [`REPORT_PERIOD`], and counts the rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reports {
    last: [Option<Instant>; DropReason::ALL.len()],
    suppressed: [u64; DropReason::ALL.len()],
}

/// Least time between two reports for the same reason, one second: a flood must not become a flood
/// of events, and a person reads no faster.
pub const REPORT_PERIOD: Duration = Duration::from_secs(1);

impl Reports {
    /// `Some(how many were held back since the last report)` when a report may pass.
    pub(crate) fn pass(&mut self, now: Instant, reason: DropReason) -> Option<u64> {
        let index = reason as usize;
        if self.last[index].is_some_and(|last| now.saturating_since(last) < REPORT_PERIOD) {
            self.suppressed[index] += 1;
            return None;
        }
        self.last[index] = Some(now);
        Some(std::mem::take(&mut self.suppressed[index]))
    }

    /// When the next count that was held back may be reported.
    pub(crate) fn next(&self) -> Option<Instant> {
        let held = self.suppressed.iter().zip(self.last);
        let held = held.filter(|(suppressed, _)| **suppressed > 0);
        held.filter_map(|(_, last)| Some(last? + REPORT_PERIOD))
            .min()
    }

    /// A count that was held back long enough.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(DropReason, u64)> {
        let due = |reason: &&DropReason| {
            let index = **reason as usize;
            let last = self.last[index];
            let over = last.is_some_and(|last| now.saturating_since(last) >= REPORT_PERIOD);
            over && self.suppressed[index] > 0
        };
        let reason = *DropReason::ALL.iter().find(due)?;
        Some((reason, self.pass(now, reason)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_limited_for_each_reason_and_lose_no_count() {
        let mut reports = Reports::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(reports.pass(at(0), DropReason::Malformed), Some(0));
        assert_eq!(reports.pass(at(0), DropReason::Stale), Some(0));
        assert_eq!(reports.pass(at(1), DropReason::Malformed), None);
        assert_eq!(reports.pass(at(999), DropReason::Malformed), None);
        assert_eq!(reports.next(), Some(at(1_000)));
        assert_eq!(reports.due(at(999)), None);
        assert_eq!(reports.due(at(1_000)), Some((DropReason::Malformed, 2)));
        assert_eq!((reports.next(), reports.due(at(9_000))), (None, None));
        assert_eq!(reports.pass(at(9_000), DropReason::Malformed), Some(0));
    }

    #[test]
    fn labels_are_unique() {
        let labels: std::collections::BTreeSet<_> = DropReason::ALL
            .iter()
            .map(|reason| reason.label())
            .collect();
        assert_eq!(labels.len(), DropReason::ALL.len());
    }
}

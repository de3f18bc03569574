//! Reasons for dropping messages, with counters.

use std::time::Duration;

use chappe_machine::Instant;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $reason:ident => $label:literal,)+) => {
        /// The reason why a received message was dropped. Each dropped message has exactly one reason.
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
    /// The envelope or the description exceeds its size limit.
    TooLarge => "too_large",
    /// Not XML, or not a SOAP 1.2 envelope with an action.
    Malformed => "malformed",
    /// A discovery message that violates the specification or exceeds a limit.
    Invalid => "invalid",
    /// A SOAP message other than discovery.
    NotDiscovery => "not_discovery",
    /// A mandatory header (mustUnderstand) is not understood.
    NotUnderstood => "not_understood",
    /// A repeat of an earlier message.
    Duplicate => "duplicate",
    /// The machine's own message, looped back.
    Own => "own",
    /// A message for the other role: a Probe at a client, a Hello at a target service.
    OtherRole => "other_role",
    /// A request in an unsupported dialect.
    OtherDialect => "other_dialect",
    /// A Probe that does not describe this target service.
    NoMatch => "no_match",
    /// A Probe with an unknown match rule.
    UnknownMatchRule => "unknown_match_rule",
    /// A Resolve for another endpoint.
    OtherEndpoint => "other_endpoint",
    /// The machine is not running.
    NotStarted => "not_started",
    /// The receiving interface is not configured.
    OtherInterface => "other_interface",
    /// ReplyTo names another address than the sender's.
    ReplyElsewhere => "reply_elsewhere",
    /// The answer exceeds the permitted multiple of the request's size.
    Amplification => "amplification",
    /// The sender exceeds its rate.
    RateLimited => "rate_limited",
    /// The send queue is full.
    QueueFull => "queue_full",
    /// An answer without a pending request.
    Unrelated => "unrelated",
    /// Older than an earlier message of the same sender (AppSequence).
    Stale => "stale",
    /// The policy refuses every transport address.
    AddressRefused => "address_refused",
    /// All entries of the table are confirmed.
    TableFull => "table_full",
    /// The sender has reached its limit of target services, all of them confirmed.
    SourceFull => "source_full",
    /// One discovery proxy more than the limit.
    DiscoveryProxy => "discovery_proxy",
    /// A claim about a target service that another sender registered.
    HeldByOther => "held_by_other",
    /// A fault in answer to a request.
    Fault => "fault",
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}

/// Dropped messages, counted by reason.
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

    /// The count for this reason.
    #[must_use]
    pub fn count(&self, reason: DropReason) -> u64 {
        self.counts[reason as usize]
    }

    /// Every reason and its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.count(*reason)))
    }

    /// The sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Admits one report per reason and [`REPORT_PERIOD`], and counts the suppressed ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReportLimiter {
    last: [Option<Instant>; DropReason::ALL.len()],
    suppressed: [u64; DropReason::ALL.len()],
}

/// Minimum time between two reports for the same reason. Reason: a flood of messages must not become
/// a flood of events.
pub const REPORT_PERIOD: Duration = Duration::from_secs(1);

impl ReportLimiter {
    /// Admits a report and returns the number suppressed since the last one; `None` suppresses it.
    pub(crate) fn pass(&mut self, now: Instant, reason: DropReason) -> Option<u64> {
        let index = reason as usize;
        if self.last[index].is_some_and(|last| now.saturating_since(last) < REPORT_PERIOD) {
            self.suppressed[index] += 1;
            return None;
        }
        self.last[index] = Some(now);
        Some(std::mem::take(&mut self.suppressed[index]))
    }

    /// When the next suppressed report is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let suppressed_with_last = self.suppressed.iter().zip(self.last);
        let suppressed_with_last = suppressed_with_last.filter(|(suppressed, _)| **suppressed > 0);
        suppressed_with_last
            .filter_map(|(_, last)| Some(last? + REPORT_PERIOD))
            .min()
    }

    /// The next due report, with its count.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(DropReason, u64)> {
        let due = |reason: &&DropReason| {
            let index = **reason as usize;
            let last = self.last[index];
            let period_passed =
                last.is_some_and(|last| now.saturating_since(last) >= REPORT_PERIOD);
            period_passed && self.suppressed[index] > 0
        };
        let reason = *DropReason::ALL.iter().find(due)?;
        Some((reason, self.pass(now, reason)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_limit_keeps_counts() {
        let mut reports = ReportLimiter::default();
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

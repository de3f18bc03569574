//! Time that a node waits for an answer before a retransmission.

use core::time::Duration;

/// The wait after the given attempt, doubled from the third one on: `timeout` at least, `most` at most.
///
/// The first retransmission does not wait longer: one more datagram fills no network, and with 5 % loss one of
/// ten messages needs it.
pub(super) fn retry_wait(attempt: u8, timeout: Duration, most: Duration) -> Duration {
    let doublings = u32::from(attempt).saturating_sub(2).min(16);
    (timeout * (1 << doublings)).min(most).max(timeout)
}

/// The wait of a source for a single sink, until it sends the next message or, after the last one, calls the
/// sink failed; `later` messages are still to come.
///
/// `usual` follows from round trips, which are too short for a sink that stalls: the last wait is at least
/// `patience`, and each before it a quarter of the next, so that the messages are spread over times of every
/// size. After late answers `usual` is too long: each message but the last gets at most its share of the time
/// that is `left`, so that all are sent. A sink without the last wait is unknown instead of failed.
pub(super) fn source_wait(
    usual: Duration,
    patience: Duration,
    later: u8,
    left: Duration,
) -> Duration {
    let wait = usual.max(patience / 4u32.saturating_pow(u32::from(later)));
    match later {
        0 => wait,
        _ => wait.min(left / (u32::from(later) + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_double_from_the_third_attempt_on() {
        let waits = [1, 2, 3, 4, 5].map(|attempt| retry_wait(attempt, MS, 5 * MS));
        assert_eq!(waits, [MS, MS, 2 * MS, 4 * MS, 5 * MS]);
        assert_eq!(retry_wait(9, 2 * MS, MS), 2 * MS);
    }

    #[test]
    fn a_source_spreads_its_messages_over_its_patience() {
        let wait = |later| source_wait(MS, 64 * MS, later, 1_000 * MS);
        assert_eq!(
            [5, 3, 2, 1, 0].map(wait),
            [MS, MS, 4 * MS, 16 * MS, 64 * MS]
        );
        // Every message is sent in the time that is left.
        assert_eq!(source_wait(50 * MS, MS, 4, 100 * MS), 20 * MS);
        assert_eq!(source_wait(50 * MS, MS, 0, Duration::ZERO), 50 * MS);
    }
}

//! Notices of the HTTP certificate's expiry: 30 days before, 7 days before, and after.

use std::time::Duration;

use crate::clock;
use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::shared::App;
use crate::tasks::shutdown;

/// Time between two checks; reason: a corrected clock is noticed within the hour.
const PERIOD: Duration = Duration::from_secs(3_600);
const DAY_S: i64 = 86_400;
/// Days before the expiry at which a notice is sent; reason: a month to plan, a week as a reminder.
const DAYS: [i64; 2] = [30, 7];

/// Checks the certificate until the node shuts down.
pub(crate) async fn watch(app: App) {
    let tls = app.identity.tls.as_ref();
    let Some(expires_s) = tls.and_then(chappe_transport::tls::Server::ends_s) else {
        return;
    };
    let Observability {
        metrics, notices, ..
    } = &*app.observability;
    metrics.certificate_ends.set(expires_s);
    let mut notified = None;
    let mut drain = app.drain.clone();
    loop {
        let stage = stage(clock::now().0.div_euclid(1_000_000_000), expires_s);
        if stage > notified {
            notified = stage;
            let text = notice(expires_s, stage);
            notices.notify(NoticeKind::Health, &app.identity.name, text);
        }
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

fn notice(expires_s: i64, stage: Option<usize>) -> String {
    let nanos = expires_s.saturating_mul(1_000_000_000);
    let at = chappe_stream::Timestamp(nanos);
    let text = match stage.and_then(|stage| DAYS.get(stage)) {
        Some(days) => format!("the certificate of http.tls expires within {days} days, at {at}"),
        None => format!("the certificate of http.tls expired at {at}"),
    };
    format!("{text}: replace the file and restart the node")
}

/// The stage of expiry: an index of [`DAYS`], or their number once the certificate has expired.
fn stage(now_s: i64, expires_s: i64) -> Option<usize> {
    let left = expires_s.saturating_sub(now_s);
    if left <= 0 {
        return Some(DAYS.len());
    }
    DAYS.iter().rposition(|days| left <= days * DAY_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_of_expiry_follow_in_order() {
        let expires = 1_000 * DAY_S;
        let at = |days_left: i64| stage(expires - days_left * DAY_S, expires);
        assert_eq!(
            [at(400), at(31), at(30), at(8)],
            [None, None, Some(0), Some(0)]
        );
        assert_eq!(
            [at(7), at(1), at(0), at(-9)],
            [Some(1), Some(1), Some(2), Some(2)]
        );
        assert_eq!(stage(i64::MAX, i64::MIN), Some(2));
    }
}

//! Notices before the certificate of the HTTP interface expires, 30 days and 7 days, and when it has.

use std::time::Duration;

use crate::clock;
use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::shared::App;
use crate::tasks::ended;

/// Pause between two looks; reason: a clock that is corrected is noticed within the hour.
const PERIOD: Duration = Duration::from_secs(3_600);
const DAY_S: i64 = 86_400;
/// Days before its expiry on which a notice is given; reason: a month to get a new one, a week to hurry.
const DAYS: [i64; 2] = [30, 7];

/// Looks at the certificate until the node ends.
pub(crate) async fn watch(app: App) {
    let tls = app.identity.tls.as_ref();
    let Some(ends_s) = tls.and_then(chappe_transport::tls::Server::ends_s) else {
        return;
    };
    let Observability {
        metrics, notices, ..
    } = &*app.observability;
    metrics.certificate_ends.set(ends_s);
    let mut told = None;
    let mut drain = app.drain.clone();
    loop {
        let stage = stage(clock::now().0.div_euclid(1_000_000_000), ends_s);
        if stage > told {
            told = stage;
            let text = notice(ends_s, stage);
            notices.tell(NoticeKind::Health, &app.identity.name, text);
        }
        tokio::select! {
            () = ended(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

fn notice(ends_s: i64, stage: Option<usize>) -> String {
    let nanos = ends_s.saturating_mul(1_000_000_000);
    let at = clock::rfc3339(chappe_stream::Timestamp(nanos));
    let text = match stage.and_then(|stage| DAYS.get(stage)) {
        Some(days) => format!("the certificate of http.tls expires within {days} days, at {at}"),
        None => format!("the certificate of http.tls has expired, at {at}"),
    };
    format!("{text}: put a new one into its file and restart the node")
}

/// The stage of expiry: an index of [`DAYS`], or their number when the certificate has expired.
fn stage(now_s: i64, ends_s: i64) -> Option<usize> {
    let left = ends_s.saturating_sub(now_s);
    if left <= 0 {
        return Some(DAYS.len());
    }
    DAYS.iter().rposition(|days| left <= days * DAY_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_comes_nearer_in_stages() {
        let ends = 1_000 * DAY_S;
        let of = |days: i64| stage(ends - days * DAY_S, ends);
        assert_eq!(
            [of(400), of(31), of(30), of(8)],
            [None, None, Some(0), Some(0)]
        );
        assert_eq!(
            [of(7), of(1), of(0), of(-9)],
            [Some(1), Some(1), Some(2), Some(2)]
        );
        assert_eq!(stage(i64::MAX, i64::MIN), Some(2));
    }
}

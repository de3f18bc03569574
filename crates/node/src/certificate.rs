//! A certificate that ends is told of before it does: 30 days and 7 days before, and when it is over.

use std::time::Duration;

use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::{App, ended};

/// How often is looked; reason: a clock that is set right is noticed within the hour.
const PERIOD: Duration = Duration::from_secs(3_600);
const DAY_S: i64 = 86_400;
/// Days before its end on which it is told of; reason: a month to get a new one, a week to hurry.
const DAYS: [i64; 2] = [30, 7];

/// Looks at the certificate until the node ends.
pub(crate) async fn watch(app: App) {
    let ends = app
        .tls
        .as_ref()
        .and_then(chappe_transport::tls::Server::ends_s);
    let Some(ends) = ends else {
        return;
    };
    app.metrics.certificate_ends.set(ends);
    let mut told = None;
    let mut drain = app.drain.clone();
    loop {
        let stage = stage(clock::now().0.div_euclid(1_000_000_000), ends);
        if stage > told {
            told = stage;
            tell(&app, ends, stage);
        }
        tokio::select! {
            () = ended(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

fn tell(app: &App, ends: i64, stage: Option<usize>) {
    let at = clock::rfc3339(chappe_stream::Timestamp(ends.saturating_mul(1_000_000_000)));
    let text = match stage.and_then(|stage| DAYS.get(stage)) {
        Some(days) => format!("the certificate of http.tls ends within {days} days, at {at}"),
        None => format!("the certificate of http.tls has ended, at {at}"),
    };
    let hint = "put a new one into its file and start the node anew";
    app.notices
        .tell(NoticeKind::Health, &app.name, format!("{text}: {hint}"));
}

/// How near the end is: which of [`DAYS`] has come, or one more when it is over.
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

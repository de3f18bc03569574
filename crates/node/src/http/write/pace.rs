//! The rate at which a body must arrive, so that slow requests do not hold what others need.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::{Instant, timeout};

use super::super::problem::{Problem, code};
use crate::shared::App;

/// How far a body is behind the slowest rate.
#[derive(Debug)]
pub(in crate::http) struct Pace {
    /// `http.request_timeout_ms`: the longest time between two pieces, and behind the rate.
    patience: Duration,
    /// `limits.write_min_bytes_per_s`; 0: no minimum.
    bytes_per_s: u32,
    /// Time waited for the body, less the time that its bytes may take. Bytes that arrived early do not count
    /// for later.
    behind: Duration,
}

impl Pace {
    pub(in crate::http) fn new(app: &App) -> Self {
        Self {
            patience: Duration::from_millis(u64::from(app.config.http.request_timeout_ms)),
            bytes_per_s: app.config.limits.write_min_bytes_per_s,
            behind: Duration::ZERO,
        }
    }

    /// Waits for the next piece.
    ///
    /// # Errors
    /// It did not arrive in time.
    pub(in crate::http) async fn wait<T>(
        &mut self,
        next: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        let from = Instant::now();
        let piece = timeout(self.left(), next).await;
        self.behind += from.elapsed();
        piece.map_err(|_| self.late())
    }

    /// Time in which the next piece must arrive.
    fn left(&self) -> Duration {
        match self.bytes_per_s {
            0 => self.patience,
            _ => self.patience.saturating_sub(self.behind),
        }
    }

    /// Counts bytes of a piece.
    pub(in crate::http) fn arrived(&mut self, bytes: usize) {
        if self.bytes_per_s > 0 {
            let allowed = Duration::from_secs_f64(bytes as f64 / f64::from(self.bytes_per_s));
            self.behind = self.behind.saturating_sub(allowed);
        }
    }

    fn late(&self) -> Problem {
        let problem = |detail| Problem::new(StatusCode::REQUEST_TIMEOUT, detail);
        if self.bytes_per_s == 0 {
            return problem("the body did not arrive in time".to_owned())
                .hint("http.request_timeout_ms limits the time between two pieces");
        }
        let rate = self.bytes_per_s;
        let patience = self.patience.as_millis();
        problem(format!(
            "the body arrives at less than {rate} bytes per second, and is more than {patience} ms behind"
        ))
        .code(code::SLOW_BODY)
        .hint(
            "send elements when there are enough of them, in requests of their own; \
             limits.write_min_bytes_per_s and http.request_timeout_ms set the limits",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(bytes_per_s: u32) -> Pace {
        Pace {
            patience: Duration::from_secs(10),
            bytes_per_s,
            behind: Duration::ZERO,
        }
    }

    /// Sends a byte after each pause; returns how many arrived before the body was ended.
    fn arrived(mut pace: Pace, pause: Duration, most: usize) -> usize {
        for number in 0..most {
            if pause > pace.left() {
                return number;
            }
            pace.behind += pause;
            pace.arrived(1);
        }
        most
    }

    #[test]
    fn a_body_below_the_rate_is_ended_and_one_above_it_is_not() {
        let second = Duration::from_secs(1);
        // A tenth of a second is allowed for each byte.
        assert_eq!(arrived(pace(10), second, 1_000), 11);
        assert_eq!(arrived(pace(10), second / 10, 1_000), 1_000);
        assert_eq!(arrived(pace(0), second * 9, 100), 100);
        assert_eq!(arrived(pace(0), second * 11, 100), 0);
    }

    #[test]
    fn a_fast_start_gives_no_credit() {
        let mut pace = pace(10);
        pace.arrived(1 << 20);
        assert_eq!(pace.left(), pace.patience);
        let late = pace.late();
        assert_eq!((late.status, late.code), (408, code::SLOW_BODY));
    }
}

//! The order of the calls of a reader: the next range of time, and which rows of an answer are new.

use std::collections::{BTreeSet, VecDeque};

use super::read::Row;
use crate::exchange::Progress;

/// Rows without a readable time that are recognized when they are repeated.
const RECENT_MAX: usize = 64;
/// How far the clocks of the server and of this node may differ. An empty range that ends later may still be filled.
const CLOCKS_MS: i64 = 300_000;
/// Rows that are further ahead of the clock than that; reason: each is remembered until the clock gets there.
const AHEAD_MAX: usize = 4_096;

/// A range of time to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Its start in milliseconds since 1970. Servers may include it or not.
    pub from_ms: i64,
    /// Its end; `None`: whatever the server has.
    pub to_ms: Option<i64>,
}

/// How far a sensor was read.
///
/// Each range starts one millisecond before the newest element, because other elements of that millisecond may be
/// missing. An answer that is too long is asked for again in halves. A row whose time is far ahead of the clock does
/// not count as how far the sensor was read: the rows before it would never be asked for.
#[derive(Debug)]
pub struct Pull {
    progress: Progress,
    start_ms: i64,
    /// The end of the last range that was read completely.
    reached_ms: i64,
    window_ms: Option<i64>,
    recent: VecDeque<u64>,
    /// Times and contents of the rows that are ahead of the clock.
    ahead: BTreeSet<(i64, u64)>,
}

impl Pull {
    /// Continues after `progress`, or begins at `start_ms`.
    #[must_use]
    pub fn new(progress: Progress, start_ms: i64) -> Self {
        Self {
            progress,
            start_ms,
            reached_ms: i64::MIN,
            window_ms: None,
            recent: VecDeque::new(),
            ahead: BTreeSet::new(),
        }
    }

    /// The elements that were taken from answers so far.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The next range, at this time of the clock.
    #[must_use]
    pub fn next(&self, now_ms: i64) -> Asked {
        let known = self.progress.newest_ms.unwrap_or(i64::MIN);
        let from_ms = known.max(self.reached_ms).saturating_sub(1);
        let from_ms = from_ms.max(self.start_ms);
        let to_ms = self.window_ms.map(|window| from_ms.saturating_add(window));
        Asked {
            from_ms,
            to_ms: to_ms.filter(|to| *to < now_ms),
        }
    }

    /// The answer was too long. Returns whether a shorter range is possible.
    pub fn too_long(&mut self, asked: Asked, now_ms: i64) -> bool {
        let end = asked.to_ms.unwrap_or(now_ms);
        let width = end.saturating_sub(asked.from_ms);
        self.window_ms = Some((width / 2).max(2));
        width > 2
    }

    /// All rows of the answer were taken.
    pub fn answered(&mut self, asked: Asked, now_ms: i64) {
        if let Some(to) = asked.to_ms {
            if to <= now_ms.saturating_sub(CLOCKS_MS) {
                self.reached_ms = to;
            }
            self.window_ms = self.window_ms.map(|window| window.saturating_mul(2));
        }
    }

    /// Whether a row was not taken before, at this time of the clock; it counts as taken now.
    ///
    /// # Errors
    /// More than 4,096 rows are ahead of the clock.
    pub fn take(&mut self, row: &Row, now_ms: i64) -> Result<bool, AheadOfClock> {
        let Some(timed_ms) = row.timed_ms else {
            let is_new = !self.recent.contains(&row.content);
            if is_new {
                self.recent.push_back(row.content);
                if self.recent.len() > RECENT_MAX {
                    self.recent.pop_front();
                }
            }
            return Ok(is_new);
        };
        let key = (timed_ms, row.content);
        if timed_ms > now_ms.saturating_add(CLOCKS_MS) {
            return self.take_ahead(key);
        }
        let was_ahead = self.ahead.remove(&key);
        let is_older = self
            .progress
            .newest_ms
            .is_some_and(|newest| newest > timed_ms);
        if is_older || self.progress.knows(timed_ms, row.content) {
            return Ok(false);
        }
        self.progress.add(timed_ms, row.content);
        Ok(!was_ahead)
    }

    fn take_ahead(&mut self, key: (i64, u64)) -> Result<bool, AheadOfClock> {
        if self.ahead.contains(&key) {
            return Ok(false);
        }
        if self.ahead.len() >= AHEAD_MAX {
            // Those that the server has no more.
            let newest = self.progress.newest_ms.unwrap_or(i64::MIN);
            self.ahead = self.ahead.split_off(&(newest, 0));
        }
        if self.ahead.len() >= AHEAD_MAX {
            return Err(AheadOfClock);
        }
        Ok(self.ahead.insert(key))
    }
}

/// Too many elements have times more than five minutes ahead of this node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {AHEAD_MAX} elements are dated five minutes or more ahead of this node's clock")]
pub struct AheadOfClock;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::read_answer;

    const HOUR_MS: i64 = 3_600_000;

    /// Reads a server with elements at these times, which answers at most `limit` of them.
    fn read(times: &[i64], limit: usize, is_inclusive: bool, now_ms: i64) -> (Vec<i64>, usize) {
        let mut pull = Pull::new(Progress::default(), 0);
        let (mut taken, mut calls) = (Vec::new(), 0);
        loop {
            calls += 1;
            assert!(calls < 10_000, "it comes to an end");
            let asked = pull.next(now_ms);
            let end = asked.to_ms.unwrap_or(i64::MAX);
            let is_in = |time: &&i64| match is_inclusive {
                true => **time >= asked.from_ms && **time <= end,
                false => **time > asked.from_ms && **time < end,
            };
            let found: Vec<i64> = times.iter().filter(is_in).copied().collect();
            if found.len() > limit {
                assert!(pull.too_long(asked, now_ms));
                continue;
            }
            let rows: Vec<_> = found.iter().map(|time| format!("[{time},1]")).collect();
            let text = format!(
                "{{\"properties\":{{\"fields\":[{{\"name\":\"timestamp\",\"type\":\"time\"}},\
                 {{\"name\":\"x\",\"type\":\"bigint\"}}],\"values\":[{}]}}}}",
                rows.join(",")
            );
            for row in read_answer(text.as_bytes()).unwrap() {
                if pull.take(&row, now_ms).unwrap() {
                    taken.push(row.timed_ms.unwrap());
                }
            }
            pull.answered(asked, now_ms);
            if asked.to_ms.is_none() {
                return (taken, calls);
            }
        }
    }

    #[test]
    fn each_element_is_taken_once_however_a_server_treats_the_ends_of_a_range() {
        let now_ms = 1_700_000_000_000;
        let begin = now_ms - 50 * HOUR_MS;
        // Dense, then a gap of a day, then dense again.
        let times: Vec<i64> = (0..300)
            .map(|n| begin + n)
            .chain((0..300).map(|n| begin + 24 * HOUR_MS + 7 * n))
            .collect();
        for is_inclusive in [true, false] {
            let (taken, calls) = read(&times, 100, is_inclusive, now_ms);
            assert_eq!(taken, times, "{is_inclusive}");
            assert!(calls < 300, "{calls}");
            assert_eq!(read(&times, 1_000, is_inclusive, now_ms).0, times);
        }
    }

    #[test]
    fn an_empty_range_near_the_present_is_asked_for_again() {
        let now_ms = 1_700_000_000_000;
        let mut pull = Pull::new(Progress::default(), now_ms - 1_000);
        let all = pull.next(now_ms);
        assert!(pull.too_long(all, now_ms));
        let half = pull.next(now_ms);
        assert_eq!(half.to_ms, Some(now_ms - 500));
        pull.answered(half, now_ms);
        assert_eq!(pull.next(now_ms).from_ms, half.from_ms);
    }

    #[test]
    fn a_millisecond_that_is_too_long_is_reported() {
        let mut pull = Pull::new(Progress::default(), 0);
        let asked = Asked {
            from_ms: 0,
            to_ms: Some(2),
        };
        assert!(!pull.too_long(asked, 10));
    }

    #[test]
    fn rows_without_a_time_are_recognized() {
        let mut pull = Pull::new(Progress::default(), 0);
        let row = Row {
            timed_ms: None,
            content: 7,
            text: "[null]".to_owned(),
            element: Err("no time".to_owned()),
        };
        assert_eq!(pull.take(&row, 0), Ok(true));
        assert_eq!(pull.take(&row, 0), Ok(false));
    }

    #[test]
    fn a_time_ahead_of_the_clock_hides_no_later_row() {
        let row = |timed_ms| Row {
            timed_ms: Some(timed_ms),
            content: 7,
            text: String::new(),
            element: Err(String::new()),
        };
        let mut pull = Pull::new(Progress::default(), 0);
        let year_2099 = 4_070_908_800_000;
        let now_ms = 1_700_000_000_000;
        assert_eq!(pull.take(&row(year_2099), now_ms), Ok(true));
        assert_eq!(pull.take(&row(now_ms), now_ms), Ok(true));
        assert_eq!(pull.next(now_ms).from_ms, now_ms - 1);
        assert_eq!(pull.take(&row(year_2099), now_ms), Ok(false));
        // Its time comes.
        assert_eq!(pull.take(&row(year_2099), year_2099), Ok(false));
        assert_eq!(pull.next(year_2099).from_ms, year_2099 - 1);
    }

    #[test]
    fn a_server_whose_clock_is_ahead_is_reported() {
        let mut pull = Pull::new(Progress::default(), 0);
        let mut take = |timed_ms| {
            let row = Row {
                timed_ms: Some(timed_ms),
                content: 7,
                text: String::new(),
                element: Err(String::new()),
            };
            pull.take(&row, 0)
        };
        let begin = CLOCKS_MS + 1;
        assert!((0..4_096).all(|n| take(begin + n) == Ok(true)));
        assert_eq!(take(begin + 4_096), Err(AheadOfClock));
    }
}

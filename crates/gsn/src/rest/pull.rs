//! The order of the calls of a reader: the next range of time, and which rows of an answer are new.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::read::Row;
use crate::exchange::{Many, Progress, SAME_TIME_MAX};

/// Rows without a readable time that are recognized when they are repeated.
const RECENT_MAX: usize = 64;
/// How far the clocks of the server and of this node may differ. An empty range that ends later may still be filled.
const CLOCKS_MS: i64 = 300_000;
/// Rows that are further ahead of the clock than that; reason: each is remembered until the clock gets there.
const AHEAD_MAX: usize = 4_096;

/// Rows of one millisecond; reason: all of the newest one's are remembered, and an array of elements that is written
/// without times has one time.
const SAME_TIME_ROWS_MAX: u64 = 1 << 18;

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
///
/// Each answer has all rows of its milliseconds, equal ones among them. So a row of the newest millisecond is new if
/// the answer has more rows of the same content up to it than were taken. A mark has room for a few of them: of more it
/// has the number and a sum. After a restart as many rows are taken for the stored ones; if the sum of these differs,
/// nothing shows which of the others are new.
#[derive(Debug)]
pub struct Pull {
    newest: Newest,
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
            newest: Newest::resume(progress),
            start_ms,
            reached_ms: i64::MIN,
            window_ms: None,
            recent: VecDeque::new(),
            ahead: BTreeSet::new(),
        }
    }

    /// The elements that were taken from answers so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.newest.progress()
    }

    /// The next range, at this time of the clock.
    #[must_use]
    pub fn next(&self, now_ms: i64) -> Asked {
        let known = self.newest.time_ms.unwrap_or(i64::MIN);
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
        self.newest.end_answer();
        if let Some(to) = asked.to_ms {
            if to <= now_ms.saturating_sub(CLOCKS_MS) {
                self.reached_ms = to;
            }
            self.window_ms = self.window_ms.map(|window| window.saturating_mul(2));
        }
    }

    /// Takes a row of the answer, at this time of the clock.
    ///
    /// # Errors
    /// More than 4,096 rows are ahead of the clock, or more than 262,144 have one time.
    pub fn take(&mut self, row: &Row, now_ms: i64) -> Result<Taken, PullError> {
        let Some(timed_ms) = row.timed_ms else {
            let is_new = !self.recent.contains(&row.content);
            if is_new {
                self.recent.push_back(row.content);
                if self.recent.len() > RECENT_MAX {
                    self.recent.pop_front();
                }
            }
            return Ok(Taken::new_if(is_new));
        };
        let key = (timed_ms, row.content);
        if timed_ms > now_ms.saturating_add(CLOCKS_MS) {
            return self.take_ahead(key);
        }
        let was_ahead = self.ahead.remove(&key);
        match self.newest.take(timed_ms, row.content)? {
            Taken::New if was_ahead => Ok(Taken::Repeated),
            taken => Ok(taken),
        }
    }

    fn take_ahead(&mut self, key: (i64, u64)) -> Result<Taken, PullError> {
        if self.ahead.contains(&key) {
            return Ok(Taken::Repeated);
        }
        if self.ahead.len() >= AHEAD_MAX {
            // Those that the server has no more.
            let newest = self.newest.time_ms.unwrap_or(i64::MIN);
            self.ahead = self.ahead.split_off(&(newest, 0));
        }
        if self.ahead.len() >= AHEAD_MAX {
            return Err(PullError::AheadOfClock);
        }
        Ok(Taken::new_if(self.ahead.insert(key)))
    }
}

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It was not taken before; it counts as taken now.
    New,
    /// It was taken before.
    Repeated,
    /// It is among those of one millisecond of which some were stored before a restart, and nothing shows which. So
    /// many were not stored.
    Unclear,
}

impl Taken {
    fn new_if(is_new: bool) -> Self {
        if is_new { Self::New } else { Self::Repeated }
    }
}

/// The rows of the newest millisecond.
#[derive(Debug, Default)]
struct Newest {
    time_ms: Option<i64>,
    /// How often each content was taken, and how often the answer had it so far.
    taken: HashMap<u64, (u32, u32)>,
    total: Many,
    /// What is known after a restart, if the rows were too many for a mark.
    resumed: Option<Many>,
}

impl Newest {
    fn resume(progress: Progress) -> Self {
        let mut newest = Self {
            time_ms: progress.newest_ms,
            resumed: progress.many,
            ..Self::default()
        };
        for content in progress.same_time {
            newest.taken.entry(content).or_default().0 += 1;
            newest.total.add(content);
        }
        newest
    }

    fn progress(&self) -> Progress {
        let all = self.resumed.unwrap_or(self.total);
        let is_many = all.count > SAME_TIME_MAX as u64;
        let each = self.taken.iter().filter(|_| !is_many);
        let repeated =
            each.flat_map(|(content, (count, _))| std::iter::repeat_n(*content, *count as usize));
        let mut same_time: Vec<u64> = repeated.collect();
        same_time.sort_unstable();
        Progress {
            newest_ms: self.time_ms,
            same_time,
            many: is_many.then_some(all),
        }
    }

    fn take(&mut self, time_ms: i64, content: u64) -> Result<Taken, PullError> {
        match self.time_ms {
            Some(newest) if newest > time_ms => return Ok(Taken::Repeated),
            Some(newest) if newest == time_ms => {}
            _ => {
                *self = Self {
                    time_ms: Some(time_ms),
                    ..Self::default()
                }
            }
        }
        if let Some(stored) = self.resumed
            && self.total.count < stored.count
        {
            let (taken, found) = self.taken.entry(content).or_default();
            (*taken, *found) = (*taken + 1, *found + 1);
            self.total.add(content);
            if self.total == stored {
                self.resumed = None;
            }
            return Ok(Taken::Repeated);
        }
        let (taken, found) = self.taken.entry(content).or_default();
        *found += 1;
        if *found <= *taken {
            return Ok(Taken::Repeated);
        }
        if self.total.count >= SAME_TIME_ROWS_MAX {
            return Err(PullError::SameTime);
        }
        *taken += 1;
        self.total.add(content);
        match self.resumed {
            Some(_) => Ok(Taken::Unclear),
            None => Ok(Taken::New),
        }
    }

    /// The next row is of another answer.
    fn end_answer(&mut self) {
        match self.resumed {
            // It has none of them, or a part.
            Some(stored) if self.total.count < stored.count => {
                (self.taken, self.total) = Default::default();
            }
            _ => self.resumed = None,
        }
        for (_, found) in self.taken.values_mut() {
            *found = 0;
        }
    }
}

/// Why a sensor cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// Too many elements have times more than five minutes ahead of this node's clock.
    #[error(
        "more than {AHEAD_MAX} elements are dated five minutes or more ahead of this node's clock"
    )]
    AheadOfClock,
    /// Too many elements have the same time.
    #[error("more than {SAME_TIME_ROWS_MAX} elements have the same time in milliseconds")]
    SameTime,
}

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
                if pull.take(&row, now_ms).unwrap() == Taken::New {
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
        assert_eq!(pull.take(&row, 0), Ok(Taken::New));
        assert_eq!(pull.take(&row, 0), Ok(Taken::Repeated));
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
        assert_eq!(pull.take(&row(year_2099), now_ms), Ok(Taken::New));
        assert_eq!(pull.take(&row(now_ms), now_ms), Ok(Taken::New));
        assert_eq!(pull.next(now_ms).from_ms, now_ms - 1);
        assert_eq!(pull.take(&row(year_2099), now_ms), Ok(Taken::Repeated));
        // Its time comes.
        assert_eq!(pull.take(&row(year_2099), year_2099), Ok(Taken::Repeated));
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
        assert!((0..4_096).all(|n| take(begin + n) == Ok(Taken::New)));
        assert_eq!(take(begin + 4_096), Err(PullError::AheadOfClock));
    }

    /// Takes an answer of rows with these contents in one millisecond; returns what was new, and how many were unclear.
    fn answer(pull: &mut Pull, contents: &[u64]) -> (Vec<u64>, usize) {
        let asked = pull.next(100);
        let (mut new, mut unclear) = (Vec::new(), 0);
        for content in contents {
            let row = Row {
                timed_ms: Some(5),
                content: *content,
                text: String::new(),
                element: Err(String::new()),
            };
            match pull.take(&row, 100).unwrap() {
                Taken::New => new.push(*content),
                Taken::Repeated => {}
                Taken::Unclear => unclear += 1,
            }
        }
        pull.answered(asked, 100);
        (new, unclear)
    }

    #[test]
    fn any_number_of_rows_of_one_millisecond_is_taken_once_through_restarts() {
        for count in [1, 64, 65, 10_000] {
            let rows: Vec<u64> = (1..=count).collect();
            let more: Vec<u64> = (1..=count + 3).collect();
            let mut pull = Pull::new(Progress::default(), 0);
            assert_eq!(answer(&mut pull, &rows), (rows.clone(), 0));
            assert_eq!(answer(&mut pull, &rows), (vec![], 0));
            let mut again = Pull::new(pull.progress(), 0);
            assert_eq!(
                answer(&mut again, &[]),
                (vec![], 0),
                "the server is empty for a while"
            );
            assert_eq!(again.progress(), pull.progress());
            let new = more[rows.len()..].to_vec();
            assert_eq!(answer(&mut again, &more), (new, 0), "{count}");
            assert_eq!(answer(&mut again, &more), (vec![], 0), "{count}");
            assert!(again.progress().same_time.len() <= SAME_TIME_MAX);
        }
    }

    #[test]
    fn equal_rows_of_one_millisecond_are_several_elements() {
        let mut pull = Pull::new(Progress::default(), 0);
        assert_eq!(answer(&mut pull, &[7, 7]), (vec![7, 7], 0));
        assert_eq!(answer(&mut pull, &[7, 8, 7, 7]), (vec![8, 7], 0));
        let mut pull = Pull::new(pull.progress(), 0);
        assert_eq!(answer(&mut pull, &[8, 7, 7, 7, 7]), (vec![7], 0));
    }

    #[test]
    fn many_rows_in_another_order_after_a_restart_are_counted_and_not_repeated() {
        let rows: Vec<u64> = (1..=100).collect();
        let mut pull = Pull::new(Progress::default(), 0);
        answer(&mut pull, &rows);
        let mut reversed: Vec<u64> = rows.iter().rev().copied().collect();
        let mut again = Pull::new(pull.progress(), 0);
        assert_eq!(answer(&mut again, &reversed), (vec![], 0));
        // Two new ones, before and among the others.
        reversed.insert(50, 102);
        reversed.insert(0, 101);
        let mut again = Pull::new(pull.progress(), 0);
        assert_eq!(answer(&mut again, &reversed), (vec![], 2));
        assert_eq!(answer(&mut again, &reversed), (vec![], 0));
    }

    #[test]
    fn a_millisecond_has_a_limit() {
        let mut pull = Pull::new(Progress::default(), 0);
        let mut take = |content| {
            let row = Row {
                timed_ms: Some(5),
                content,
                text: String::new(),
                element: Err(String::new()),
            };
            pull.take(&row, 100)
        };
        assert!((0..SAME_TIME_ROWS_MAX).all(|content| take(content) == Ok(Taken::New)));
        assert_eq!(take(SAME_TIME_ROWS_MAX), Err(PullError::SameTime));
    }
}

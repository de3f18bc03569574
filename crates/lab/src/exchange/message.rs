//! The messages between the bench and its processes: one JSON object a line, on standard input and
//! output. A process whose input ends, ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Kind;

/// What a process is to be: the first line that it reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Role {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) nodes: usize,
    /// A folder of its own.
    pub(crate) folder: PathBuf,
    /// How elements are exchanged.
    pub(crate) kind: Kind,
    /// The received streams whose latency is measured, one by one; the others are counted.
    pub(crate) timed: Vec<usize>,
}

/// An order to a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Connect to all.
    Connect,
    /// Produce from a time on, nanoseconds of the wall clock, an element every so many nanoseconds.
    Produce {
        /// From when.
        from: i64,
        /// How often.
        period: u64,
    },
    /// Produce nothing more.
    Pause,
    /// Measure between two times and answer [`Answer::Measured`].
    Measure {
        /// From when.
        from: i64,
        /// Until when.
        until: i64,
    },
    /// Cut the connections to this node, or make them again.
    Outage {
        /// Whether they are cut.
        cut: bool,
    },
    /// Store so many elements in a stream that nobody reads yet, and answer [`Answer::Filled`].
    Fill {
        /// How many.
        elements: u64,
    },
    /// Read that stream from the node which has it, from its beginning.
    CatchUp {
        /// That node.
        from: usize,
    },
    /// Report how much was received so far: [`Answer::Progress`].
    Report,
    /// Read everything again, report what is lost and doubled ([`Answer::Counted`]), and end.
    Count {
        /// For each node the number that it had produced before the run.
        before: Vec<u64>,
        /// The last number that each node produced.
        produced: Vec<u64>,
    },
}

/// An answer of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It listens.
    Ready,
    /// Its connections are there.
    Connected,
    /// The stream that nobody reads yet is stored.
    Filled,
    /// What it measured.
    Measured(Measured),
    /// What it has produced and received so far.
    Progress(Progress),
    /// The elements that arrived, and those that did not.
    Counted(Counted),
    /// It cannot go on.
    Failed(String),
}

/// What a process measured between two times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Seconds that it measured.
    pub(crate) seconds: f64,
    /// Elements that its producer yielded.
    pub(crate) produced: u64,
    /// Elements that came out of the end, for each origin.
    pub(crate) outputs: Vec<u64>,
    /// Processor time in seconds.
    pub(crate) processor_s: f64,
    /// From source time to acknowledgement of the output, in microseconds, of the timed streams.
    pub(crate) latencies_us: Vec<u32>,
    /// The 99th percentile of each second of it, in microseconds.
    pub(crate) high_us: Vec<u32>,
    /// Synchronizations of the disk.
    pub(crate) syncs: u64,
}

/// What a process has produced and received so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The last number whose turn has come.
    pub(crate) yielded: u64,
    /// How many elements of its producer were accepted.
    pub(crate) produced: u64,
    /// The last number at the end, for each origin.
    pub(crate) reached: Vec<u64>,
    /// Elements of the stream that it catches up with.
    pub(crate) caught_up: u64,
}

/// All that was produced, by whether it arrived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Elements at the end.
    pub(crate) received: u64,
    /// Numbers that are missing.
    pub(crate) lost: u64,
    /// Numbers that are there more than once.
    pub(crate) doubled: u64,
    /// Numbers that came after a higher one.
    pub(crate) reordered: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_answers_are_lines() {
        let order = Order::Measure { from: 1, until: 2 };
        let line = serde_json::to_string(&order).unwrap();
        assert!(!line.contains('\n'));
        assert!(matches!(
            serde_json::from_str(&line),
            Ok(Order::Measure { from: 1, until: 2 })
        ));
        let answer = Answer::Measured(Measured {
            outputs: vec![3, 4],
            ..Measured::default()
        });
        let line = serde_json::to_string(&answer).unwrap();
        let Ok(Answer::Measured(measured)) = serde_json::from_str(&line) else {
            panic!("{line} is no answer");
        };
        assert_eq!(measured.outputs, [3, 4]);
    }
}

//! The messages between the bench and its processes: one JSON object per line, on standard input
//! and output. A process ends when its input ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Kind;

/// The role of a process: the first line that it reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Role {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// The number of nodes.
    pub(crate) nodes: usize,
    /// A separate folder.
    pub(crate) folder: PathBuf,
    /// The kind of exchange.
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
    /// Produce from this time (nanoseconds of the wall clock), one element per interval
    /// (nanoseconds).
    Produce {
        /// The start time.
        from: i64,
        /// The interval.
        period: u64,
    },
    /// Produce nothing more.
    Pause,
    /// Measure between two times and answer [`Answer::Measured`].
    Measure {
        /// The start time.
        from: i64,
        /// The end time.
        until: i64,
    },
    /// Cut the connections to this node, or restore them.
    Outage {
        /// Whether they are cut.
        cut: bool,
    },
    /// Store this many elements in a stream without readers, and answer [`Answer::Filled`].
    Fill {
        /// The number of elements.
        elements: u64,
    },
    /// Read that stream from the node that has it, from its start.
    CatchUp {
        /// That node.
        from: usize,
    },
    /// Report the number of elements received so far: [`Answer::Progress`].
    Report,
    /// Read everything again, report lost and duplicated elements ([`Answer::Counted`]), and end.
    Count {
        /// The number that each node had produced before the run.
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
    /// The connections are established.
    Connected,
    /// The stream without readers is stored.
    Filled,
    /// The measurements.
    Measured(Measured),
    /// The number of elements produced and received so far.
    Progress(Progress),
    /// The elements that arrived, and those that did not.
    Counted(Counted),
    /// The process cannot continue.
    Failed(String),
}

/// The measurements of a process between two times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Seconds that it measured.
    pub(crate) seconds: f64,
    /// Elements that its producer yielded.
    pub(crate) produced: u64,
    /// Elements that reached the end, by origin.
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

/// The number of elements that a process has produced and received so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The last number that was due.
    pub(crate) yielded: u64,
    /// The number of its producer's elements that were accepted.
    pub(crate) produced: u64,
    /// The last number at the end, by origin.
    pub(crate) reached: Vec<u64>,
    /// Elements of the stream that it catches up with.
    pub(crate) caught_up: u64,
}

/// All produced elements, by whether they arrived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Elements at the end.
    pub(crate) received: u64,
    /// Numbers that are missing.
    pub(crate) lost: u64,
    /// Numbers that exist more than once.
    pub(crate) doubled: u64,
    /// Numbers that arrived after a higher one.
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
            panic!("{line} is not an answer");
        };
        assert_eq!(measured.outputs, [3, 4]);
    }
}

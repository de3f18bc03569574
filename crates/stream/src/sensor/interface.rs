//! What goes into a virtual sensor and comes out of it, and what it counts.

use std::sync::Arc;

use crate::{QueryLimits, Refusal, StreamElement, StreamSchema, Timestamp, WindowLimits};

/// An element of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SensorInput {
    /// The stream of the element.
    pub stream: Arc<str>,
    /// The element.
    pub element: Arc<StreamElement>,
}

/// A command to a virtual sensor.
#[derive(Debug, Clone, PartialEq)]
pub enum SensorCommand {
    /// Binds a stream to the source `alias`.
    Bind {
        /// The source.
        alias: String,
        /// The stream.
        stream: Arc<str>,
        /// The schema of its elements.
        schema: StreamSchema,
    },
    /// The source `alias` loses its last stream, which is unbound next: slides of time that wait for silence on the
    /// source's clock are evaluated now.
    EndSlides {
        /// The source.
        alias: String,
    },
    /// Unbinds a stream from the source `alias`; its elements leave the window.
    Unbind {
        /// The source.
        alias: String,
        /// The stream.
        stream: Arc<str>,
    },
    /// The source `alias` is bound to streams of another of its choices from now on; the first one is 0. Those of
    /// the choice before are unbound next.
    Choose {
        /// The source.
        alias: String,
        /// The index of the choice.
        choice: usize,
    },
    /// Elements of bound streams that an earlier run evaluated: they fill the windows and produce
    /// no output.
    Recall {
        /// The elements, in the order of their receipt.
        elements: Vec<SensorInput>,
    },
    /// The node's clock shows this time now. Needed if [`crate::VirtualSensor::follows_clock`], then once a
    /// second.
    Clock(Timestamp),
    /// The sensor forgets everything and accepts nothing more.
    Stop,
}

/// An output of a virtual sensor.
#[derive(Debug, Clone, PartialEq)]
pub enum SensorEvent {
    /// An element of the output, without a position.
    Output(StreamElement),
    /// Every source is bound and the statement matches: it runs.
    Running,
    /// It waits for the sources named.
    Waiting {
        /// Their aliases.
        aliases: Vec<String>,
    },
    /// It cannot run with its bindings: the statement does not match the fields.
    Failed {
        /// The reason as text.
        reason: String,
    },
    /// One evaluation failed. Said when the reason is another than the time before.
    EvaluationFailed {
        /// The reason as text.
        reason: String,
    },
    /// A source does not take an element, and its policy is to report it.
    DeadLetter {
        /// The source.
        alias: String,
        /// Why it does not take it.
        reason: Refusal,
        /// The element with its stream.
        input: SensorInput,
    },
    /// It was stopped.
    Stopped,
}

/// The state of a virtual sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SensorState {
    /// It waits for the sources named.
    Waiting(Vec<String>),
    /// It runs.
    Running,
    /// It cannot run, for this reason.
    Failed(String),
    /// It was stopped.
    Stopped,
}

/// Counters of a virtual sensor since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SensorCounters {
    /// Elements accepted.
    pub inputs: u64,
    /// Elements of streams that no source is bound to.
    pub strangers: u64,
    /// Elements that do not fit the schema that their stream was bound with, or are longer than
    /// [`QueryLimits::length`].
    pub misfits: u64,
    /// Elements that the sampling of a source left out.
    pub sampled_out: u64,
    /// Evaluations.
    pub evaluations: u64,
    /// Evaluations that failed.
    pub failures: u64,
    /// Elements of the output.
    pub outputs: u64,
    /// Results dropped because they came sooner than a rate allows.
    pub too_soon: u64,
    /// Results dropped after a statement's last element.
    pub beyond_count: u64,
    /// Results dropped because their time was not after that of the last with their key.
    pub repeated_times: u64,
    /// Results dropped because a field was null.
    pub nulls: u64,
}

impl SensorCounters {
    /// What was not used, by reason. Elements: they do not fit the schema of their stream or a table, their stream is
    /// no longer bound, or the sampling left them out. Results: they came too soon, after the last of their
    /// statement, at the time of an earlier one, or with a null.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("misfit", self.misfits),
            ("not_bound", self.strangers),
            ("sampled_out", self.sampled_out),
            ("too_soon", self.too_soon),
            ("beyond_count", self.beyond_count),
            ("repeated_time", self.repeated_times),
            ("null", self.nulls),
        ]
    }
}

/// Bounds of a virtual sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SensorLimits {
    /// Bounds of each source's window.
    pub window: WindowLimits,
    /// Bounds of each evaluation.
    pub query: QueryLimits,
}

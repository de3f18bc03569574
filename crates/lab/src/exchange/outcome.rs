//! The figures of one kind of exchange.

use std::time::Duration;

use super::cluster::Combined;
use super::figures::Line;
use super::message::Counted;
use crate::Report;

/// One kind of exchange at one rate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Elements per second of each virtual sensor over a received stream, ascending.
    pub(crate) sensors: Vec<f64>,
    /// The sum of all.
    pub(crate) all: f64,
    /// Elements a second that each producer yielded.
    pub(crate) producers: Vec<f64>,
    /// Processors that were busy, second by second.
    pub(crate) load: Vec<f64>,
    /// Megabits on the wire, second by second.
    pub(crate) wire_mbit: Vec<f64>,
    /// The slowest producer, elements a second.
    pub(crate) slowest_producer: f64,
    /// Processors used by the processes of the run, and by a broker.
    pub(crate) processors: f64,
    /// Bytes over the loopback per element at its end.
    pub(crate) wire_bytes: f64,
    /// Packets over the loopback per element at its end.
    pub(crate) wire_packets: f64,
    /// Synchronizations of the disk a second, all nodes together.
    pub(crate) syncs: f64,
    /// From source time to acknowledgement of the output.
    pub(crate) latencies: Vec<Duration>,
    /// The 99th percentile of each second, at the node where it is highest.
    pub(crate) high: Vec<Duration>,
}

impl Outcome {
    /// The figures of a measurement; `broker_s` is the processor time of a program other than the
    /// processes.
    pub(crate) fn of(combined: &Combined, broker_s: f64) -> Self {
        let mut outcome = Self {
            load: combined.processors.clone(),
            wire_mbit: combined.wire_mbit.clone(),
            ..Self::default()
        };
        let mut outputs = 0;
        let mut seconds: f64 = 0.0;
        for one in &combined.measured {
            let rates = one.outputs.iter().map(|count| *count as f64 / one.seconds);
            outcome.sensors.extend(rates);
            outputs += one.outputs.iter().sum::<u64>();
            let producer = one.produced as f64 / one.seconds;
            outcome.producers.push(producer);
            if outcome.slowest_producer == 0.0 || producer < outcome.slowest_producer {
                outcome.slowest_producer = producer;
            }
            outcome.processors += one.processor_s / one.seconds;
            outcome.syncs += one.syncs as f64 / one.seconds;
            seconds = seconds.max(one.seconds);
            let micros = |us: &u32| Duration::from_micros(u64::from(*us));
            outcome
                .latencies
                .extend(one.latencies_us.iter().map(micros));
            let high = one.high_us.iter().map(micros);
            for (second, high) in high.enumerate() {
                if outcome.high.len() <= second {
                    outcome.high.resize(second + 1, Duration::ZERO);
                }
                outcome.high[second] = outcome.high[second].max(high);
            }
        }
        outcome.sensors.sort_by(f64::total_cmp);
        outcome.all = outcome.sensors.iter().sum();
        outcome.processors += broker_s / seconds.max(1e-9);
        let each = outputs.max(1) as f64;
        outcome.wire_bytes = combined.wire_bytes as f64 / each;
        outcome.wire_packets = combined.wire_packets as f64 / each;
        outcome
    }

    /// The median virtual sensor.
    pub(crate) fn median(&self) -> f64 {
        self.sensors
            .get(self.sensors.len() / 2)
            .copied()
            .unwrap_or(0.0)
    }

    /// The slowest virtual sensor.
    pub(crate) fn slowest(&self) -> f64 {
        self.sensors.first().copied().unwrap_or(0.0)
    }

    /// The 99th percentile of latency in milliseconds.
    pub(crate) fn p99_ms(&self) -> f64 {
        crate::percentile(&mut self.latencies.clone(), 99.0).as_secs_f64() * 1e3
    }

    /// The line of the summary.
    pub(crate) fn line(&self, name: &str) -> Line {
        let mut producers = self.producers.clone();
        producers.sort_by(f64::total_cmp);
        Line {
            name: name.replacen('-', "\n", 1),
            generated: producers.get(producers.len() / 2).copied().unwrap_or(0.0),
            consumed: self.median(),
        }
    }

    /// Writes the rows of a kind.
    pub(crate) fn rows(&self, report: &mut Report, name: &str, produced: f64, counted: &Counted) {
        let void = if self.slowest_producer < 0.99 * produced {
            "void: the producers were slowed"
        } else {
            ""
        };
        let mut row = |what: &str, value: f64, unit: &'static str, note: &str| {
            report.row(&format!("{name}: {what}"), value, unit, note);
        };
        let of = format!("of {produced:.0}; slowest {:.1}", self.slowest());
        row("a virtual sensor, median", self.median(), "1/s", &of);
        row("all together", self.all, "1/s", void);
        row("the slowest producer", self.slowest_producer, "1/s", "");
        row("processors busy", self.processors, "", "");
        let note = "at its end; heads included";
        row("an element on the wire", self.wire_bytes, "B", note);
        row("packets for an element", self.wire_packets, "", "");
        row("syncs", self.syncs, "1/s", "all nodes");
        row(
            "lost",
            counted.lost as f64,
            "",
            &format!("of {}", counted.received + counted.lost),
        );
        row("doubled", counted.doubled as f64, "", "");
        let what = format!("{name}: source to stored output");
        report.times(&what, "one in eight pairs of nodes", &self.latencies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::message::Measured;

    #[test]
    fn rates_are_of_each_sensor_and_the_slowest_producer_counts() {
        let measured = |produced: u64, outputs: Vec<u64>| Measured {
            seconds: 2.0,
            produced,
            outputs,
            processor_s: 1.0,
            high_us: vec![5, u32::try_from(produced).unwrap_or(0)],
            ..Measured::default()
        };
        let combined = Combined {
            measured: vec![measured(200, vec![200, 198]), measured(190, vec![100, 200])],
            wire_bytes: 6_980,
            wire_packets: 698,
            ..Combined::default()
        };
        let outcome = Outcome::of(&combined, 1.0);
        assert_eq!(outcome.sensors, [50.0, 99.0, 100.0, 100.0]);
        assert_eq!((outcome.slowest_producer, outcome.processors), (95.0, 1.5));
        assert_eq!((outcome.wire_bytes, outcome.wire_packets), (10.0, 1.0));
        assert_eq!(outcome.high[1], Duration::from_micros(200));
    }
}

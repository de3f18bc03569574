//! A process of the scenario: it produces by the clock, measures between two times, and follows its
//! orders. A [`Station`] makes it a node or a client of a peer.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::latency::Latencies;
use super::message::{Answer, Measured, Order, Progress, Role};
use super::station::{Due, Station, now};
use super::{Kind, mqtt, nats, node};
use crate::Error;
use crate::process::own_processor_s;

/// Maximum number of queued orders. A handful are in flight at once.
const ORDERS: usize = 64;

/// Runs a process until its last order or the end of its input.
pub(crate) fn run() -> Result<(), Error> {
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let role = match lines.next() {
        Some(Ok(line)) => parse::<Role>(&line)?,
        _ => return Ok(()),
    };
    let (orders, queue) = mpsc::channel(ORDERS);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if orders.blocking_send(line).is_err() {
                break;
            }
        }
        // The bench has ended, or ends this process.
    });
    let runtime = chappe_node::runtime().map_err(Error::io("starting the runtime"))?;
    let outcome = runtime.block_on(async {
        let latencies = Latencies::default();
        match role.kind {
            Kind::Mosquitto => {
                let station = mqtt::connect(&role, latencies.clone()).await?;
                serve(station, latencies, queue).await
            }
            Kind::Jetstream | Kind::JetstreamSync => {
                let station = nats::connect(&role, latencies.clone()).await?;
                serve(station, latencies, queue).await
            }
            _ => {
                let station = node::Member::start(&role, latencies.clone()).await?;
                serve(station, latencies, queue).await
            }
        }
    });
    if let Err(error) = &outcome {
        say(&Answer::Failed(error.to_string()))?;
    }
    runtime.shutdown_background();
    outcome
}

fn parse<T: serde::de::DeserializeOwned>(line: &str) -> Result<T, Error> {
    serde_json::from_str(line).map_err(Error::failed(format!("reading the order {line}")))
}

fn say(answer: &Answer) -> Result<(), Error> {
    let mut line = serde_json::to_string(answer).map_err(Error::failed("writing an answer"))?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Error::io("answering"))
}

async fn serve<S: Station>(
    mut station: S,
    latencies: Latencies,
    mut orders: mpsc::Receiver<String>,
) -> Result<(), Error> {
    say(&Answer::Ready)?;
    let mut clockwork = Clockwork::default();
    let mut measuring: Option<Measuring> = None;
    loop {
        let tick = clockwork.next.map(at);
        let boundary = measuring.as_ref().map(|measuring| at(measuring.boundary()));
        tokio::select! {
            biased;
            () = sleep(boundary), if boundary.is_some() => {
                let Some(open) = measuring.take() else { continue };
                match open.pass(&station) {
                    Passed::Begun(open) => {
                        latencies.open(open.from, open.until);
                        measuring = Some(open);
                    }
                    Passed::Ended(mut measured) => {
                        (measured.latencies_us, measured.high_us) = latencies.take();
                        say(&Answer::Measured(measured))?;
                    }
                }
            }
            () = sleep(tick), if tick.is_some() => station.produce(&clockwork.due(now())),
            order = orders.recv() => {
                let Some(order) = order else { return Ok(()) };
                match parse(&order)? {
                    Order::Connect => {
                        station.connect().await?;
                        say(&Answer::Connected)?;
                    }
                    Order::Produce { from, period } => clockwork.start(from, period),
                    Order::Pause => clockwork.next = None,
                    Order::Measure { from, until } => {
                        measuring = Some(Measuring { from, until, begun: None });
                    }
                    Order::Outage { cut } => station.outage(cut).await?,
                    Order::Fill { elements } => {
                        station.fill(elements).await?;
                        say(&Answer::Filled)?;
                    }
                    Order::CatchUp { from } => station.catch_up(from).await?,
                    Order::Report => say(&Answer::Progress(Progress {
                        produced: station.produced(),
                        yielded: clockwork.yielded,
                        reached: station.reached(),
                        caught_up: station.caught_up(),
                    }))?,
                    Order::Count { before, produced } => {
                        let counted = station.count(&before, &produced).await?;
                        return say(&Answer::Counted(counted));
                    }
                }
            }
        }
    }
}

async fn sleep(until: Option<Instant>) {
    if let Some(until) = until {
        tokio::time::sleep_until(until).await;
    }
}

/// A time of the wall clock on the runtime's.
fn at(time: i64) -> Instant {
    let ahead = u64::try_from(time - now()).unwrap_or(0);
    Instant::now() + Duration::from_nanos(ahead)
}

/// The time when the next element is due.
#[derive(Debug, Default)]
struct Clockwork {
    next: Option<i64>,
    period: i64,
    yielded: u64,
}

impl Clockwork {
    fn start(&mut self, from: i64, period: u64) {
        self.next = Some(from);
        self.period = i64::try_from(period).unwrap_or(i64::MAX).max(1);
    }

    /// The elements due by `now`; each has its due time, so that a late producer does not look like
    /// a fast exchange.
    fn due(&mut self, now: i64) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some(time) = self.next.filter(|time| *time <= now) {
            self.yielded += 1;
            due.push(Due {
                number: self.yielded,
                time,
            });
            self.next = Some(time + self.period);
        }
        due
    }
}

/// A measurement that was ordered.
#[derive(Debug)]
struct Measuring {
    from: i64,
    until: i64,
    begun: Option<Snapshot>,
}

/// The counters at a time.
#[derive(Debug)]
struct Snapshot {
    at: i64,
    produced: u64,
    outputs: Vec<u64>,
    processor_s: f64,
    syncs: u64,
}

enum Passed {
    Begun(Measuring),
    Ended(Measured),
}

impl Measuring {
    fn boundary(&self) -> i64 {
        if self.begun.is_none() {
            self.from
        } else {
            self.until
        }
    }

    fn pass(self, station: &impl Station) -> Passed {
        let snapshot = Snapshot {
            at: now(),
            produced: station.produced(),
            outputs: station.outputs(),
            processor_s: own_processor_s(),
            syncs: station.syncs(),
        };
        let Some(begun) = self.begun else {
            return Passed::Begun(Self {
                begun: Some(snapshot),
                ..self
            });
        };
        let outputs = snapshot.outputs.iter().zip(&begun.outputs);
        Passed::Ended(Measured {
            seconds: (snapshot.at - begun.at) as f64 / 1e9,
            produced: snapshot.produced - begun.produced,
            outputs: outputs.map(|(end, begin)| end - begin).collect(),
            processor_s: snapshot.processor_s - begun.processor_s,
            syncs: snapshot.syncs - begun.syncs,
            ..Measured::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_producer_yields_each_element_with_the_time_of_its_turn() {
        let mut clockwork = Clockwork::default();
        assert!(clockwork.due(100).is_empty());
        clockwork.start(100, 10);
        let times: Vec<_> = clockwork.due(125).iter().map(|due| due.time).collect();
        assert_eq!(times, [100, 110, 120]);
        let due = clockwork.due(130);
        assert_eq!(
            due,
            [Due {
                number: 4,
                time: 130
            }]
        );
    }
}

//! Snapshots of the counts of GSN's `CounterVS`, the instrument of the study: a virtual sensor whose only field is the
//! number of the elements that it received. They are read as GSN publishes them, and only while a snapshot is taken.

use std::time::{Duration, Instant};

use chappe_gsn::exchange::{read_publication, topic};
use chappe_gsn::kryo::{GsnElement, GsnValue};
use chappe_transport::Drops;
use chappe_transport::zeromq::{Limits, Security, Subscriber};

use super::{PROXY, name};
use crate::Error;

/// Time limit for each counter to publish a count.
const ANSWERING: Duration = Duration::from_secs(30);

/// A count, and when it was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Count {
    elements: u64,
    at: Instant,
}

/// The counts of all subscribing virtual sensors, by number.
pub(super) fn snapshot(nodes: usize) -> Result<Vec<Count>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("starting a runtime"))?;
    let counts = runtime.block_on(async {
        tokio::time::timeout(ANSWERING, read(nodes))
            .await
            .map_err(|_| Error::Failed("not every CounterVS publishes its count".to_owned()))?
    });
    runtime.shutdown_background();
    counts
}

async fn read(nodes: usize) -> Result<Vec<Count>, Error> {
    let names: Vec<String> = (0..nodes).map(name).collect();
    let proxy = format!("tcp://127.0.0.1:{PROXY}");
    let subscriber = Subscriber::connect(
        &proxy,
        names.iter().map(|name| topic(name)),
        Security::NullFrom2,
        Limits::default(),
        Drops::default(),
    );
    let mut subscriber = subscriber
        .await
        .map_err(Error::failed("subscribing to the counts"))?;
    let mut counts: Vec<Option<Count>> = vec![None; nodes];
    while counts.iter().any(Option::is_none) {
        let message = subscriber.recv().await;
        let at = Instant::now();
        for (name, known) in names.iter().zip(&mut counts) {
            let element = read_publication(name, message.first())
                .map_err(Error::failed(format!("reading the count of {name}")))?;
            if let Some(elements) = element.as_ref().and_then(count) {
                *known = Some(Count { elements, at });
                break;
            }
        }
    }
    Ok(counts.into_iter().flatten().collect())
}

/// The count of an element.
fn count(element: &GsnElement) -> Option<u64> {
    let mut fields = element.names.iter().zip(&element.values);
    let counter = fields.find(|(name, _)| name.eq_ignore_ascii_case("counter"));
    match counter?.1 {
        GsnValue::Long(count) => u64::try_from(*count).ok(),
        GsnValue::Integer(count) => u64::try_from(*count).ok(),
        _ => None,
    }
}

/// Elements per second between two counts.
pub(super) fn rate((first, last): (&Count, &Count)) -> f64 {
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    last.elements.saturating_sub(first.elements) as f64 / seconds.max(1e-9)
}

/// Elements between two snapshots.
pub(super) fn elements(first: &[Count], last: &[Count]) -> u64 {
    let pairs = first.iter().zip(last);
    pairs
        .map(|(first, last)| last.elements.saturating_sub(first.elements))
        .sum()
}

#[cfg(test)]
mod tests {
    use chappe_gsn::kryo::DataType;

    use super::*;

    #[test]
    fn a_count_is_the_field_of_that_name() {
        let element = |name: &str, value| GsnElement {
            timed_ms: 1,
            is_timed: true,
            names: vec![name.to_owned()],
            types: vec![DataType::Bigint],
            values: vec![value],
        };
        assert_eq!(count(&element("COUNTER", GsnValue::Long(7))), Some(7));
        assert_eq!(count(&element("counter", GsnValue::Integer(8))), Some(8));
        assert_eq!(count(&element("light", GsnValue::Long(7))), None);
    }

    #[test]
    fn rates_are_between_the_times_of_the_two_counts() {
        let at = Instant::now();
        let first = Count { elements: 10, at };
        let last = Count {
            elements: 110,
            at: at + Duration::from_secs(2),
        };
        assert_eq!(rate((&first, &last)), 50.0);
        assert_eq!(elements(&[first, first], &[last, last]), 200);
    }
}

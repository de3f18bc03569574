//! What is published to and asked: each registry, over SOAP or as a library.

use std::time::Duration;

use super::service::{Requests, Step, name_of};
use crate::{Error, percentile};

/// The keys that a registry gave to the parts of a service.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) business: String,
    pub(super) tmodel: String,
    pub(super) service: String,
}

impl Keys {
    pub(super) fn set(&mut self, step: Step, key: String) {
        match step {
            Step::Business => self.business = key,
            Step::TModel => self.tmodel = key,
            Step::Service => self.service = key,
        }
    }
}

/// A registry under test.
pub(super) trait UnderTest {
    /// One request of a publication, and its time; sets the key that it was given.
    fn save(&mut self, step: Step, name: &str, keys: &mut Keys) -> Result<Duration, Error>;
    /// find_service by name, then get_serviceDetail of the key that was found, and the time of both.
    fn inquire(&mut self, name: &str) -> Result<Duration, Error>;
    /// The time of one write of the same size at its disk alone, if it syncs each change.
    fn floor(&mut self) -> Result<Option<Duration>, Error> {
        Ok(None)
    }
    /// Bytes of memory of the process, if it is one.
    fn resident(&self) -> Option<u64> {
        None
    }
}

/// One point of a curve.
#[derive(Clone, Debug, Default)]
pub(super) struct Point {
    /// Services then.
    pub(super) services: usize,
    /// Publications of the hundred.
    pub(super) publish: Vec<Duration>,
    /// The three requests of each.
    pub(super) steps: Vec<[Duration; 3]>,
    /// The disk alone, once after each publication.
    pub(super) floor: Vec<Duration>,
    /// Inquiries of the hundred.
    pub(super) inquire: Vec<Duration>,
    pub(super) resident: Option<u64>,
}

impl Point {
    /// The median of some times in milliseconds.
    pub(super) fn median(times: &[Duration]) -> f64 {
        percentile(&mut times.to_vec(), 50.0).as_secs_f64() * 1e3
    }

    pub(super) fn publish_ms(&self) -> f64 {
        Self::median(&self.publish)
    }

    pub(super) fn floor_ms(&self) -> f64 {
        Self::median(&self.floor)
    }

    pub(super) fn inquire_ms(&self) -> f64 {
        Self::median(&self.inquire)
    }

    /// The longest publication in milliseconds.
    pub(super) fn longest_ms(&self) -> f64 {
        let longest = self.publish.iter().max().copied().unwrap_or_default();
        longest.as_secs_f64() * 1e3
    }
}

/// Publishes a service; returns the time of each request.
pub(super) fn publish(
    target: &mut dyn UnderTest,
    number: usize,
) -> Result<(Keys, [Duration; 3]), Error> {
    let (mut keys, name, mut times) = (Keys::default(), name_of(number), [Duration::ZERO; 3]);
    for (step, time) in Step::ALL.into_iter().zip(&mut times) {
        *time = target.save(step, &name, &mut keys)?;
    }
    Ok((keys, times))
}

/// Publishes `count` services from the number `from` on, then asks for as many of all at random.
pub(super) fn point(
    target: &mut dyn UnderTest,
    (from, count): (usize, usize),
    random: &mut fastrand::Rng,
) -> Result<(Point, Vec<Keys>), Error> {
    let (mut point, mut keys) = (Point::default(), Vec::with_capacity(count));
    for number in from..from + count {
        let (given, times) = publish(target, number)?;
        keys.push(given);
        point.publish.push(times.iter().sum());
        point.steps.push(times);
        point.floor.extend(target.floor()?);
    }
    point.services = from + count;
    point.inquire = inquiries(target, point.services, count, random)?;
    point.resident = target.resident();
    Ok((point, keys))
}

/// Times of inquiries about services of all at random.
pub(super) fn inquiries(
    target: &mut dyn UnderTest,
    services: usize,
    count: usize,
    random: &mut fastrand::Rng,
) -> Result<Vec<Duration>, Error> {
    (0..count)
        .map(|_| target.inquire(&name_of(random.usize(..services))))
        .collect()
}

/// A curve from nothing to `services`.
pub(super) fn curve(
    target: &mut dyn UnderTest,
    (services, step): (usize, usize),
    random: &mut fastrand::Rng,
) -> Result<Vec<Point>, Error> {
    let froms = (0..services).step_by(step);
    froms
        .map(|from| point(target, (from, step), random).map(|(point, _)| point))
        .collect()
}

/// What a message must have, in the order of its requests.
impl Requests {
    pub(super) fn key_of(step: Step) -> &'static str {
        match step {
            Step::Business => "businessKey=\"",
            Step::TModel => "tModelKey=\"",
            Step::Service => "serviceKey=\"",
        }
    }
}

/// What is between two texts for the first time.
pub(super) fn between<'a>(text: &'a str, start: &str, end: &str) -> Result<&'a str, Error> {
    let rest = text.split_once(start).map(|(_, rest)| rest);
    let found = rest.and_then(|rest| Some(rest.split_once(end)?.0));
    let short: String = text.chars().take(600).collect();
    found.ok_or_else(|| Error::Failed(format!("no {start} in {short}")))
}

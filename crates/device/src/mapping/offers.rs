//! The streams of a device, each with a number that is never reused.
//!
//! A removed stream is retired: events under way still find it, and its name is free for another.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::mapping::mapped::Offer;

/// Retired streams that are still known. Reason: twice the metrics of the largest medical device; later events
/// are counted as lost.
const RETIRED_MAX: usize = 1_024;

/// The streams of one device.
#[derive(Debug, Default)]
pub struct Offers {
    live: BTreeMap<usize, Offer>,
    retired: VecDeque<(usize, Offer)>,
    next: usize,
    names: Names,
}

/// The names of the current streams, each with the name that was requested for it.
#[derive(Debug, Default)]
struct Names {
    wanted_of: HashMap<String, String>,
    wanted: HashMap<String, RequestedName>,
}

/// A requested name: the number of streams with it, and the first suffix that may be free.
#[derive(Debug, Default)]
struct RequestedName {
    count: usize,
    free: usize,
}

impl Names {
    /// The name itself, or with the first free number appended. A device may give all its metrics one name and
    /// change them at will, so used numbers are not tried each time.
    fn assign(&mut self, name: &str) -> String {
        let wanted = self.wanted.entry(name.to_owned()).or_default();
        wanted.count += 1;
        let unique = loop {
            let candidate = match wanted.free {
                0 | 1 => name.to_owned(),
                number => format!("{name}_{number}"),
            };
            wanted.free = wanted.free.max(1) + 1;
            if !self.wanted_of.contains_key(&candidate) {
                break candidate;
            }
        };
        self.wanted_of.insert(unique.clone(), name.to_owned());
        unique
    }

    fn free(&mut self, name: &str) {
        let Some(base) = self.wanted_of.remove(name) else {
            return;
        };
        let Some(wanted) = self.wanted.get_mut(&base) else {
            return;
        };
        wanted.count -= 1;
        let number = name
            .strip_prefix(&*base)
            .and_then(|rest| rest.strip_prefix('_'));
        let number = number.and_then(|number| number.parse().ok()).unwrap_or(1);
        wanted.free = wanted.free.min(number);
        if wanted.count == 0 {
            self.wanted.remove(&base);
        }
    }
}

impl Offers {
    /// Adds a stream; if its name is taken, a number is appended.
    pub fn add(&mut self, offer: &Offer) -> usize {
        let mut offer = offer.clone();
        offer.name = self.names.assign(&offer.name);
        let number = self.next;
        self.next += 1;
        self.live.insert(number, offer);
        number
    }

    /// Retires a stream that the device has removed.
    pub fn retire(&mut self, number: usize) {
        if let Some(offer) = self.live.remove(&number) {
            self.names.free(&offer.name);
            self.retired.push_back((number, offer));
        }
        if self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
    }

    /// The current streams, by number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Offer)> {
        self.live.iter().map(|(number, offer)| (*number, offer))
    }

    /// The number of current streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether the device has no stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The stream of this number, including recently retired ones.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&Offer> {
        let of_number = |(known, _): &&(usize, Offer)| *known == number;
        let retired = || self.retired.iter().find(of_number).map(|(_, offer)| offer);
        self.live.get(&number).or_else(retired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name: &str) -> Offer {
        Offer {
            name: name.to_owned(),
            schema: chappe_stream::StreamSchema::default(),
            description: None,
        }
    }

    /// A report of 4 MiB changes some 40,000 metrics.
    #[test]
    fn many_streams_of_one_name_change_fast() {
        let mut offers = Offers::default();
        let mut numbers: VecDeque<usize> = (0..512).map(|_| offers.add(&offer("a"))).collect();
        let start = std::time::Instant::now();
        for _ in 0..40_000 {
            offers.retire(numbers.pop_front().unwrap());
            numbers.push_back(offers.add(&offer("a")));
        }
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
        let mut names: Vec<_> = offers.iter().map(|(_, offer)| offer.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 512);
        assert!(names.contains(&"a".to_owned()) && names.contains(&"a_512".to_owned()));
    }

    /// A stream may have a name that equals another one with its number.
    #[test]
    fn a_numbered_name_may_be_taken() {
        let mut offers = Offers::default();
        let numbers = ["a_2", "a", "a", "a_2"].map(|name| offers.add(&offer(name)));
        let names = |offers: &Offers| {
            offers
                .iter()
                .map(|one| one.1.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&offers), ["a_2", "a", "a_3", "a_2_2"]);
        offers.retire(numbers[0]);
        offers.add(&offer("a"));
        assert_eq!(names(&offers), ["a", "a_3", "a_2_2", "a_4"]);
        for number in 0..10 {
            offers.retire(number);
        }
        assert!(offers.names.wanted.is_empty() && offers.names.wanted_of.is_empty());
    }

    #[test]
    fn names_are_distinct_and_reused_but_numbers_are_not() {
        let mut offers = Offers::default();
        let [first, second, third] = ["a", "a", "a"].map(|name| offers.add(&offer(name)));
        let name = |offers: &Offers, number| offers.get(number).map(|offer| offer.name.clone());
        assert_eq!(name(&offers, first).as_deref(), Some("a"));
        assert_eq!(name(&offers, third).as_deref(), Some("a_3"));
        offers.retire(second);
        let fourth = offers.add(&offer("a"));
        assert_eq!(name(&offers, fourth).as_deref(), Some("a_2"));
        assert_eq!(name(&offers, second).as_deref(), Some("a_2"), "still known");
        assert!(fourth > third && offers.len() == 3);
        for _ in 0..RETIRED_MAX {
            let number = offers.add(&offer("b"));
            offers.retire(number);
        }
        assert_eq!(name(&offers, second), None);
    }
}

//! The streams that a device offers, each under a number that is never used again.
//!
//! A stream that the device no longer has is retired: events that are already on their way still
//! find it, and its name is free for another.

use std::collections::{BTreeMap, VecDeque};

use crate::mapping::Offer;

/// Retired streams that are still known. Reason: twice the metrics of the largest medical device;
/// what is on its way longer than that is counted as lost.
const RETIRED_MAX: usize = 1_024;

/// The streams of one device.
#[derive(Debug, Default)]
pub struct Offers {
    live: BTreeMap<usize, Offer>,
    retired: VecDeque<(usize, Offer)>,
    next: usize,
}

impl Offers {
    /// Adds a stream; if another one has its name, it gets a number after the name.
    pub(crate) fn add(&mut self, offer: &Offer) -> usize {
        let mut offer = offer.clone();
        let is_taken = |name: &str| self.live.values().any(|other| other.name == name);
        if is_taken(&offer.name) {
            let mut names = (2..).map(|number: usize| format!("{}_{number}", offer.name));
            // There are infinitely many.
            offer.name = names.find(|name| !is_taken(name)).unwrap_or_default();
        }
        let number = self.next;
        self.next += 1;
        self.live.insert(number, offer);
        number
    }

    /// The device no longer has this stream.
    pub(crate) fn retire(&mut self, number: usize) {
        if let Some(offer) = self.live.remove(&number) {
            self.retired.push_back((number, offer));
        }
        if self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
    }

    /// The streams that the device has now, by number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Offer)> {
        self.live.iter().map(|(number, offer)| (*number, offer))
    }

    /// How many streams the device has now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether the device has no stream now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The stream of this number, also when it was retired lately.
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

    #[test]
    fn names_are_distinct_and_free_again_but_numbers_are_not() {
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

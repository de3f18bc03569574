//! An estimate of the size of the network by one node.
//!
//! The k nodes nearest to a random position in a network of n nodes lie within k/n of the space. The
//! estimate is the median of several lookups, so crowding a few positions changes it little.

use crate::Key;
use crate::config::ESTIMATES_MAX;

/// The last estimates, as base-2 logarithms.
#[derive(Debug, Default)]
pub(crate) struct Size {
    estimates: Vec<f32>,
    next: usize,
}

impl Size {
    /// Adds the result of a lookup of a random position: the nearest nodes, nearest first, of which
    /// `wanted` were requested.
    pub(crate) fn on_lookup_ended(&mut self, target: Key, nearest: &[Key], wanted: usize) {
        let Some(last) = nearest.last() else { return };
        let count = nearest.len() as f64;
        let nodes = if nearest.len() < wanted {
            // That is all nodes, and the requester.
            count + 1.0
        } else {
            let share = (last.distance(target) as f64 + 1.0) / (u128::MAX as f64);
            // The expected position of the k-th of n is k / (n + 1); one less corrects the bias of
            // the inverse.
            (count - 1.0).max(1.0) / share
        };
        // Precise enough for an estimate.
        let estimate = nodes.max(1.0).log2() as f32;
        if self.estimates.len() < ESTIMATES_MAX {
            self.estimates.push(estimate);
        } else {
            self.estimates[self.next] = estimate;
            self.next = (self.next + 1) % ESTIMATES_MAX;
        }
    }

    /// The number of lookups in the estimate.
    pub(crate) fn len(&self) -> usize {
        self.estimates.len()
    }

    /// The size of the network; `None` before the first lookup.
    pub(crate) fn nodes(&self) -> Option<f64> {
        let mut sorted = self.estimates.clone();
        sorted.sort_by(f32::total_cmp);
        let median = sorted.get(sorted.len() / 2)?;
        Some(f64::from(*median).exp2())
    }

    /// The number of leading bits that the nodes of a region share, so that it has `nodes` to twice
    /// as many.
    pub(crate) fn region_bits(&self, nodes: u32) -> u32 {
        let all = self.nodes().unwrap_or(1.0);
        let bits = (all / f64::from(nodes.max(1))).log2().floor();
        // Between 0 and 127.
        bits.clamp(0.0, 127.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_met_within_a_third_for_all_sizes() {
        let mut random = fastrand::Rng::with_seed(1);
        for nodes in [5_usize, 50, 1_000, 20_000] {
            let places: Vec<_> = (0..nodes).map(|_| Key::new(random.u128(..))).collect();
            let mut size = Size::default();
            for _ in 0..ESTIMATES_MAX {
                let target = Key::new(random.u128(..));
                let mut nearest = places.clone();
                nearest.sort_by_key(|place| place.distance(target));
                nearest.truncate(16);
                size.on_lookup_ended(target, &nearest, 16);
            }
            let estimate = size.nodes().unwrap() / nodes as f64;
            assert!((0.67..1.5).contains(&estimate), "{nodes}: {estimate}");
        }
    }

    #[test]
    fn regions_hold_what_they_should() {
        let mut size = Size::default();
        assert_eq!(size.region_bits(20), 0);
        size.estimates = vec![17.0];
        // 131,072 nodes: 4,096 regions of 32.
        assert_eq!(size.region_bits(20), 12);
        size.estimates = vec![4.0];
        assert_eq!(size.region_bits(20), 0);
    }
}

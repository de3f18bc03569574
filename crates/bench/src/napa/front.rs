//! Throughput against latency: what no other setting beats, and how far something is from that.

/// What a setting reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) throughput_bytes_per_s: f64,
    /// Median.
    pub(super) latency_s: f64,
}

impl Point {
    fn is_sound(&self) -> bool {
        self.throughput_bytes_per_s > 0.0 && self.latency_s > 0.0
    }

    /// At least as good in both, and better in one.
    fn beats(&self, other: &Self) -> bool {
        let (more, less) = (self.throughput_bytes_per_s, self.latency_s);
        more >= other.throughput_bytes_per_s && less <= other.latency_s && self != other
    }
}

/// The points that no other beats, by rising throughput.
pub(super) fn front(points: &[Point]) -> Vec<Point> {
    let sound = || points.iter().filter(|point| point.is_sound());
    let unbeaten = sound().filter(|point| !sound().any(|other| other.beats(point)));
    let mut front: Vec<_> = unbeaten.copied().collect();
    front.sort_by(|a, b| {
        a.throughput_bytes_per_s
            .total_cmp(&b.throughput_bytes_per_s)
    });
    front.dedup();
    front
}

/// The share by which a point would have to be better in both, throughput and latency, for no point
/// of the front to beat it: the distance in the logarithms of both. 0: on the front or beyond;
/// infinite: nothing arrived.
pub(super) fn beyond_front(point: Point, front: &[Point]) -> f64 {
    if !point.is_sound() {
        return f64::INFINITY;
    }
    let behind = front.iter().map(|one| {
        let throughput = one.throughput_bytes_per_s / point.throughput_bytes_per_s;
        let latency = point.latency_s / one.latency_s;
        throughput.min(latency)
    });
    behind.fold(1.0, f64::max) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_what_nothing_beats_and_distance_is_to_its_best_point() {
        let point = |throughput_bytes_per_s, latency_s| Point {
            throughput_bytes_per_s,
            latency_s,
        };
        let points = [
            point(100.0, 1.0),
            point(90.0, 0.5),
            point(90.0, 0.9),
            point(0.0, 0.1),
            point(80.0, 2.0),
        ];
        let front = front(&points);
        assert_eq!(front, [point(90.0, 0.5), point(100.0, 1.0)]);
        assert_eq!(beyond_front(point(100.0, 0.9), &front), 0.0);
        assert!((beyond_front(point(50.0, 2.0), &front) - 1.0).abs() < 1e-9);
        assert!((beyond_front(point(81.8181818, 1.0), &front) - 0.1).abs() < 1e-6);
        assert!(beyond_front(point(0.0, 0.0), &front).is_infinite());
    }
}

//! Throughput against latency: the front of settings that no other beats, and the distance to it.

/// The result of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Bytes a second.
    pub throughput_bytes_per_s: f64,
    /// Median latency, seconds.
    pub latency_s: f64,
}

impl Point {
    /// Whether this is at least as good in both, and better in one.
    fn beats(&self, other: &Self) -> bool {
        self.throughput_bytes_per_s >= other.throughput_bytes_per_s
            && self.latency_s <= other.latency_s
            && self != other
    }
}

/// The points that no other beats, by rising throughput.
#[must_use]
pub fn front(points: &[Point]) -> Vec<Point> {
    let sound = |point: &&Point| point.throughput_bytes_per_s > 0.0 && point.latency_s > 0.0;
    let sound: Vec<Point> = points.iter().filter(sound).copied().collect();
    let mut front: Vec<Point> = sound
        .iter()
        .filter(|point| !sound.iter().any(|other| other.beats(point)))
        .copied()
        .collect();
    front.sort_by(|a, b| {
        a.throughput_bytes_per_s
            .total_cmp(&b.throughput_bytes_per_s)
    });
    front.dedup();
    front
}

/// The share by which a point would have to be better in throughput and latency at the same time
/// for no point of the front to beat it: the least d with throughput·(1+d) ≥ or latency/(1+d) ≤
/// that of each point of the front. Logarithms on both axes: 0.05 is "5 % from the front", wherever
/// on it. 0: on the front or beyond. Infinite: nothing was delivered.
#[must_use]
pub fn beyond_front(point: Point, front: &[Point]) -> f64 {
    if point.throughput_bytes_per_s <= 0.0 || point.latency_s <= 0.0 {
        return f64::INFINITY;
    }
    let worse = front.iter().map(|one| {
        let throughput = (one.throughput_bytes_per_s / point.throughput_bytes_per_s).ln();
        let latency = (point.latency_s / one.latency_s).ln();
        throughput.min(latency)
    });
    worse.fold(0.0, f64::max).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(throughput_bytes_per_s: f64, latency_s: f64) -> Point {
        Point {
            throughput_bytes_per_s,
            latency_s,
        }
    }

    #[test]
    fn no_point_beats_the_front() {
        let points = [
            point(100.0, 1.0),
            point(90.0, 0.5),
            point(80.0, 0.6),
            point(100.0, 2.0),
            point(0.0, 0.0),
        ];
        let front = front(&points);
        assert_eq!(front, [point(90.0, 0.5), point(100.0, 1.0)]);
        assert!(beyond_front(point(100.0, 0.9), &front) <= 0.0);
        assert!(beyond_front(point(10.0, 0.1), &front) <= 0.0);
        let near = beyond_front(point(95.0, 1.1), &front);
        assert!((near - 100.0 / 95.0 + 1.0).abs() < 1e-9, "{near}");
        // Twice as slow as a point that is twice as quick: far in both.
        let far = beyond_front(point(45.0, 1.0), &front);
        assert!((far - 1.0).abs() < 1e-9, "{far}");
        assert!(beyond_front(point(0.0, 0.0), &front).is_infinite());
    }
}

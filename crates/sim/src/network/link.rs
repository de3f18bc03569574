//! The effects of one direction between two nodes on its messages.

use std::time::Duration;

use chappe_machine::Instant;

/// The latency of a message, without the time for the sender's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Latency {
    /// Always the same.
    Fixed(Duration),
    /// Evenly between two bounds.
    Uniform(Duration, Duration),
    /// A floor, and above it a tail that falls off exponentially with this mean.
    Tail(Duration, Duration),
}

impl Latency {
    /// One latency.
    pub fn draw(self, random: &mut fastrand::Rng) -> Duration {
        match self {
            Latency::Fixed(latency) => latency,
            Latency::Uniform(low, high) => low + high.saturating_sub(low).mul_f64(random.f64()),
            Latency::Tail(floor, mean) => {
                // 1 - f64() is never 0, so the logarithm is finite (at most 37 means).
                floor + mean.mul_f64(-(1.0 - random.f64()).ln())
            }
        }
    }

    /// The mean.
    #[must_use]
    pub fn mean(self) -> Duration {
        match self {
            Latency::Fixed(latency) => latency,
            Latency::Uniform(low, high) => (low + high) / 2,
            Latency::Tail(floor, mean) => floor + mean,
        }
    }
}

/// Fails and recovers periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flapping {
    /// The start.
    pub from: Instant,
    /// The end, after which the link stays up.
    pub until: Instant,
    /// Duration of each failure; it starts with one.
    pub down: Duration,
    /// Duration of each recovery.
    pub up: Duration,
}

impl Flapping {
    /// Whether the link is up.
    #[must_use]
    pub fn open(&self, now: Instant) -> bool {
        if now < self.from || now >= self.until {
            return true;
        }
        let period = (self.down + self.up).as_nanos().max(1);
        (now - self.from).as_nanos() % period >= self.down.as_nanos()
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The latency of a message.
    pub latency: Latency,
    /// Bytes per second that the sender sends on this link; `None`: no limit.
    pub rate_bytes_per_s: Option<u64>,
    /// Size of the queue at the rate limit in bytes; further messages are dropped (tail drop).
    pub queue_bytes: u64,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of messages that arrive twice.
    pub duplicate: f64,
    /// The share of messages that are delayed and so overtaken.
    pub reorder: f64,
    /// Maximum delay of such a message.
    pub reorder_by: Duration,
    /// Nothing passes.
    pub cut: bool,
    /// It fails and recovers periodically.
    pub flapping: Option<Flapping>,
}

impl Default for Link {
    /// A local network: 0.2 to 0.5 ms, no limit, nothing lost.
    fn default() -> Self {
        let (low, high) = (Duration::from_micros(200), Duration::from_micros(500));
        Self {
            latency: Latency::Uniform(low, high),
            rate_bytes_per_s: None,
            queue_bytes: 1 << 20,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(5),
            cut: false,
            flapping: None,
        }
    }
}

impl Link {
    /// Whether anything passes now.
    #[must_use]
    pub fn open(&self, now: Instant) -> bool {
        !self.cut && self.flapping.is_none_or(|flapping| flapping.open(now))
    }
}

/// Messages that leave through one point, one after another: the rate of a link or node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Egress {
    busy_until: Instant,
}

impl Egress {
    /// Bytes that wait.
    pub(crate) fn queued(&self, now: Instant, rate: u64) -> u64 {
        let wait = (self.busy_until - now).as_nanos();
        u64::try_from(wait * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// The time when a message has left, or `None` if it does not fit.
    pub(crate) fn leave(
        &mut self,
        now: Instant,
        bytes: u32,
        rate: u64,
        room: u64,
    ) -> Option<Instant> {
        let queued = self.queued(now, rate);
        if queued > 0 && queued + u64::from(bytes) > room {
            return None;
        }
        let nanos = u64::from(bytes).saturating_mul(1_000_000_000) / rate.max(1);
        self.busy_until = self.busy_until.max(now) + Duration::from_nanos(nanos);
        Some(self.busy_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_takes_what_fits_and_drops_the_rest() {
        let mut egress = Egress::default();
        let now = Instant::ZERO;
        // 1,000 bytes a second: each message of 100 bytes takes 100 ms.
        let leave = |egress: &mut Egress| egress.leave(now, 100, 1_000, 250);
        let after = |millis| Some(now + Duration::from_millis(millis));
        assert_eq!(leave(&mut egress), after(100));
        assert_eq!(leave(&mut egress), after(200));
        assert_eq!(
            leave(&mut egress),
            None,
            "200 bytes wait, 100 more do not fit in 250"
        );
        let later = now + Duration::from_millis(60);
        assert_eq!(egress.queued(later, 1_000), 140);
        assert_eq!(egress.leave(later, 100, 1_000, 250), after(300));
    }

    #[test]
    fn flapping_ends() {
        let second = Duration::from_secs(1);
        let flapping = Flapping {
            from: Instant::ZERO + second,
            until: Instant::ZERO + 10 * second,
            down: second,
            up: 2 * second,
        };
        let open = |tenths: u32| flapping.open(Instant::ZERO + second * tenths / 10);
        assert!(open(9) && !open(10) && !open(19) && open(20) && open(39) && !open(40));
        assert!(open(100) && open(101));
    }

    #[test]
    fn latencies_stay_within_what_they_say() {
        let mut random = fastrand::Rng::with_seed(1);
        let millis = Duration::from_millis;
        let uniform = Latency::Uniform(millis(2), millis(4));
        let tail = Latency::Tail(millis(1), millis(9));
        let mut sum = Duration::ZERO;
        for _ in 0..10_000 {
            let latency = uniform.draw(&mut random);
            assert!(latency >= millis(2) && latency <= millis(4));
            let latency = tail.draw(&mut random);
            assert!(latency >= millis(1));
            sum += latency;
        }
        let mean = sum / 10_000;
        assert!(mean > millis(9) && mean < millis(11), "{mean:?}");
        assert_eq!(tail.mean(), millis(10));
    }
}

//! Waits with microsecond precision, for paced senders.
//!
//! The runtime's timers have a resolution of 1 ms. This alarm is a timer of the operating system (timerfd, an
//! absolute time on the monotonic clock), which rings some tens of microseconds late on an idle machine. A caller
//! that needs less spins for the last microseconds, at the cost of that much processor time for each wait.
//! [`sleep_until`] does the same for a thread without a runtime.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// The longest spin at the end of a wait: it blocks the thread.
pub const SPIN_MAX: Duration = Duration::from_micros(200);

/// Nanoseconds of the operating system's monotonic clock, which is the same for all processes of a machine and never
/// steps.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |now| nanoseconds(&now))
}

fn nanoseconds(time: &TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

/// An instant of the runtime's clock on the operating system's.
fn absolute(at: Instant) -> TimeSpec {
    let ahead = at.saturating_duration_since(Instant::now());
    TimeSpec::from_duration(Duration::from_nanos(monotonic_ns()) + ahead)
}

/// Spins until then.
fn spin_until(at: Instant) {
    while Instant::now() < at {
        std::hint::spin_loop();
    }
}

/// Blocks this thread until `at`; the last `spin` (at most [`SPIN_MAX`]) of it is a spin.
pub fn sleep_until(at: Instant, spin: Duration) {
    let spin = spin.min(SPIN_MAX);
    while at.saturating_duration_since(Instant::now()) > spin {
        let clock = nix::time::ClockId::CLOCK_MONOTONIC;
        let until = absolute(at - spin);
        // A signal ends it early: sleep again.
        let _ = clock_nanosleep(clock, ClockNanosleepFlags::TIMER_ABSTIME, &until);
    }
    spin_until(at);
}

/// An alarm with microsecond precision, on the runtime. It never rings early.
#[derive(Debug)]
pub struct FineAlarm {
    timer: AsyncFd<Timer>,
    spin: Duration,
    /// Its time, and whether the timer is set to it.
    at: Option<(Instant, bool)>,
}

#[derive(Debug)]
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl FineAlarm {
    /// An alarm that is not set. The last `spin` of a wait, at most [`SPIN_MAX`], is a spin.
    ///
    /// # Errors
    /// The operating system has no timer left.
    ///
    /// # Panics
    /// Outside a runtime with I/O, like all of tokio's I/O.
    #[expect(
        deprecated,
        reason = "the timer owns its descriptor; the alternative requires unsafe code"
    )]
    pub fn new(spin: Duration) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self {
            timer: AsyncFd::with_interest(Timer(timer), tokio::io::Interest::READABLE)?,
            spin: spin.min(SPIN_MAX),
            at: None,
        })
    }

    /// Sets the alarm to `at`, in place of any earlier setting; `None` disarms it.
    pub fn set(&mut self, at: Option<Instant>) {
        if self.at.map(|(before, _)| before) != at {
            self.at = at.map(|at| (at, false));
        }
    }

    /// Ready once its time has passed.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some((at, armed)) = self.at else {
                return Poll::Pending;
            };
            if at.saturating_duration_since(Instant::now()) <= self.spin {
                spin_until(at);
                return Poll::Ready(());
            }
            if !armed {
                let until = Expiration::OneShot(absolute(at - self.spin));
                let timer = &self.timer.get_ref().0;
                if timer
                    .set(until, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
                    .is_err()
                {
                    // The system accepts any time; if it did not, the alarm would still wait.
                    sleep_until(at, self.spin);
                    return Poll::Ready(());
                }
                self.at = Some((at, true));
            }
            let Ok(mut ringing) = ready!(self.timer.poll_read_ready(context)) else {
                // The runtime is shutting down.
                return Poll::Pending;
            };
            // It may be left over from an earlier setting.
            let _ = nix::unistd::read(&self.timer.get_ref().0, &mut [0; 8]);
            ringing.clear_ready();
            drop(ringing);
            self.at = Some((at, false));
        }
    }

    /// Waits until it rings. Cancel-safe.
    pub async fn rings(&mut self) {
        std::future::poll_fn(|context| self.poll(context)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_wait_ends_early() {
        for spin in [0, 50, 1_000_000] {
            for ahead in [0, 1, 30, 700, 2_500] {
                let at = Instant::now() + Duration::from_micros(ahead);
                sleep_until(at, Duration::from_micros(spin));
                assert!(Instant::now() >= at);
            }
        }
        let before = monotonic_ns();
        assert!(before > 0 && monotonic_ns() >= before);
    }

    #[tokio::test]
    async fn an_alarm_rings_when_it_was_set_to_last_and_not_before() {
        for spin in [Duration::ZERO, Duration::from_micros(60), Duration::MAX] {
            let mut alarm = FineAlarm::new(spin).unwrap();
            for ahead in [0, 200, 1_500, 5] {
                let at = Instant::now() + Duration::from_micros(ahead);
                alarm.set(Some(at));
                alarm.rings().await;
                assert!(Instant::now() >= at);
            }
            // Postponed after the timer has started.
            alarm.set(Some(Instant::now() + Duration::from_micros(500)));
            let begun = std::future::poll_fn(|context| Poll::Ready(alarm.poll(context))).await;
            let later = Instant::now() + Duration::from_millis(2);
            alarm.set(Some(later));
            alarm.rings().await;
            assert!(Instant::now() >= later, "{begun:?}");
            // Disarmed, while something else happens.
            alarm.set(None);
            tokio::select! {
                () = alarm.rings() => panic!("it is not set"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}

//! The connections that a listener has at once, shared among the hosts that open them.
//!
//! A connection that sends nothing costs nothing, so anybody can open as many as there may be. For one more, the
//! host with the most connections loses the one that was silent longest: if it was silent for a while, or if the
//! newcomer's host has clearly fewer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chappe_identity::Host;
use tokio::sync::oneshot;

/// Connections at once.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// Time without a line after which a connection is ended for any other one.
pub(super) const SILENCE_MIN: Duration = Duration::from_secs(10);

/// Since when a connection is silent; nothing while its lines wait to be stored. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Silence(Arc<Mutex<Option<Instant>>>);

impl Silence {
    pub(super) fn since(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Some(now))))
    }

    pub(super) fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn duration(&self, now: Instant) -> Duration {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// A connection's place.
#[derive(Debug)]
struct Seat {
    host: Host,
    silence: Silence,
    /// Dropped to end the connection.
    _end: oneshot::Sender<()>,
}

/// The places that are taken, by number.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: BTreeMap<u64, Seat>,
    last: u64,
}

/// What a new connection gets.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) silence: Silence,
    /// Resolves when the connection has to end.
    pub(super) end: oneshot::Receiver<()>,
    /// Whether another connection ends for it.
    pub(super) replaces: bool,
}

impl Seats {
    /// A place for a connection of a host; `None` if all are taken by others that send lines.
    pub(super) fn take(&mut self, host: Host, now: Instant) -> Option<Place> {
        let is_full = self.taken.len() >= CONNECTIONS_MAX;
        if is_full {
            let victim = self.victim(host, now)?;
            self.taken.remove(&victim);
        }
        let (end, ended) = oneshot::channel();
        let silence = Silence::since(now);
        self.last += 1;
        let seat = Seat {
            host,
            silence: silence.clone(),
            _end: end,
        };
        self.taken.insert(self.last, seat);
        Some(Place {
            number: self.last,
            silence,
            end: ended,
            replaces: is_full,
        })
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, number: u64) {
        self.taken.remove(&number);
    }

    /// The connection that ends for a new one of a host.
    fn victim(&self, host: Host, now: Instant) -> Option<u64> {
        let mut counts: BTreeMap<Host, usize> = BTreeMap::new();
        for seat in self.taken.values() {
            *counts.entry(seat.host).or_default() += 1;
        }
        let count = |host: &Host| counts.get(host).copied().unwrap_or(0);
        let silent = self
            .taken
            .iter()
            .map(|(number, seat)| (count(&seat.host), seat.silence.duration(now), *number));
        let (most, silence, number) =
            silent.max_by_key(|(count, silence, _)| (*count, *silence))?;
        (silence >= SILENCE_MIN || most > count(&host) + 1).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> Host {
        Host::from_address([192, 0, 2, number].into())
    }

    #[test]
    fn a_new_connection_replaces_the_longest_silent_one_of_the_greediest_host() {
        let (mut seats, start) = (Seats::default(), Instant::now());
        let mut places = Vec::new();
        for number in 0..CONNECTIONS_MAX as u32 {
            let of = host(if number == 0 { 1 } else { 2 });
            places.push(
                seats
                    .take(of, start + number * Duration::from_millis(1))
                    .unwrap(),
            );
        }
        assert!(places.iter().all(|place| !place.replaces));
        // The first connection of the greediest host is the second of all.
        let mut replaces = seats.take(host(3), start + SILENCE_MIN / 2).unwrap();
        assert!(replaces.replaces);
        assert!(
            places[1]
                .end
                .try_recv()
                .is_err_and(|it| it == oneshot::error::TryRecvError::Closed)
        );
        assert!(
            places[0]
                .end
                .try_recv()
                .is_err_and(|it| it == oneshot::error::TryRecvError::Empty)
        );
        assert!(
            replaces
                .end
                .try_recv()
                .is_err_and(|it| it == oneshot::error::TryRecvError::Empty)
        );
        // That host itself replaces none before one was silent for a while.
        assert!(seats.take(host(2), start + SILENCE_MIN / 2).is_none());
        assert!(seats.take(host(2), start + 2 * SILENCE_MIN).is_some());
        seats.leave(places[0].number);
        let free = seats.take(host(2), start).unwrap();
        assert!(!free.replaces);
    }

    #[test]
    fn connections_of_different_hosts_that_send_lines_keep_their_places() {
        let (mut seats, start) = (Seats::default(), Instant::now());
        let mut places = Vec::new();
        for number in 0..CONNECTIONS_MAX as u8 {
            places.push(seats.take(host(number), start).unwrap());
        }
        let later = start + 3 * SILENCE_MIN;
        for place in &places {
            place.silence.set(Some(later));
        }
        assert!(seats.take(host(200), later).is_none());
        // One whose lines wait to be stored is not silent.
        for place in &places[1..] {
            place.silence.set(None);
        }
        assert!(seats.take(host(200), later + SILENCE_MIN / 2).is_none());
        assert!(seats.take(host(200), later + SILENCE_MIN).is_some());
        assert!(places[0].end.try_recv().is_err());
        assert!(seats.taken.len() == CONNECTIONS_MAX && !seats.taken.contains_key(&1));
    }
}

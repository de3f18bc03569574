//! Resolution of host names in announcements.
//!
//! Anybody can announce a name, and the system's resolver keeps its thread until it gives up, which takes longer than
//! any limit here. So names are resolved on threads of their own, a few at a time: those of the runtime serve other
//! things.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use super::turns::AddressTurns;

/// The time limit for the resolution of a name. Reason: a resolver asks three times within 5 s each, and the next
/// address of the device is tried afterwards.
const DEADLINE: Duration = Duration::from_secs(5);
/// The addresses of a name that are judged. Reason: a device has one or two.
const ADDRESSES_MAX: usize = 8;
/// Threads that resolve names. Reason: a site has few devices with names, and a resolver that answers takes
/// milliseconds.
const THREADS_MAX: usize = 4;
/// The same, for names that one address has announced: others have a thread left.
const THREADS_OF_SENDER_MAX: usize = THREADS_MAX / 2;
/// The size of their stacks, in bytes. Reason: modules of the system's resolver run there; a stranger cannot make
/// them recurse.
const STACK_BYTES: usize = 1 << 20;
/// Time for which a name without an address is not asked for again. Reason: a device is announced and described
/// several times in a row.
const FAILURE_PERIOD: Duration = Duration::from_secs(30);
/// Names without an address that are remembered; then all are forgotten. Reason: the threads fail for fewer in
/// [`FAILURE_PERIOD`].
const FAILURES_MAX: usize = 1_024;

/// Resolves names.
pub(super) struct Resolver {
    threads: Arc<Semaphore>,
    of_sender: AddressTurns,
    failures: Mutex<Failures>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self {
            threads: Arc::new(Semaphore::new(THREADS_MAX)),
            of_sender: AddressTurns::new(THREADS_OF_SENDER_MAX),
            failures: Mutex::default(),
        }
    }
}

impl Resolver {
    /// The addresses of a host name that `sender` gave; none if it is unknown or takes too long.
    pub(super) async fn resolve(&self, name: &str, sender: IpAddr) -> Vec<IpAddr> {
        self.resolve_by(name, sender, ask_system).await
    }

    async fn resolve_by(
        &self,
        name: &str,
        sender: IpAddr,
        lookup: impl FnOnce(&str) -> Vec<IpAddr> + Send + 'static,
    ) -> Vec<IpAddr> {
        if self.with_failures(|failures| failures.contains(name, Instant::now())) {
            return Vec::new();
        }
        let mut is_asked = false;
        let asking = async {
            let of_sender = self.of_sender.wait(sender).await?;
            let of_all = Arc::clone(&self.threads).acquire_owned().await.ok()?;
            let (send, receive) = oneshot::channel();
            let name = name.to_owned();
            let resolving = move || {
                // The turns end with the thread, which may outlive the one that waits for it.
                let _turns = (of_sender, of_all);
                let _ = send.send(lookup(&name));
            };
            let thread = thread::Builder::new()
                .name("resolver".to_owned())
                .stack_size(STACK_BYTES);
            thread.spawn(resolving).ok()?;
            is_asked = true;
            receive.await.ok()
        };
        let found = timeout(DEADLINE, asking).await.ok().flatten();
        let found = found.unwrap_or_default();
        // Without a turn nothing is known of the name.
        if is_asked && found.is_empty() {
            self.with_failures(|failures| failures.add(name, Instant::now()));
        }
        found
    }

    fn with_failures<T>(&self, work: impl FnOnce(&mut Failures) -> T) -> T {
        let failures = self.failures.lock();
        work(&mut failures.unwrap_or_else(PoisonError::into_inner))
    }
}

fn ask_system(name: &str) -> Vec<IpAddr> {
    let found = (name, 0).to_socket_addrs().into_iter().flatten();
    found.map(|it| it.ip()).take(ADDRESSES_MAX).collect()
}

/// Names that had no address, and when that was.
#[derive(Default)]
struct Failures(HashMap<String, Instant>);

impl Failures {
    fn contains(&self, name: &str, now: Instant) -> bool {
        let at = self.0.get(&name.to_ascii_lowercase());
        at.is_some_and(|at| now.duration_since(*at) < FAILURE_PERIOD)
    }

    fn add(&mut self, name: &str, now: Instant) {
        if self.0.len() >= FAILURES_MAX {
            self.0.clear();
        }
        self.0.insert(name.to_ascii_lowercase(), now);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn names_that_hang_leave_the_threads_of_the_runtime_and_one_of_each_other_sender() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let resolver = Resolver::default();
            let [forger, other, third] = [66, 7, 8].map(|n| IpAddr::from([192, 0, 2, n]));
            let (release, hanging) = mpsc::channel::<()>();
            let hanging = Arc::new(Mutex::new(hanging));
            let hang = |name: String, sender| {
                let hanging = Arc::clone(&hanging);
                let resolver = &resolver;
                let mut asking: Pin<Box<dyn Future<Output = _>>> = Box::pin(async move {
                    let lookup = move |_: &str| {
                        let _ = hanging.lock().unwrap().recv();
                        Vec::new()
                    };
                    resolver.resolve_by(&name, sender, lookup).await
                });
                let polled = asking
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(polled, Poll::Pending);
                asking
            };
            let mut asked: Vec<_> = (0..16).map(|n| hang(format!("n{n}"), forger)).collect();
            assert_eq!(
                resolver.threads.available_permits(),
                2,
                "16 names of one sender"
            );
            let address = IpAddr::from([192, 0, 2, 9]);
            let lookup = move |_: &str| vec![address];
            assert_eq!(resolver.resolve_by("true", other, lookup).await, [address]);
            // Its thread has ended.
            drop(resolver.threads.acquire_many(2).await.unwrap());
            assert_eq!(tokio::task::spawn_blocking(|| 7).await.unwrap(), 7);
            asked.extend((0..2).map(|n| hang(format!("m{n}"), other)));
            assert_eq!(resolver.threads.available_permits(), 0);
            // The one that waits gives up, and the thread keeps its turn.
            asked.clear();
            assert_eq!(resolver.threads.available_permits(), 0);
            drop(release);
            let all = u32::try_from(THREADS_MAX).unwrap();
            drop(resolver.threads.acquire_many(all).await.unwrap());
            assert_eq!(resolver.resolve_by("true", third, lookup).await, [address]);
        });
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_not_asked_for_again_soon() {
        let resolver = Resolver::default();
        let sender = IpAddr::from([192, 0, 2, 66]);
        let nothing = |_: &str| Vec::new();
        assert!(
            resolver
                .resolve_by("evil", sender, nothing)
                .await
                .is_empty()
        );
        let something = move |_: &str| vec![sender];
        assert!(
            resolver
                .resolve_by("EVIL", sender, something)
                .await
                .is_empty()
        );
        let mut failures = Failures::default();
        let now = Instant::now();
        failures.add("evil", now);
        assert!(failures.contains("evil", now));
        assert!(!failures.contains("evil", now + FAILURE_PERIOD));
        for n in 0..2 * FAILURES_MAX {
            failures.add(&n.to_string(), now);
        }
        assert!(failures.0.len() <= FAILURES_MAX);
    }
}

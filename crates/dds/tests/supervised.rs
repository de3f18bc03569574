//! Goal: users of a supervised participant notice no panic of the library, lose nothing by a restart, and are not
//! blocked by a reader that acknowledges nothing. Samples that a full reader drops are counted.
//! Method: supervisors and participants on loopback; a panic of the calling thread and a stall of the library's (with
//! the feature `planted`); a reader in another process that is stopped by a signal.

#![cfg(cyclone)]

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chappe_dds::{
    Durability, Inlet, InletConfig, Octets, Outgoing, Outlet, OutletConfig, ParticipantConfig, Qos,
    Stalled, State, Supervisor, SupervisorConfig, Topic, open,
};
#[cfg(feature = "planted")]
use chappe_dds::{Notice, SupervisorStatus, planted};
use chappe_flow::pacer::Choice;

const PATIENCE: Duration = Duration::from_secs(240);
const WINDOW: u32 = 16;

/// The tests run one at a time: each needs two processors.
static ONE: Mutex<()> = Mutex::new(());

fn participant(offset: u32) -> ParticipantConfig {
    // Below 101 its ports are below the ephemeral range.
    let domain = 1 + (std::process::id().wrapping_mul(7) + offset * 53) % 100;
    ParticipantConfig {
        domain: u16::try_from(domain).unwrap(),
        ..ParticipantConfig::default()
    }
}

fn topic() -> Topic {
    // Of this process, or of its parent: other processes may be in its domain.
    let own = || std::process::id().to_string();
    let of = std::env::var("CHAPPE_TEST_TOPIC").unwrap_or_else(|_| own());
    Topic {
        name: format!("chappe/test/supervised/{of}"),
        type_name: Octets::TYPE_NAME.into(),
    }
}

fn supervisor(participant: &ParticipantConfig) -> Supervisor {
    Supervisor::start(SupervisorConfig {
        participant: participant.clone(),
        ..SupervisorConfig::default()
    })
    .unwrap()
}

/// A replaced volatile writer counts samples as acknowledged before its readers have found it (docs/reference/dds.md); this one
/// keeps them.
fn kept(qos: Qos) -> Qos {
    Qos {
        durability: Durability::TransientLocal,
        ..qos
    }
}

fn outlet(supervisor: &Supervisor, readers: usize, stalled: Stalled) -> Outlet {
    supervisor
        .writer(OutletConfig {
            topic: topic(),
            qos: kept(Qos::reliable_writer(WINDOW)),
            readers,
            stalled,
            // Readers never count as stalled, however slow the machine.
            stalled_after: match stalled {
                Stalled::Wait => PATIENCE,
                Stalled::Pass => Duration::from_secs(2),
            },
            pacer: Choice::Flood,
        })
        .unwrap()
}

/// A reader that has room for all samples of a test. A full one drops acknowledged samples when its thread does not run
/// for some milliseconds, which another test covers.
fn inlet(supervisor: &Supervisor) -> Inlet {
    inlet_of(supervisor, 4_096)
}

fn inlet_of(supervisor: &Supervisor, max_samples: u32) -> Inlet {
    let qos = Qos {
        max_samples,
        ..kept(Qos::default())
    };
    let config = InletConfig {
        topic: topic(),
        qos,
    };
    supervisor.reader(config).unwrap()
}

/// Sends samples; after each restart it continues after the last acknowledged one.
async fn send_all(outlet: &Outlet, count: u64) {
    let mut progress = outlet.progress();
    let (mut generation, mut acknowledged, mut next) = (0, 0, 1);
    while acknowledged < count {
        let now = *progress.borrow_and_update();
        if let Some(through) = now.acknowledged {
            acknowledged = acknowledged.max(through);
        }
        if now.generation != generation {
            generation = now.generation;
            next = acknowledged + 1;
        }
        if generation == 0 || next > count {
            if acknowledged < count {
                progress.changed().await.unwrap();
            }
            continue;
        }
        let octets = Octets {
            number: next,
            octets: vec![0; 1_000].into(),
            ..Octets::default()
        };
        let outgoing = Outgoing {
            generation,
            tag: next,
            payload: octets.payload(),
        };
        tokio::select! {
            sent = outlet.send(outgoing) => { sent.unwrap(); next += 1; }
            changed = progress.changed() => changed.unwrap(),
        }
    }
}

/// Receives until each number has arrived. Returns the number of duplicates.
async fn receive_all(inlet: &mut Inlet, count: u64) -> u64 {
    let (mut newest, mut again) = (0, 0);
    while newest < count {
        let sample = inlet.receive().await.expect("the supervisor lives");
        let number = Octets::read(&sample.payload).unwrap().number;
        assert!(number <= newest + 1, "{number} arrived after {newest}");
        again += u64::from(number <= newest);
        newest = newest.max(number);
    }
    again
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let bounded = async { tokio::time::timeout(PATIENCE, future).await };
    runtime.block_on(bounded).expect("it ends in time")
}

#[test]
fn sent_samples_are_received_and_acknowledged() {
    let _one = ONE.lock();
    let config = participant(0);
    let (here, there) = (supervisor(&config), supervisor(&config));
    let outlet = outlet(&here, 1, Stalled::Wait);
    let mut inlet = inlet(&there);
    let again = block_on(async {
        let (again, ()) = tokio::join!(receive_all(&mut inlet, 500), send_all(&outlet, 500));
        again
    });
    assert_eq!(again, 0);
    let (status, reader) = (here.status(), inlet.status());
    assert_eq!(status.state, State::Running);
    assert_eq!((status.restarts, status.panics, status.stalls), (0, 0, 0));
    assert_eq!(status.writers[0].sent, 500);
    assert_eq!(status.writers[0].acknowledged, 500);
    assert_eq!((reader.received, reader.lost), (500, 0));
}

#[test]
fn samples_that_a_full_reader_drops_are_counted() {
    const COUNT: u64 = 2_000;
    let _one = ONE.lock();
    let config = participant(4);
    let (here, there) = (supervisor(&config), supervisor(&config));
    let outlet = outlet(&here, 1, Stalled::Wait);
    // Nothing is received before everything is acknowledged, so the reader is full.
    let mut inlet = inlet_of(&there, 64);
    block_on(send_all(&outlet, COUNT));
    let mut received = 0;
    block_on(async {
        let mut newest = 0;
        while newest < COUNT {
            let sample = inlet.receive().await.expect("the supervisor lives");
            let number = Octets::read(&sample.payload).unwrap().number;
            assert!(number > newest, "{number} arrived after {newest}");
            (received, newest) = (received + 1, number);
        }
    });
    assert!(received < COUNT, "{received} arrived");
    let status = inlet.status();
    assert_eq!((status.received, status.lost), (received, COUNT - received));
}

/// The library fails amid 2,000 samples: all of them arrive. Returns the status afterwards.
#[cfg(feature = "planted")]
fn lose_nothing_by(fault: planted::Fault, number: u32) -> SupervisorStatus {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let _one = ONE.lock();
    let config = participant(number);
    let restarted = Arc::new(AtomicBool::new(false));
    let told = restarted.clone();
    let here = Supervisor::start(SupervisorConfig {
        participant: config.clone(),
        notice: Arc::new(move |notice| {
            if matches!(notice, Notice::Restarted { .. }) {
                told.store(true, Ordering::SeqCst);
            }
        }),
        ..SupervisorConfig::default()
    })
    .unwrap();
    let outlet = outlet(&here, 1, Stalled::Wait);
    let there = supervisor(&config);
    let mut inlet = inlet(&there);
    block_on(async {
        let sending = send_all(&outlet, 2_000);
        let receiving = async {
            for _ in 0..200 {
                inlet.receive().await.unwrap();
            }
            let guid = here.status().guid.expect("the participant runs");
            planted::fail_next_acknowledgement(&guid, fault);
            // From 200 on: earlier numbers were received, so repeated ones are not new.
            let mut newest = 200;
            while newest < 2_000 {
                let sample = inlet.receive().await.unwrap();
                let number = Octets::read(&sample.payload).unwrap().number;
                assert!(number <= newest + 1, "{number} arrived after {newest}");
                newest = newest.max(number);
            }
        };
        tokio::join!(sending, receiving);
    });
    assert_eq!(there.status().restarts, 0);
    assert_eq!(inlet.status().lost, 0);
    assert!(restarted.load(Ordering::SeqCst));
    here.status()
}

#[test]
#[cfg(feature = "planted")]
fn a_panic_in_the_library_is_counted_and_nothing_is_lost() {
    let here = lose_nothing_by(planted::Fault::Panic, 1);
    assert_eq!((here.restarts, here.panics), (1, 1), "{here:?}");
}

/// One of its threads blocks with its lock, and so does every thread that waits for the lock.
#[test]
#[cfg(feature = "planted")]
fn a_stall_of_the_library_is_counted_and_nothing_is_lost() {
    let here = lose_nothing_by(planted::Fault::Stall, 3);
    assert!(here.stalls >= 1, "{here:?}");
    assert_eq!((here.restarts, here.panics), (here.stalls, 0), "{here:?}");
    assert_eq!(here.state, State::Running);
}

/// The library runs out of memory and calls `abort` in its own thread, which ends that thread and not the program.
#[test]
#[cfg(feature = "planted")]
fn an_abort_of_the_library_is_counted_and_nothing_is_lost() {
    let here = lose_nothing_by(planted::Fault::Abort, 5);
    assert!(here.restarts >= 1 && here.aborts == 1, "{here:?}");
    assert_eq!(here.state, State::Running);
}

/// The reader or writer of another process.
struct Other(Child);

impl Other {
    fn start(what: &str, domain: u16) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", what, "--ignored"])
            .env("CHAPPE_TEST_DOMAIN", domain.to_string())
            .env("CHAPPE_TEST_TOPIC", std::process::id().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Stops it. A thread may run on for a moment after the signal was sent.
    fn stop(&self) {
        self.signal("-STOP");
        let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
            // A thread that has ended meanwhile has no file.
            stat.is_ok_and(|stat| stat.contains(") T ") || stat.contains(") Z "))
        };
        // Other systems than Linux have no such folder.
        let threads = format!("/proc/{}/task", self.0.id());
        while std::fs::read_dir(&threads).is_ok_and(|mut threads| !threads.all(is_stopped)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn a_reader_in_a_process() {
    let Ok(domain) = std::env::var("CHAPPE_TEST_DOMAIN") else {
        return;
    };
    let config = ParticipantConfig {
        domain: domain.parse().unwrap(),
        ..ParticipantConfig::default()
    };
    let mut participant = open(&config).unwrap();
    let qos = Qos::reliable_reader(WINDOW);
    let mut reader = participant.reader(&topic(), &qos).unwrap();
    let (begun, mut taken) = (Instant::now(), Vec::new());
    while begun.elapsed() < PATIENCE * 2 {
        participant.wait(Duration::from_millis(50)).unwrap();
        while participant.event().is_some() {}
        reader.take(usize::MAX, &mut taken).unwrap();
        taken.clear();
    }
}

/// A writer without the readers that it needs counts nothing as acknowledged, although the library does.
#[test]
fn samples_that_a_reader_lacked_when_it_left_are_sent_again() {
    /// Twice as many are what the writer keeps for late readers: more would arrive without their beginning.
    const COUNT: u64 = WINDOW as u64 / 2;
    let _one = ONE.lock();
    let config = participant(6);
    let here = supervisor(&config);
    let outlet = outlet(&here, 1, Stalled::Wait);
    let other = Other::start("a_reader_in_a_process", config.domain);
    let matched = || here.status().writers[0].end.matched;
    let until = async |what: &dyn Fn() -> bool| {
        while !what() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut progress = outlet.progress();
    let again = block_on(async {
        until(&|| matched() == 1).await;
        other.stop();
        let lacking = async {
            until(&|| here.status().writers[0].unacknowledged == COUNT).await;
            drop(other);
            // When its lease of ten seconds has passed.
            until(&|| matched() == 0).await;
        };
        tokio::select! {
            () = send_all(&outlet, COUNT) => unreachable!("the reader is stopped"),
            () = lacking => {}
        }
        progress.wait_for(|now| now.generation == 2).await.unwrap();
        assert_eq!(outlet.status().acknowledged, 0);
        let there = supervisor(&config);
        let mut inlet = inlet(&there);
        let both = async { tokio::join!(receive_all(&mut inlet, COUNT), send_all(&outlet, COUNT)) };
        both.await.0
    });
    // The writer keeps samples for late readers.
    assert!(again <= COUNT, "{again}");
    assert_eq!(outlet.status().given_up, COUNT);
}

#[test]
fn a_stalled_reader_does_not_delay_the_others() {
    let _one = ONE.lock();
    let config = participant(2);
    let here = supervisor(&config);
    // One is enough to write: the stopped reader leaves when its lease of ten seconds has passed.
    let outlet = outlet(&here, 1, Stalled::Pass);
    let there = supervisor(&config);
    let mut inlet = inlet(&there);
    let other = Other::start("a_reader_in_a_process", config.domain);
    let begun = Instant::now();
    while here.status().writers[0].end.matched < 2 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", here.status());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut came, mut newest) = (0, 0);
    block_on(async {
        let receiving = async {
            while came < 250 {
                let sample = inlet.receive().await.unwrap();
                let number = Octets::read(&sample.payload).unwrap().number;
                assert!(number > newest, "{number} arrived after {newest}");
                (came, newest) = (came + 1, number);
                if came == 10 {
                    other.stop();
                }
            }
        };
        tokio::select! {
            () = send_all(&outlet, u64::MAX) => {}
            () = receiving => {}
        }
    });
    let writer = &here.status().writers[0];
    assert!(writer.stalls >= 1, "{writer:?}");
    assert!(writer.renewed >= 1 && writer.given_up > 0, "{writer:?}");
    assert!(writer.blocked_s > 0.0, "{writer:?}");
    // A reader that is slower than the pause before a new writer may miss the given-up samples, but no others.
    assert!(
        newest - came <= writer.given_up,
        "{came} of {newest}, {writer:?}"
    );
}

//! `chappe perf`: a publisher and subscribers that measure a carrier of samples.
//!
//! It has the features of RTI Perftest and ddsperf: sizes, a rate or a pacer, warm-up and duration,
//! latency percentiles, throughput, lost and retransmitted samples. In addition it shows how the
//! occupation of the window and the time between samples change. One loop measures every carrier;
//! the seam is in `carrier`. A [`chappe_flow::Pacer`], the one of sessions, decides the pace above
//! the carrier, as an application would.
//!
//! A phase is a size with a pacer, measured for some time after a warm-up and drained before the
//! next. Occupation is the number of samples in flight just before one is written. Latency is the
//! time from writing to taking by the monotonic clock of one machine; between two machines it is
//! half of the time until a sample is back, by the publisher's clock. Nothing is estimated between
//! clocks.

#![forbid(unsafe_code)]

mod carrier;
mod criteria;
#[cfg(feature = "dds")]
mod dds;
mod error;
mod histogram;
mod outcome;
mod publish;
mod publisher;
mod sample;
mod session;
mod subscriber;
mod usage;
mod zeromq;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chappe_flow::pacer::Choice;
use chappe_transport::ReceiveBuffer;
use chappe_transport::zeromq::CurvePublic;

pub use criteria::Criteria;
#[cfg(feature = "dds")]
pub use dds::Domain;
pub use error::Error;
pub use outcome::{
    Criterion, Event, Method, Published, PublisherInterval, PublisherPhase, Subscribed,
    SubscriberInterval, SubscriberPhase, Times,
};
pub use sample::{SAMPLE_BYTES_MAX, SAMPLE_BYTES_MIN};

use carrier::{Inlet, Outlet};
use session::Taking;

/// Maximum number of phases of a run: their numbers have 16 bits.
pub const PHASES_MAX: usize = 65_535;

/// The default DDS topic.
pub const TOPIC: &str = "chappe/perf";

/// The carrier of the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// Sessions of `chappe-flow` over ZeroMQ's DEALER and ROUTER: reliable.
    Sessions {
        /// The publisher's address, `tcp://HOST:PORT`.
        endpoint: String,
    },
    /// ZeroMQ's PUB and SUB: best effort.
    PublishSubscribe {
        /// The publisher's address, `tcp://HOST:PORT`.
        endpoint: String,
    },
    /// A topic of DDS, reliable or not.
    #[cfg(feature = "dds")]
    Dds(Domain),
}

impl Carrier {
    /// Whether samples are acknowledged.
    #[must_use]
    pub const fn is_reliable(&self) -> bool {
        match self {
            Self::Sessions { .. } => true,
            Self::PublishSubscribe { .. } => false,
            #[cfg(feature = "dds")]
            Self::Dds(domain) => domain.reliable,
        }
    }
}

/// The settings of a publisher.
#[derive(Debug, Clone)]
pub struct PublishSettings {
    /// The carrier.
    pub carrier: Carrier,
    /// Public keys that are allowed; if there are any, CURVE is used on loopback too. None: beyond
    /// loopback, anybody who knows the publisher's key is allowed.
    pub allow: Vec<CurvePublic>,
    /// Bytes of a sample.
    pub sizes: Vec<usize>,
    /// Pacers; each with each size.
    pub pacings: Vec<Choice>,
    /// For the paper's pacer: the capacity of the link, bytes a second.
    pub capacity_bytes_per_s: f64,
    /// For the paper's pacer: number of samples acknowledged at once.
    pub acknowledged_at_once: u64,
    /// Number of repetitions of all phases.
    pub repeats: usize,
    /// Maximum number of samples in flight.
    pub window: u64,
    /// Unmeasured time at the start of each phase, at its pace.
    pub warm_up: Duration,
    /// Duration of the measurement of a phase.
    pub duration: Duration,
    /// A phase ends early after this many measured samples.
    pub count: Option<u64>,
    /// Start once this many subscribers are present.
    pub subscribers: usize,
    /// Time limit for them to connect.
    pub wait: Duration,
    /// One in this many samples is sent back; 0: none.
    pub echo: u64,
    /// Interval of the rows.
    pub interval: Duration,
    /// The end of each wait between samples that is spent polling the clock.
    pub spin: Duration,
    /// The criteria.
    pub criteria: Criteria,
    /// Set from outside: end now, and report the results so far.
    pub stop: Arc<AtomicBool>,
}

/// The settings of a subscriber.
#[derive(Debug, Clone)]
pub struct SubscribeSettings {
    /// The carrier.
    pub carrier: Carrier,
    /// The publisher's public key, with CURVE.
    pub server_key: Option<CurvePublic>,
    /// Time limit for the publisher to appear, and then for its first sample.
    pub wait: Duration,
    /// Ends after this time without a sample.
    pub idle: Duration,
    /// Time that it spends on each sample.
    pub take_for: Duration,
    /// It spends twice that from this time after the first sample on.
    pub slows_after: Option<Duration>,
    /// Maximum number of bytes in flight to it, over sessions.
    pub window_bytes: u64,
    /// Acknowledge after this many samples, over sessions.
    pub acknowledge_every: u64,
    /// Acknowledge at the latest this long after a sample arrived, over sessions.
    pub acknowledge_delay: Duration,
    /// Interval of the rows.
    pub interval: Duration,
    /// The criteria.
    pub criteria: Criteria,
    /// Set from outside: end now, and report the results so far.
    pub stop: Arc<AtomicBool>,
}

/// Publishes on the calling thread for the duration of the phases. `tell` receives the events.
///
/// # Errors
/// It cannot start, or cannot continue to the end. A missed criterion is not an error.
pub fn publish(
    settings: &PublishSettings,
    tell: &mut dyn FnMut(Event),
) -> Result<Published, Error> {
    check(settings)?;
    warn_of_buffers(tell);
    let spin = settings.spin;
    let (mut outlet, endpoint, key): (Box<dyn Outlet>, _, _) = match &settings.carrier {
        Carrier::Sessions { endpoint } => {
            let outlet = session::SessionOutlet::bind(endpoint, &settings.allow, spin)?;
            let (endpoint, key) = outlet.address();
            (Box::new(outlet), endpoint, key)
        }
        Carrier::PublishSubscribe { endpoint } => {
            let outlet = publish::PublisherOutlet::bind(endpoint, &settings.allow, spin)?;
            let (endpoint, key) = outlet.address();
            (Box::new(outlet), endpoint, key)
        }
        #[cfg(feature = "dds")]
        Carrier::Dds(domain) => {
            let outlet = dds::DdsOutlet::open(domain, settings.echo > 0, spin)?;
            (Box::new(outlet), domain.address(), None)
        }
    };
    let server_key = key.map(|key| key.to_z85());
    tell(Event::Listening {
        endpoint,
        server_key,
    });
    let mut outcome = publisher::run(settings, outlet.as_mut(), tell)?;
    outcome.criteria = settings.criteria.judge_publisher(&outcome);
    Ok(outcome)
}

/// Subscribes on the calling thread, until the publisher's last sample. `tell` receives the events.
///
/// # Errors
/// There is no publisher, or it is not understood. Missing samples and a missed criterion are not
/// errors.
pub fn subscribe(
    settings: &SubscribeSettings,
    tell: &mut dyn FnMut(Event),
) -> Result<Subscribed, Error> {
    warn_of_buffers(tell);
    let patience = chappe_transport::Clock::process().now() + settings.wait;
    let mut inlet: Box<dyn Inlet> = match &settings.carrier {
        Carrier::Sessions { endpoint } => {
            let taking = Taking {
                window_bytes: settings.window_bytes,
                acknowledge_every: settings.acknowledge_every,
                acknowledge_delay: settings.acknowledge_delay,
            };
            let key = settings.server_key;
            Box::new(session::SessionInlet::connect(
                endpoint, key, taking, patience,
            )?)
        }
        Carrier::PublishSubscribe { endpoint } => {
            let key = settings.server_key;
            Box::new(publish::SubscriberInlet::connect(endpoint, key)?)
        }
        #[cfg(feature = "dds")]
        Carrier::Dds(domain) => Box::new(dds::DdsInlet::open(domain)?),
    };
    let mut outcome = subscriber::run(settings, inlet.as_mut(), patience, tell)?;
    let reliable = settings.carrier.is_reliable();
    outcome.criteria = settings.criteria.judge_subscriber(&outcome, reliable);
    Ok(outcome)
}

fn check(settings: &PublishSettings) -> Result<(), Error> {
    let phases = settings.sizes.len() * settings.pacings.len() * settings.repeats;
    if phases == 0 || phases > PHASES_MAX {
        let text = format!("{phases} phases are requested; 1 to {PHASES_MAX} are allowed");
        return Err(Error::new(text));
    }
    let range = SAMPLE_BYTES_MIN..=SAMPLE_BYTES_MAX;
    if let Some(size) = settings.sizes.iter().find(|size| !range.contains(size)) {
        let text = format!("a sample of {size} bytes is outside {range:?}");
        return Err(Error::new(text).hint("--size 5000,20000,100000"));
    }
    if settings.window == 0 {
        return Err(Error::new("a window of 0 samples sends nothing").hint("--window 1000"));
    }
    if !settings.carrier.is_reliable() {
        let needs = |pacing: &&Choice| pacing.needs_acknowledgements();
        if let Some(pacing) = settings.pacings.iter().find(needs) {
            let text = format!("{pacing} needs acknowledgements, which best effort lacks");
            return Err(
                Error::new(text).hint("use --pacer fixed_period:1ms, or omit --best-effort")
            );
        }
        if settings.echo > 0 && matches!(settings.carrier, Carrier::PublishSubscribe { .. }) {
            let text = "samples cannot be sent back over PUB and SUB";
            return Err(Error::new(text).hint("measure round trips without --best-effort"));
        }
    }
    settings.criteria.for_publisher(settings.echo > 0)
}

fn warn_of_buffers(tell: &mut dyn FnMut(Event)) {
    let buffer = ReceiveBuffer::ask(chappe_transport::RECEIVE_BUFFER_BYTES).ok();
    if let Some((buffer, text)) = buffer.and_then(|it| Some((it, it.complaint()?))) {
        let hint = buffer.remedy();
        tell(Event::Warning { text, hint });
    }
}

fn warn_of_mismatch(mismatch: Option<String>, tell: &mut dyn FnMut(Event)) {
    if let Some(text) = mismatch {
        let hint = "use --best-effort at both ends or at neither".to_owned();
        tell(Event::Warning { text, hint });
    }
}

fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

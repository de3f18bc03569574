//! `chappe perf`: a publisher and subscribers that measure a carrier of samples.
//!
//! What users of RTI Perftest and ddsperf expect: sizes, a rate or a pacer, warm-up and duration,
//! latency percentiles, throughput, lost, sent again, and what Chappe adds: the occupation of the
//! window and the time between samples as they change. One loop measures, whatever carries: the seam
//! is in `carrier`. The pace is decided by a [`chappe_flow::Pacer`], the same that sessions use,
//! above the carrier, as an application would.
//!
//! A phase is a size with a pacer, measured for some time after a warm-up and drained before the
//! next. Occupation is what is on the way just before a sample is written. Latency is from writing to
//! taking by the one monotonic clock of a machine; where there are two machines, half of the time
//! until a sample is back, by the publisher's clock. Nothing is estimated between clocks.

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
use chappe_transport::zeromq::CurvePublic;
use chappe_transport::{FragmentMemory, ReceiveBuffer};

#[cfg(feature = "dds")]
pub use chappe_dds::Backend as Library;
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

/// Most phases of a run: their numbers have 16 bits.
pub const PHASES_MAX: usize = 65_535;

/// The topic of DDS where none is named.
pub const TOPIC: &str = "chappe/perf";

/// What carries the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// Sessions of `chappe-flow` over ZeroMQ's DEALER and ROUTER: reliable.
    Sessions {
        /// Where the publisher listens, `tcp://HOST:PORT`.
        endpoint: String,
    },
    /// ZeroMQ's PUB and SUB: best effort.
    PublishSubscribe {
        /// Where the publisher listens, `tcp://HOST:PORT`.
        endpoint: String,
    },
    /// A topic of DDS, reliable or not.
    #[cfg(feature = "dds")]
    Dds(Domain),
}

impl Carrier {
    /// Whether it sends datagrams that frames of a network do not hold.
    fn fragments(&self) -> bool {
        match self {
            #[cfg(feature = "dds")]
            Self::Dds(domain) => domain.interfaces.iter().any(|it| !it.is_loopback()),
            _ => false,
        }
    }

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

/// What a publisher does.
#[derive(Debug, Clone)]
pub struct PublishSettings {
    /// Over what.
    pub carrier: Carrier,
    /// Public keys that are let in; with any, CURVE is used on loopback too. None: beyond loopback
    /// whoever knows the publisher's key.
    pub allow: Vec<CurvePublic>,
    /// Bytes of a sample.
    pub sizes: Vec<usize>,
    /// Pacers; each with each size.
    pub pacings: Vec<Choice>,
    /// For the paper's pacer: the capacity of the link, bytes a second.
    pub capacity_bytes_per_s: f64,
    /// For the paper's pacer: so many samples are acknowledged at once.
    pub acknowledged_at_once: u64,
    /// How often all of that.
    pub repeats: usize,
    /// Samples that may be on the way.
    pub window: u64,
    /// Time at the pace of a phase that is not measured.
    pub warm_up: Duration,
    /// How long a phase is measured.
    pub duration: Duration,
    /// A phase ends earlier after so many measured samples.
    pub count: Option<u64>,
    /// Begin with so many subscribers.
    pub subscribers: usize,
    /// How long they are waited for.
    pub wait: Duration,
    /// Every so many samples one is sent back; 0: none.
    pub echo: u64,
    /// How often a row is told.
    pub interval: Duration,
    /// The last of each wait between samples that is spent looking at the clock.
    pub spin: Duration,
    /// What must hold.
    pub criteria: Criteria,
    /// Set from elsewhere: end now, and tell what was measured.
    pub stop: Arc<AtomicBool>,
}

/// What a subscriber does.
#[derive(Debug, Clone)]
pub struct SubscribeSettings {
    /// Over what.
    pub carrier: Carrier,
    /// The publisher's public key, with CURVE.
    pub server_key: Option<CurvePublic>,
    /// How long the publisher, and then its first sample, is waited for.
    pub wait: Duration,
    /// After so long without a sample it ends.
    pub idle: Duration,
    /// How long it is busy with each sample.
    pub take_for: Duration,
    /// Bytes that may be on the way to it, over sessions.
    pub window_bytes: u64,
    /// Acknowledge after so many samples, over sessions.
    pub acknowledge_every: u64,
    /// Acknowledge at the latest so long after a sample came, over sessions.
    pub acknowledge_delay: Duration,
    /// How often a row is told.
    pub interval: Duration,
    /// What must hold.
    pub criteria: Criteria,
    /// Set from elsewhere: end now, and tell what was measured.
    pub stop: Arc<AtomicBool>,
}

/// Publishes; takes as long as the phases, and the thread that calls. `tell` hears of what happens.
///
/// # Errors
/// When it cannot begin, or not go on to the end. A criterion that is not met is no error.
pub fn publish(
    settings: &PublishSettings,
    tell: &mut dyn FnMut(Event),
) -> Result<Published, Error> {
    check(settings)?;
    warn_of_buffers(&settings.carrier, tell);
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

/// Subscribes, until the publisher's last sample; takes the thread that calls. `tell` hears of what
/// happens.
///
/// # Errors
/// When there is no publisher, or it cannot be understood. Samples that are missing, and a criterion
/// that is not met, are no errors.
pub fn subscribe(
    settings: &SubscribeSettings,
    tell: &mut dyn FnMut(Event),
) -> Result<Subscribed, Error> {
    warn_of_buffers(&settings.carrier, tell);
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
        let text = format!("{phases} phases are asked for; there can be 1 to {PHASES_MAX}");
        return Err(Error::new(text));
    }
    let range = SAMPLE_BYTES_MIN..=SAMPLE_BYTES_MAX;
    if let Some(size) = settings.sizes.iter().find(|size| !range.contains(size)) {
        let text = format!("a sample of {size} bytes is not between {range:?}");
        return Err(Error::new(text).hint("--size 5000,20000,100000"));
    }
    if settings.window == 0 {
        return Err(Error::new("with a window of nothing, nothing is sent").hint("--window 1000"));
    }
    if !settings.carrier.is_reliable() {
        let needs = |pacing: &&Choice| pacing.needs_acknowledgements();
        if let Some(pacing) = settings.pacings.iter().find(needs) {
            let text = format!("{pacing} needs acknowledgements, which best effort has none of");
            return Err(Error::new(text).hint("--pacer fixed_period:1ms, or without --best-effort"));
        }
        if settings.echo > 0 && matches!(settings.carrier, Carrier::PublishSubscribe { .. }) {
            let text = "over PUB and SUB nothing is sent back";
            return Err(Error::new(text).hint("measure round trips without --best-effort"));
        }
    }
    settings.criteria.for_publisher(settings.echo > 0)
}

fn warn_of_buffers(carrier: &Carrier, tell: &mut dyn FnMut(Event)) {
    let buffer = ReceiveBuffer::ask(chappe_transport::RECEIVE_BUFFER_BYTES).ok();
    if let Some((buffer, text)) = buffer.and_then(|it| Some((it, it.complaint()?))) {
        let hint = buffer.remedy();
        tell(Event::Warning { text, hint });
    }
    let memory = FragmentMemory::read().filter(|_| carrier.fragments());
    if let Some((memory, text)) = memory.and_then(|it| Some((it, it.complaint()?))) {
        let hint = memory.remedy();
        tell(Event::Warning { text, hint });
    }
}

fn warn_of_mismatch(mismatch: Option<String>, tell: &mut dyn FnMut(Event)) {
    if let Some(text) = mismatch {
        let hint = "say --best-effort at both ends or at neither".to_owned();
        tell(Event::Warning { text, hint });
    }
}

fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

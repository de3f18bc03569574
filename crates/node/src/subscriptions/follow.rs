//! One subscriber: reads its changes, with its rights as they are at that moment.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use chappe_registry::{
    Interrupt, Mark, SparqlError, SparqlLimits, Watch, WatchItem, WatchStart, WatchStep,
    WatchSubject,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::accounts::Caller;
use crate::permits::RequestKind;
use crate::shared::App;

/// Rows of a query that a subscription may have; reason: they are kept to be compared.
const ROWS_MAX: usize = 1_000;
/// Bytes of these rows.
const ROWS_BYTES_MAX: usize = 1 << 20;
/// The shortest pause between two evaluations of a query: changes that come together cost one.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// After an evaluation follows a pause of so many times its duration: a query takes at most a tenth of a
/// processor.
const PAUSE_FACTOR: u32 = 9;
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time to wait for a permit to evaluate a query, before it is asked for again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a subscription ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowEnd {
    /// The account of the subscriber was revoked or has expired.
    #[error("the account has ended")]
    Account,
    /// The query has no answer any more.
    #[error("the query has no answer: {0}")]
    Query(#[from] SparqlError),
    /// The evaluation was interrupted by a defect.
    #[error("the evaluation of the query failed")]
    Failed,
}

/// A subscriber.
pub(crate) struct Follow {
    app: App,
    caller: Caller,
    /// Absent while the query is evaluated.
    watch: Option<Watch>,
    evaluation: Option<JoinHandle<Evaluated>>,
    /// When the query is evaluated at the earliest.
    not_before: Instant,
}

/// What an evaluation gives back.
struct Evaluated {
    watch: Watch,
    outcome: Result<(), SparqlError>,
    took: Duration,
}

impl Follow {
    /// Starts to follow what `subject` describes.
    ///
    /// # Errors
    /// The query is invalid.
    pub(crate) fn start(
        app: App,
        caller: Caller,
        subject: WatchSubject,
        start: WatchStart,
    ) -> Result<Self, SparqlError> {
        let watch = app.registry.watch(subject, start, &caller.reader())?;
        Ok(Self {
            app,
            caller,
            watch: Some(watch),
            evaluation: None,
            not_before: Instant::now(),
        })
    }

    /// Follows subclasses and subproperties in a query, as the ontologies of these authors state them.
    pub(crate) fn inferring(mut self, authors: Vec<String>) -> Self {
        self.watch = self.watch.take().map(|watch| watch.inferring(authors));
        self
    }

    /// From where to resume, if all events before were delivered.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.watch.as_ref().and_then(Watch::mark)
    }

    /// What to do next, for the subscriber as it is at each look.
    async fn step(&mut self) -> Result<WatchStep, FollowEnd> {
        let watch = self.watch.as_mut().ok_or(FollowEnd::Failed)?;
        let (app, caller) = (&self.app, &self.caller);
        let session = caller.session();
        poll_fn(|context| {
            let principal = match &session {
                None => caller.reader(),
                Some(session) => match app.accounts.of_session(session) {
                    Ok(now) => now.reader(),
                    Err(_) => return Poll::Ready(Err(FollowEnd::Account)),
                },
            };
            watch.poll_step(context, &principal).map(Ok)
        })
        .await
    }

    /// The next event. It may be dropped and called again without losing one.
    pub(crate) async fn next(&mut self) -> Result<WatchItem, FollowEnd> {
        loop {
            if let Some(evaluation) = &mut self.evaluation {
                let result = evaluation.await;
                self.evaluation = None;
                let evaluated = result.map_err(|_| FollowEnd::Failed)?;
                let pause = (evaluated.took * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX);
                self.not_before = Instant::now() + pause;
                self.watch = Some(evaluated.watch);
                evaluated.outcome?;
            }
            match self.step().await? {
                WatchStep::Event(item) => return Ok(item),
                WatchStep::Evaluate => self.evaluate().await?,
            }
        }
    }

    /// Starts the evaluation of the query when it may be started.
    async fn evaluate(&mut self) -> Result<(), FollowEnd> {
        sleep_until(self.not_before).await;
        let tenant = self.app.shares.tenant(&self.app.accounts, &self.caller);
        let permits = &self.app.permits;
        let taken = permits.take_within(RequestKind::Query, tenant.as_ref(), PATIENCE);
        let Ok(permit) = taken.await else {
            return Ok(());
        };
        let time = Duration::from_millis(u64::from(self.app.config.limits.query_time_ms));
        let limits = SparqlLimits {
            rows: ROWS_MAX.min(self.app.config.limits.query_rows as usize),
            result_bytes: ROWS_BYTES_MAX,
            ..SparqlLimits::default()
        };
        let mut watch = self.watch.take().ok_or(FollowEnd::Failed)?;
        self.evaluation = Some(tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let interrupt = Interrupt::when(move || started.elapsed() >= time);
            let outcome = watch.evaluate(&limits, &interrupt);
            drop(permit);
            Evaluated {
                watch,
                outcome,
                took: started.elapsed(),
            }
        }));
        Ok(())
    }
}

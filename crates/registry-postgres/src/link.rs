//! The thread that owns the connection: it appends, follows the other nodes, and reconnects.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use chappe_postgres::Target;
use chappe_registry::JournalError;

use crate::error::OpenError;
use crate::session::{Failure, Session};
use crate::shared::{Append, Command, Shared, State};

/// Pause before the first attempt to reconnect; it doubles with each that fails.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between attempts.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time between two questions for the head, in case a notification is lost. It also finds a connection that
/// is dead.
const HEAD_PERIOD: Duration = Duration::from_secs(2);
/// Records of one transaction.
const GROUP_RECORDS: usize = 512;
/// Their bytes.
const GROUP_BYTES: usize = 4 << 20;

/// A transaction whose outcome is not known.
struct InDoubt {
    number: i64,
    appends: Vec<Append>,
}

/// The reason why a session ended.
enum End {
    Closed,
    Lost(String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(reason) | Failure::Refused(reason) => Self::Lost(reason),
        }
    }
}

/// The owner of the connection.
pub(crate) struct Link {
    shared: Arc<Shared>,
    /// The name of this journal among the writers.
    writer: String,
    /// The fence of its session.
    fence: i64,
    /// The number of its last transaction.
    number: i64,
    in_doubt: Option<InDoubt>,
    /// Whether old records may have to be removed.
    may_trim: bool,
}

fn away(reason: &str) -> JournalError {
    JournalError::Away(reason.to_owned())
}

fn settle(appends: Vec<Append>, outcome: &Result<(), JournalError>) {
    for append in appends {
        // Nobody may wait any more.
        let _ = append.done.send(outcome.clone());
    }
}

impl Link {
    /// Runs the thread; `opened` gets the outcome of the first connection.
    pub(crate) fn run(shared: Arc<Shared>, target: Target, opened: &Sender<Result<(), OpenError>>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(Self::live(shared, target, opened)),
            Err(error) => {
                let _ = opened.send(Err(OpenError::Thread(error)));
            }
        }
    }

    async fn live(shared: Arc<Shared>, target: Target, opened: &Sender<Result<(), OpenError>>) {
        let mut link = Self {
            shared,
            writer: writer_name(),
            fence: 0,
            number: 0,
            in_doubt: None,
            may_trim: true,
        };
        let mut is_first = true;
        let mut pause = RECONNECT_PAUSE;
        loop {
            let end = match Session::open(&target).await {
                Ok(session) => match link.resume(&session).await {
                    Ok(()) => {
                        if std::mem::take(&mut is_first) {
                            let _ = opened.send(Ok(()));
                        }
                        pause = RECONNECT_PAUSE;
                        link.serve(&session).await
                    }
                    Err(failure) => failure.into(),
                },
                Err(error) if is_first => {
                    let _ = opened.send(Err(error));
                    return;
                }
                Err(error) => End::Lost(error.to_string()),
            };
            let reason = match end {
                End::Closed => return,
                End::Lost(reason) if is_first => {
                    let _ = opened.send(Err(OpenError::Statement(reason)));
                    return;
                }
                End::Lost(reason) => reason,
            };
            link.lose(&reason);
            if link.shared.lock().is_closed {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(RECONNECT_PAUSE_MAX);
        }
    }

    /// After connecting: finds out what became of the transaction in doubt, and how far the others are.
    async fn resume(&mut self, session: &Session) -> Result<(), Failure> {
        let (fence, last_number) = session.enter(&self.writer).await?;
        let (last, snapshot) = session.head().await?;
        let in_doubt = self.in_doubt.take();
        (self.fence, self.number) = (fence, last_number);
        self.shared.update(|state| {
            state.known = last;
            state.assigned = last;
            state.snapshot = snapshot;
            state.outage = None;
            state.conflicts += 1;
            state.arrivals += 1;
        });
        if let Some(InDoubt { number, appends }) = in_doubt {
            let outcome = match number == last_number {
                true => Ok(()),
                false => Err(JournalError::Moved { last }),
            };
            settle(appends, &outcome);
        }
        Ok(())
    }

    /// The connection is lost: what waits is refused, and what was sent is in doubt.
    fn lose(&mut self, reason: &str) {
        let error = away(reason);
        let (queue, commands) = self.shared.update(|state| {
            state.outage = Some(reason.to_owned());
            state.wanted = None;
            let commands: Vec<Command> = state.commands.drain(..).collect();
            (state.refuse_all(), commands)
        });
        settle(queue, &Err(error.clone()));
        for command in commands {
            if let Command::Lock(done) | Command::Snapshot(_, done) = command {
                let _ = done.send(Err(error.clone()));
            }
        }
    }

    async fn serve(&mut self, session: &Session) -> End {
        let mut head_is_due = true;
        loop {
            if self.shared.lock().is_closed {
                return End::Closed;
            }
            if let Some(reason) = session.ended() {
                return End::Lost(reason);
            }
            let done = async {
                if std::mem::take(&mut head_is_due) {
                    self.follow(session, Vec::new()).await?;
                }
                self.read_wanted(session).await?;
                self.append(session).await?;
                self.command(session).await
            };
            if let Err(failure) = done.await {
                return failure.into();
            }
            let has_work = {
                let state = self.shared.lock();
                let waits = !state.queue.is_empty() || !state.commands.is_empty();
                waits || state.wanted.is_some()
            };
            if has_work {
                continue;
            }
            if self.may_trim {
                // In small steps: a change waits for one of them at most.
                match session.trim().await {
                    Ok(may_trim) => self.may_trim = may_trim,
                    Err(failure) => return failure.into(),
                }
                continue;
            }
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = session.arrived.notified() => head_is_due = true,
                () = tokio::time::sleep(HEAD_PERIOD) => head_is_due = true,
            }
        }
    }

    /// Reads what other nodes have appended. Then refuses `overtaken` and all that follows them: their
    /// registry finds the records of the others in memory.
    async fn follow(
        &mut self,
        session: &Session,
        mut overtaken: Vec<Append>,
    ) -> Result<(), Failure> {
        let known = self.shared.lock().known;
        let from = known + 1;
        let read = async {
            let (last, snapshot) = session.head().await?;
            let records = match last > known {
                // A registry that is further behind asks for the rest.
                true => session.records(from).await?,
                false => Vec::new(),
            };
            Ok((last, snapshot, records))
        };
        let (last, snapshot, records) = match read.await {
            Ok(read) => read,
            Err(failure) => {
                self.refuse(
                    overtaken,
                    &away("PostgreSQL has failed after another node's change"),
                );
                return Err(failure);
            }
        };
        self.shared.update(|state| {
            state.snapshot = snapshot;
            if last <= known && overtaken.is_empty() {
                return;
            }
            if records.first().is_some_and(|(first, _)| *first == from) {
                match state.next_in_memory() {
                    Some(next) if next == from => {
                        for (position, record) in records {
                            state.remember(position, record);
                        }
                    }
                    _ => state.replace(records),
                }
            }
            state.known = last;
            if overtaken.is_empty() && state.queue.is_empty() {
                state.assigned = last;
                state.arrivals += 1;
            } else {
                overtaken.extend(state.refuse_all());
            }
        });
        settle(overtaken, &Err(JournalError::Moved { last }));
        Ok(())
    }

    /// Reads what a registry waits for.
    async fn read_wanted(&mut self, session: &Session) -> Result<(), Failure> {
        let Some(from) = self.shared.lock().wanted else {
            return Ok(());
        };
        let records = session.records(from).await?;
        let is_whole = records.first().is_some_and(|(first, _)| *first == from);
        if !is_whole {
            // The end that is known must be behind the snapshot, which is read next.
            self.follow(session, Vec::new()).await?;
        }
        self.shared.update(|state| {
            if state.wanted == Some(from) {
                state.wanted = None;
            }
            match is_whole {
                true => state.replace(records),
                false => state.first = state.first.max(from + 1).max(state.snapshot),
            }
        });
        Ok(())
    }

    /// Appends a group of what waits, in one transaction.
    async fn append(&mut self, session: &Session) -> Result<(), Failure> {
        let mut appends: Vec<Append> = Vec::new();
        {
            let mut state = self.shared.lock();
            let (mut count, mut bytes) = (0, 0);
            while let Some(next) = state.queue.front() {
                count += next.records.len();
                bytes += next.bytes();
                if !appends.is_empty() && (count > GROUP_RECORDS || bytes > GROUP_BYTES) {
                    break;
                }
                appends.extend(state.queue.pop_front());
            }
        }
        let Some(expected) = appends.first().map(|append| append.expected) else {
            return Ok(());
        };
        let records: Vec<&[u8]> = appends
            .iter()
            .flat_map(|append| append.records.iter().map(Vec::as_slice))
            .collect();
        let number = self.number + 1;
        match session
            .append(&self.writer, self.fence, number, expected, &records)
            .await
        {
            Ok(Some(last)) => {
                self.number = number;
                self.shared.update(|state| {
                    let appended = appends.iter_mut().flat_map(|one| one.records.drain(..));
                    for (position, record) in (expected + 1..).zip(appended) {
                        state.remember(position, record);
                    }
                    state.known = last;
                });
                settle(appends, &Ok(()));
                Ok(())
            }
            Ok(None) => self.follow(session, appends).await,
            Err(Failure::Refused(reason)) => {
                self.refuse(appends, &away(&reason));
                Ok(())
            }
            Err(lost) => {
                self.in_doubt = Some(InDoubt { number, appends });
                Err(lost)
            }
        }
    }

    fn refuse(&self, mut appends: Vec<Append>, error: &JournalError) {
        appends.extend(self.shared.update(State::refuse_all));
        settle(appends, &Err(error.clone()));
    }

    async fn command(&mut self, session: &Session) -> Result<(), Failure> {
        let next = self.shared.lock().commands.pop_front();
        match next {
            None => Ok(()),
            Some(Command::Unlock) => session.unlock().await,
            Some(Command::Lock(done)) => {
                let locked = session.lock().await;
                answer(&done, locked)
            }
            Some(Command::Snapshot(position, done)) => {
                let set = session.set_snapshot(position).await;
                if set.is_ok() {
                    self.may_trim = true;
                    self.shared
                        .update(|state| state.snapshot = state.snapshot.max(position));
                }
                answer(&done, set.map(|()| true))
            }
        }
    }
}

/// Reports the outcome of a command; what is lost ends the session.
fn answer(
    done: &Sender<Result<bool, JournalError>>,
    outcome: Result<bool, Failure>,
) -> Result<(), Failure> {
    let (report, result) = match outcome {
        Ok(value) => (Ok(value), Ok(())),
        Err(Failure::Refused(reason)) => (Err(away(&reason)), Ok(())),
        Err(Failure::Lost(reason)) => (Err(away(&reason)), Err(Failure::Lost(reason))),
    };
    let _ = done.send(report);
    result
}

/// A name that no other journal has.
fn writer_name() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = || RandomState::new().build_hasher().finish();
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = since.map_or(0, |since| since.as_nanos());
    let process = std::process::id();
    format!(
        "{:016x}{:016x}-{nanoseconds:x}-{process}",
        random(),
        random()
    )
}

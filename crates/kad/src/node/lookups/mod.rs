//! Lookups, searches and storing of records: the tasks that walk the network.
//!
//! [`Lookups`] schedules tasks and steps them. A step names what the task needs: a request, a read of
//! the own store, an event for the application. It sends nothing itself, so it is tested without a
//! network.

mod context;
mod lookup;
mod search;
mod storing;

use std::collections::{BTreeMap, VecDeque};

use chappe_machine::{Instant, Timers};

use super::question::{Answer, Purpose, Question, TaskId};
use crate::cryptography::Cryptography;
use crate::message::Verdict;
use crate::record::Notary;
use crate::size::Size;
use crate::store::Page;
use crate::types::Event;
use crate::{Contact, Key, Misuse, Record, SearchId};
use lookup::Lookup;
use search::{Search, SearchStep};
use storing::{Storing, StoringStep};

pub(super) use context::Context;
pub(super) use lookup::LookupPurpose;
pub(super) use storing::{NewRecord, StoredRecord};

/// Lookups of random places before a region is chosen.
const SIZE_LOOKUPS_MIN: usize = 5;
/// Lookups after which a region is chosen even without an estimate: in a network where hardly any
/// node answers.
const SIZE_LOOKUPS_MAX: usize = 4 * SIZE_LOOKUPS_MIN;
/// Maximum number of queued jobs.
pub(super) const JOBS_MAX: usize = 4_096;
/// Maximum number of concurrent searches.
const SEARCHES_MAX: usize = 64;

/// A job in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Lookup { target: Key, purpose: LookupPurpose },
    Publish { slot: u16, key: Key, level: u8 },
    Withdraw { slot: u16, key: Key, level: u8 },
}

#[derive(Debug)]
enum Task {
    Lookup(Lookup),
    Storing(Box<Storing>),
    Search(Box<Search>),
}

/// The next step of a task.
#[derive(Debug)]
pub(super) enum Step {
    /// Sends this request. The caller then calls [`Lookups::on_sent`] or [`Lookups::on_unsent`].
    Ask {
        to: Contact,
        question: Question,
        purpose: Purpose,
    },
    /// Reads the own store at this place. The caller then calls [`Lookups::on_own_page`].
    ReadStore(Key),
    /// Puts an own record into the own store. The caller then calls [`Lookups::on_stored_here`].
    StoreHere(Key, Record),
    /// Passes this event to the application.
    Event(Event),
    /// The lookup of the node's own place has ended.
    NeighboursFound,
    /// A record was stored in its region.
    Stored(StoredRecord),
    /// The task has ended without a result.
    Ended,
    /// The task waits for answers or credit, or has ended.
    Wait,
}

/// The tasks of a node, and the size of the network that they estimate.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    /// Tasks that may be ready for a step.
    awake: VecDeque<TaskId>,
    jobs: VecDeque<Job>,
    size: Size,
    /// Number of lookups of random places so far.
    size_lookups: usize,
    /// Deadline of each search that waits for credit.
    timers: Timers<TaskId>,
    searches_started: u64,
}

impl Lookups {
    /// The size of the network; `None` before the first estimate.
    pub(super) fn network_nodes(&self) -> Option<f64> {
        self.size.nodes()
    }

    pub(super) fn region_bits(&self, nodes: u32) -> u32 {
        self.size.region_bits(nodes)
    }

    /// Forgets the estimates of the network's size.
    pub(super) fn forget_size(&mut self) {
        self.size = Size::default();
        self.size_lookups = 0;
    }

    /// Whether there is an estimate to keep current.
    pub(super) fn has_size(&self) -> bool {
        self.size.len() > 0
    }

    /// Number of tasks in progress and queued jobs.
    pub(super) fn len(&self) -> usize {
        self.tasks.len() + self.jobs.len()
    }

    /// Number of searches in progress.
    pub(super) fn searches(&self) -> usize {
        let is_search = |task: &&Task| matches!(task, Task::Search(_));
        self.tasks.values().filter(is_search).count()
    }

    /// Searches started so far.
    pub(super) fn searches_started(&self) -> u64 {
        self.searches_started
    }

    /// The earliest deadline of a search that waits for credit.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    // -- jobs --

    /// Adds a job to the end of the queue. Returns whether there was room.
    pub(super) fn add_job(&mut self, job: Job) -> bool {
        let has_room = self.jobs.len() < JOBS_MAX;
        if has_room {
            self.jobs.push_back(job);
        }
        has_room
    }

    /// Adds a job that publishes a key, unless one is queued.
    pub(super) fn add_publish_job(&mut self, slot: u16, key: Key) {
        let is_same = |job: &Job| match job {
            Job::Publish {
                slot: of, key: at, ..
            } => (*of, *at) == (slot, key),
            _ => false,
        };
        if !self.jobs.iter().any(is_same) {
            let level = 0;
            self.add_job(Job::Publish { slot, key, level });
        }
    }

    /// Removes and returns the next job that may start. The configuration limits the tasks in progress, and
    /// records wait until the size of the network is known.
    pub(super) fn next_job(&mut self, context: &mut Context<'_>) -> Option<Job> {
        let is_lookup = |job: &Job| matches!(job, Job::Lookup { .. });
        let is_wanted = !self.jobs.iter().all(is_lookup);
        let is_known = self.is_size_known(is_wanted, context);
        if self.tasks.len() - self.searches() >= context.config.tasks_max {
            return None;
        }
        let may_start = |job: &Job| is_known || is_lookup(job);
        let at = self.jobs.iter().position(may_start)?;
        self.jobs.remove(at)
    }

    /// Whether the size of the network is known well enough to choose regions. If not, and if `is_wanted`,
    /// starts lookups that determine it.
    fn is_size_known(&mut self, is_wanted: bool, context: &mut Context<'_>) -> bool {
        let purpose = LookupPurpose::Size;
        let is_enough =
            self.size.len() >= SIZE_LOOKUPS_MIN || self.size_lookups >= SIZE_LOOKUPS_MAX;
        if is_enough || context.table.len() == 0 {
            return true;
        }
        if is_wanted {
            let waits =
                |job: &&Job| matches!(job, Job::Lookup { purpose: of, .. } if *of == purpose);
            let runs = |task: &&Task| matches!(task, Task::Lookup(it) if it.purpose() == purpose);
            let waiting = self.jobs.iter().filter(waits).count();
            let running = self.tasks.values().filter(runs).count();
            for _ in self.size.len() + waiting + running..SIZE_LOOKUPS_MIN {
                let target = Key::new(context.random.u128(..));
                // Before all other jobs, which wait for it.
                self.jobs.push_front(Job::Lookup { target, purpose });
                self.size_lookups += 1;
            }
        }
        false
    }

    // -- starting --

    fn add_task(&mut self, task: Task) {
        let id = self.next_task;
        self.next_task = self.next_task.wrapping_add(1);
        self.tasks.insert(id, task);
        self.awake.push_back(id);
    }

    /// Starts a lookup at the nearest contacts of the table, and at `seeds`.
    pub(super) fn start_lookup(
        &mut self,
        target: Key,
        purpose: LookupPurpose,
        seeds: &[(Key, Contact)],
        context: &Context<'_>,
    ) {
        let lookup = Lookup::new(target, purpose, seeds, context);
        self.add_task(Task::Lookup(lookup));
    }

    /// Starts to store a record in its region.
    pub(super) fn start_storing(&mut self, new: NewRecord, context: &mut Context<'_>) {
        let storing = Storing::new(new, &self.size, context);
        self.add_task(Task::Storing(Box::new(storing)));
    }

    /// Starts a search.
    ///
    /// # Errors
    /// The limit of searches is reached, or a search with this identifier exists.
    pub(super) fn start_search(
        &mut self,
        search: SearchId,
        key: Key,
        credit: u64,
    ) -> Result<(), Misuse> {
        if self.searches() >= SEARCHES_MAX || self.search(search).is_some() {
            return Err(Misuse::TooMany(SEARCHES_MAX));
        }
        self.searches_started += 1;
        let search = Search::new(search, key, credit);
        self.add_task(Task::Search(Box::new(search)));
        Ok(())
    }

    fn search(&mut self, search: SearchId) -> Option<(TaskId, &mut Search)> {
        self.tasks.iter_mut().find_map(|(id, task)| match task {
            Task::Search(it) if it.id() == search => Some((*id, it.as_mut())),
            _ => None,
        })
    }

    /// Adds to the credit of a search.
    pub(super) fn add_credit(&mut self, search: SearchId, bytes: u64) {
        if let Some((id, search)) = self.search(search) {
            search.add_credit(bytes);
            self.timers.cancel(&id);
            self.awake.push_back(id);
        }
    }

    /// Ends a search; returns its last event.
    pub(super) fn stop_search(&mut self, search: SearchId) -> Option<Event> {
        let (id, _) = self.search(search)?;
        self.end_search(id)
    }

    /// Ends the next search whose wait for credit has timed out; returns its last event.
    pub(super) fn time_out(&mut self, now: Instant) -> Option<Event> {
        let id = self.timers.pop(now)?;
        self.end_search(id)
    }

    fn end_search(&mut self, id: TaskId) -> Option<Event> {
        self.timers.cancel(&id);
        match self.tasks.remove(&id)? {
            Task::Search(search) => Some(search.ended()),
            _ => None,
        }
    }

    // -- steps --

    /// The next task that may be ready for a step.
    pub(super) fn next_awake(&mut self) -> Option<TaskId> {
        self.awake.pop_front()
    }

    /// The next step of a task. Call it until [`Step::Wait`].
    pub(super) fn step(&mut self, now: Instant, id: TaskId, context: &mut Context<'_>) -> Step {
        match self.tasks.get_mut(&id) {
            None => Step::Wait,
            Some(Task::Lookup(_)) => self.step_lookup(id),
            Some(Task::Storing(storing)) => match storing.step(id, context) {
                StoringStep::Ask(to, question, purpose) => Step::Ask {
                    to,
                    question,
                    purpose,
                },
                StoringStep::StoreHere(place, record) => Step::StoreHere(place, record),
                StoringStep::Wait => Step::Wait,
                StoringStep::Ended(stored) => self.end_storing(id, stored),
            },
            Some(Task::Search(_)) => self.step_search(now, id, context),
        }
    }

    fn step_lookup(&mut self, id: TaskId) -> Step {
        let Some(Task::Lookup(lookup)) = self.tasks.get_mut(&id) else {
            return Step::Wait;
        };
        if let Some((to, question, purpose)) = lookup.next(id) {
            return Step::Ask {
                to,
                question,
                purpose,
            };
        }
        if !lookup.is_done() {
            return Step::Wait;
        }
        lookup.add_to_estimate(&mut self.size);
        let step = match lookup.purpose() {
            LookupPurpose::Application(name) => Step::Event(lookup.ended(name)),
            LookupPurpose::Join => Step::NeighboursFound,
            LookupPurpose::Size | LookupPurpose::Refresh => Step::Ended,
        };
        if lookup.purpose() == LookupPurpose::Size {
            let search = |(id, task): (&TaskId, &Task)| match task {
                Task::Search(_) => Some(*id),
                _ => None,
            };
            self.awake.extend(self.tasks.iter().filter_map(search));
        }
        self.tasks.remove(&id);
        step
    }

    fn end_storing(&mut self, id: TaskId, stored: StoredRecord) -> Step {
        self.tasks.remove(&id);
        if stored.must_go_deeper() {
            let (slot, key, level) = (stored.slot, stored.key, stored.level + 1);
            self.add_job(match stored.is_withdrawal {
                true => Job::Withdraw { slot, key, level },
                false => Job::Publish { slot, key, level },
            });
        }
        Step::Stored(stored)
    }

    fn step_search(&mut self, now: Instant, id: TaskId, context: &mut Context<'_>) -> Step {
        if !self.is_size_known(true, context) {
            return Step::Wait;
        }
        let Some(Task::Search(search)) = self.tasks.get_mut(&id) else {
            return Step::Wait;
        };
        match search.step(id, &self.size, context) {
            SearchStep::Ask(to, question, purpose) => Step::Ask {
                to,
                question,
                purpose,
            },
            SearchStep::ReadStore(place) => Step::ReadStore(place),
            SearchStep::Wait => Step::Wait,
            SearchStep::Paused => {
                self.timers.set(id, now + context.config.search_idle);
                let search = search.id();
                Step::Event(Event::SearchPaused { search })
            }
            SearchStep::Ended => self.end_search(id).map_or(Step::Ended, Step::Event),
        }
    }

    /// Records that a request of a task was sent, and the maximum length of its answer.
    pub(super) fn on_sent(&mut self, purpose: Purpose, granted: usize) {
        if let Some(search) = self.search_of(purpose) {
            search.grant(granted);
        }
    }

    /// Records that a request was answered or timed out.
    pub(super) fn settle(&mut self, purpose: Purpose, granted: usize, arrived: usize) {
        if let Some(search) = self.search_of(purpose) {
            search.settle(granted, arrived);
        }
    }

    fn search_of(&mut self, purpose: Purpose) -> Option<&mut Search> {
        match self.tasks.get_mut(&purpose.task()?)? {
            Task::Search(search) => Some(search),
            _ => None,
        }
    }

    /// Handles a request of a task that could not be sent.
    pub(super) fn on_unsent<C: Cryptography>(
        &mut self,
        purpose: Purpose,
        place: Key,
        notary: &Notary<'_, C>,
    ) {
        self.pass_answer(purpose, place, Answer::Nothing, notary);
    }

    /// Handles the end of a task's request. Returns the records that a search has found.
    pub(super) fn on_answer<C: Cryptography>(
        &mut self,
        purpose: Purpose,
        place: Key,
        answer: Answer,
        notary: &Notary<'_, C>,
    ) -> Vec<Event> {
        let Some(id) = purpose.task().filter(|id| self.tasks.contains_key(id)) else {
            return Vec::new();
        };
        self.awake.push_back(id);
        self.pass_answer(purpose, place, answer, notary)
    }

    fn pass_answer<C: Cryptography>(
        &mut self,
        purpose: Purpose,
        place: Key,
        answer: Answer,
        notary: &Notary<'_, C>,
    ) -> Vec<Event> {
        let task = purpose.task().and_then(|id| self.tasks.get_mut(&id));
        match task {
            Some(Task::Lookup(lookup)) => lookup.on_answer(place, &answer),
            Some(Task::Storing(storing)) => storing.on_answer(purpose, place, &answer),
            Some(Task::Search(search)) => {
                let records = search.on_answer(purpose, place, answer, notary);
                return found(search.id(), records);
            }
            None => {}
        }
        Vec::new()
    }

    /// Handles a page of the own store read for a search. Returns the records that are new to it.
    pub(super) fn on_own_page<C: Cryptography>(
        &mut self,
        id: TaskId,
        page: Page,
        notary: &Notary<'_, C>,
    ) -> Vec<Event> {
        match self.tasks.get_mut(&id) {
            Some(Task::Search(search)) => {
                let records = search.on_own_page(page, notary);
                found(search.id(), records)
            }
            _ => Vec::new(),
        }
    }

    /// Handles the verdict of the own store on an own record.
    pub(super) fn on_stored_here(&mut self, id: TaskId, verdict: Verdict) {
        if let Some(Task::Storing(storing)) = self.tasks.get_mut(&id) {
            storing.count(verdict);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for task in self.tasks.values() {
            match task {
                Task::Lookup(lookup) => lookup.check()?,
                Task::Storing(storing) => storing.check()?,
                Task::Search(search) => search.check()?,
            }
        }
        Ok(())
    }
}

fn found(search: SearchId, records: Vec<Record>) -> Vec<Event> {
    let event = |record| Event::Found { search, record };
    records.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::table::Table;

    const KEY: Key = Key::new(7);

    fn lookups_of_nobody(test: impl FnOnce(&mut Lookups, &mut Context<'_>)) {
        let config = Config::new(1, [0; 32]);
        let table = Table::new(Key::new(1), &config);
        let mut random = fastrand::Rng::with_seed(1);
        let mut context = Context {
            config: &config,
            table: &table,
            random: &mut random,
        };
        test(&mut Lookups::default(), &mut context);
    }

    #[test]
    fn a_search_without_credit_pauses_then_ends() {
        lookups_of_nobody(|lookups, context| {
            let now = Instant::ZERO;
            lookups.start_search(SearchId(1), KEY, 0).unwrap();
            let id = lookups.next_awake().unwrap();
            assert!(
                matches!(lookups.step(now, id, context), Step::ReadStore(place) if place == KEY)
            );
            let step = lookups.step(now, id, context);
            assert!(
                matches!(step, Step::Event(Event::SearchPaused { .. })),
                "{step:?}"
            );
            assert!(matches!(lookups.step(now, id, context), Step::Wait));
            let end = lookups.deadline().unwrap();
            let ended = lookups.time_out(end);
            assert!(
                matches!(ended, Some(Event::SearchEnded { .. })),
                "{ended:?}"
            );
            assert_eq!(lookups.searches(), 0);
        });
    }

    #[test]
    fn two_searches_cannot_have_one_name() {
        let mut lookups = Lookups::default();
        assert_eq!(lookups.start_search(SearchId(1), KEY, 0), Ok(()));
        assert!(lookups.start_search(SearchId(1), KEY, 0).is_err());
        assert_eq!((lookups.searches(), lookups.searches_started()), (1, 1));
    }

    #[test]
    fn a_waiting_key_is_not_queued_twice() {
        let mut lookups = Lookups::default();
        lookups.add_publish_job(0, KEY);
        lookups.add_publish_job(0, KEY);
        assert_eq!(lookups.len(), 1);
        lookups.add_publish_job(1, KEY);
        assert_eq!(lookups.len(), 2);
    }
}

//! The machine: one node of the network.
//!
//! [`Kad`] routes between its parts. [`Requests`] sends questions and matches answers; [`Lookups`] decides
//! whom to ask next; [`Publications`] schedules the renewal of own records and stores those of others;
//! [`Entrances`] and [`Lost`] are the contacts through which a node joins and rejoins. The parts do not
//! know each other: each returns actions, and the machine dispatches them.

mod entrances;
mod joining;
mod lookups;
mod lost;
mod publications;
mod question;
mod requests;
mod round_trip;
mod serving;

use std::collections::VecDeque;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};

use crate::cryptography::Cryptography;
use crate::table::Table;
use crate::types::{Command, Counters, Datagram, Event, Report};
use crate::{Config, Contact, Drop, Key, Misuse};
use entrances::Entrances;
use lookups::{Context, JOBS_MAX, Job, LookupPurpose, Lookups, Step};
use lost::Lost;
use publications::Publications;
use question::{Answer, Purpose, Question, TaskId};
use requests::{Attempt, Incoming, Outcome, Requests};

/// A deadline of the machine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Housekeeping,
    Enter,
    Rejoin,
}

/// A part that has deadlines. Simultaneous deadlines are handled in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Requests,
    Publications,
    Lookups,
    Machine,
}

/// One node of the network. The [crate documentation](crate) says how to drive it.
#[derive(Debug)]
pub struct Kad<C> {
    config: Config,
    table: Table,
    requests: Requests<C>,
    lookups: Lookups,
    publications: Publications,
    entrances: Entrances,
    lost: Lost,
    has_joined: bool,
    alarms: Timers<Alarm>,
    random: fastrand::Rng,
    outputs: VecDeque<Output<Datagram, Event>>,
}

impl<C: Cryptography> Kad<C> {
    /// A node that knows no other node yet.
    pub fn new(cryptography: C, config: Config, now: Instant) -> Self {
        let config = config.clamped();
        let requests = Requests::new(cryptography, &config, now);
        let mut number = [0; 8];
        let tag = requests.cryptography().tag(&config.seed, &[b"choices"]);
        number.copy_from_slice(&tag[..8]);
        let mut alarms = Timers::default();
        alarms.set(Alarm::Housekeeping, now + config.housekeeping);
        Self {
            table: Table::new(requests.place(), &config),
            requests,
            lookups: Lookups::default(),
            publications: Publications::new(&config),
            entrances: Entrances::default(),
            lost: Lost::default(),
            has_joined: false,
            alarms,
            random: fastrand::Rng::with_seed(u64::from_be_bytes(number)),
            outputs: VecDeque::new(),
            config,
        }
    }

    /// The place of this node.
    #[must_use]
    pub fn place(&self) -> Key {
        self.requests.place()
    }

    /// Puts contacts of the last run into the table as if they had just answered. Those that no longer
    /// answer are removed.
    pub fn recall(&mut self, now: Instant, contacts: impl IntoIterator<Item = Contact>) {
        for contact in contacts {
            self.observe(now, &contact);
        }
    }

    /// The contacts of the table, to be stored and passed to [`Kad::recall`] at the next start.
    pub fn contacts(&self) -> impl Iterator<Item = Contact> {
        self.table.contacts()
    }

    /// The number of contacts in the table.
    #[must_use]
    pub fn contacts_len(&self) -> usize {
        self.table.len()
    }

    /// The estimated number of nodes in the network; `None` before the first estimate.
    #[must_use]
    pub fn network_nodes(&self) -> Option<f64> {
        self.lookups.network_nodes()
    }

    /// The number of leading bits that the region of a key shares.
    #[must_use]
    pub fn region_bits(&self) -> u32 {
        self.lookups.region_bits(self.config.region_nodes)
    }

    /// The number of records stored for other nodes, and their size in bytes.
    #[must_use]
    pub fn stored(&self) -> (usize, usize) {
        self.publications.stored()
    }

    /// The number of records stored at a place.
    #[must_use]
    pub fn held_at(&self, now: Instant, place: Key) -> u16 {
        self.publications.page(now, place, (0, 0), 0).held
    }

    /// The counters since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            searches: self.lookups.searches_started(),
            ..self.requests.counters()
        }
    }

    /// The number of packets dropped for a reason.
    #[must_use]
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.requests.dropped(reason)
    }

    /// Size of the state in bytes while no task runs, without the allocator's overhead.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        size_of::<Self>()
            + self.table.state_bytes()
            + self.requests.state_bytes()
            + self.publications.stored().1
            + self.lost.state_bytes()
    }

    fn report(&self) -> Report {
        let (records, record_bytes) = self.stored();
        Report {
            contacts: self.contacts().collect(),
            // An estimate of at most 2^128, saturated at 2^64.
            network_nodes: self.network_nodes().map(|nodes| nodes.round() as u64),
            records,
            record_bytes,
            publications: self.publications.len(),
            searches: self.lookups.searches(),
            at_work: self.lookups.len(),
            counters: self.counters(),
        }
    }

    fn emit(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn emit_all(&mut self, events: Vec<Event>) {
        self.outputs.extend(events.into_iter().map(Output::Event));
    }

    fn transmit(&mut self, datagram: Option<Datagram>) {
        self.outputs.extend(datagram.map(Output::Transmit));
    }

    // -- requests --

    /// Sends a question. Returns the maximum length of the answer in bytes; `None` if this contact cannot be
    /// asked.
    fn ask(
        &mut self,
        now: Instant,
        to: Contact,
        question: Question,
        purpose: Purpose,
    ) -> Option<usize> {
        let sent = self.requests.send(now, to, question, purpose)?;
        self.transmit(Some(sent.datagram));
        Some(sent.granted)
    }

    /// Pings a contact. Returns whether the ping could be sent.
    fn ping(&mut self, now: Instant, to: Contact, purpose: Purpose) -> bool {
        self.ask(now, to, Question::Ping, purpose).is_some()
    }

    fn receive(&mut self, now: Instant, datagram: &Datagram) {
        match self.requests.receive(now, datagram) {
            Incoming::Request(from, opened) => self.serve(now, from, opened),
            Incoming::Outcome(outcome) => {
                if outcome.is_node {
                    self.observe(now, &outcome.from);
                }
                self.conclude(now, outcome);
            }
            Incoming::Late(from) => self.observe(now, &from),
            Incoming::Dropped => {}
        }
    }

    /// Passes the outcome of a request to the part that made it.
    fn conclude(&mut self, now: Instant, outcome: Outcome) {
        let Outcome { purpose, place, .. } = outcome;
        self.lookups
            .settle(purpose, outcome.granted, outcome.arrived);
        let answer = match outcome.result {
            Attempt::Ended(answer) => answer,
            Attempt::Repeated(sent) => {
                self.lookups.on_sent(purpose, sent.granted);
                self.transmit(Some(sent.datagram));
                return;
            }
        };
        let is_there = answer != Answer::Nothing;
        match purpose {
            // By now the table knows whether the contact is alive.
            Purpose::Check | Purpose::Return => {}
            Purpose::Enter => self.on_entrance(now, is_there.then_some(outcome.from)),
            Purpose::Application => {
                let (contact, there) = (outcome.to, is_there);
                self.emit(Event::Pinged { contact, there });
            }
            Purpose::Walk(_) | Purpose::Probe(_) | Purpose::Store(_) | Purpose::Ask(_) => {
                let notary = self.requests.notary(now);
                let found = self.lookups.on_answer(purpose, place, answer, &notary);
                self.emit_all(found);
            }
        }
    }

    // -- tasks --

    /// The lookups, and the context that their steps use.
    fn lookups(&mut self) -> (&mut Lookups, Context<'_>) {
        let context = Context {
            config: &self.config,
            table: &self.table,
            random: &mut self.random,
        };
        (&mut self.lookups, context)
    }

    fn start_lookup(
        &mut self,
        now: Instant,
        target: Key,
        purpose: LookupPurpose,
        seeds: &[(Key, Contact)],
    ) {
        self.table.on_refreshed(target, seconds(now));
        let (lookups, context) = self.lookups();
        lookups.start_lookup(target, purpose, seeds, &context);
    }

    fn start_jobs(&mut self, now: Instant) {
        loop {
            let (lookups, mut context) = self.lookups();
            let job = lookups.next_job(&mut context);
            let notary = self.requests.notary(now);
            let new = match job {
                None => return,
                Some(Job::Lookup { target, purpose }) => {
                    self.start_lookup(now, target, purpose, &[]);
                    continue;
                }
                Some(Job::Publish { slot, key, level }) => {
                    self.publications.record((slot, key, level), &notary)
                }
                Some(Job::Withdraw { slot, key, level }) => {
                    Some(self.publications.withdrawal((slot, key, level), &notary))
                }
            };
            if let Some(new) = new {
                let (lookups, mut context) = self.lookups();
                lookups.start_storing(new, &mut context);
            }
        }
    }

    /// Starts all jobs that may start and steps all tasks that are ready.
    fn run_tasks(&mut self, now: Instant) {
        loop {
            self.start_jobs(now);
            let Some(id) = self.lookups.next_awake() else {
                return;
            };
            while self.step_task(now, id) {}
        }
    }

    /// Steps one task. Returns whether it may have another step.
    fn step_task(&mut self, now: Instant, id: TaskId) -> bool {
        let (lookups, mut context) = self.lookups();
        match lookups.step(now, id, &mut context) {
            Step::Ask {
                to,
                question,
                purpose,
            } => match self.ask(now, to, question, purpose) {
                Some(granted) => self.lookups.on_sent(purpose, granted),
                None => {
                    let place = self.requests.place_of(&to);
                    let notary = self.requests.notary(now);
                    self.lookups.on_unsent(purpose, place, &notary);
                }
            },
            Step::ReadStore(place) => {
                let page = self.publications.page(now, place, (0, 0), usize::MAX);
                let notary = self.requests.notary(now);
                let found = self.lookups.on_own_page(id, page, &notary);
                self.emit_all(found);
            }
            Step::StoreHere(place, record) => {
                let verdict = self.publications.store_own_record(now, place, record);
                self.lookups.on_stored_here(id, verdict);
            }
            Step::Event(event) => self.emit(event),
            Step::NeighboursFound => self.on_neighbours_found(),
            Step::Stored(stored) => {
                // As many as a search asks: this node and all contacts, if there are fewer.
                let wanted = self.config.search_replicas as usize;
                let wanted = wanted.min(self.table.len() + 1);
                self.publications
                    .on_stored(now, &stored, wanted, &mut self.random);
                if !stored.is_withdrawal {
                    self.emit(stored.into_event());
                }
            }
            Step::Ended => {}
            Step::Wait => return false,
        }
        true
    }

    // -- commands --

    fn execute(&mut self, now: Instant, command: Command) {
        match command {
            Command::TimeOfDay { unix_s } => self.requests.set_time_of_day(now, unix_s),
            Command::Enter(entrances) => self.enter(now, entrances),
            Command::Lookup { lookup, target } => {
                let purpose = LookupPurpose::Application(lookup);
                if !self.lookups.add_job(Job::Lookup { target, purpose }) {
                    self.emit(Event::Misused(Misuse::TooMany(JOBS_MAX)));
                }
            }
            Command::Publish { slot, keys, value } => self.publish(now, slot, keys, value),
            Command::Withdraw { slot } => {
                let keys = self.publications.withdraw(slot);
                self.withdraw(slot, keys);
            }
            Command::Search {
                search,
                key,
                credit,
            } => {
                if let Err(misuse) = self.lookups.start_search(search, key, credit) {
                    self.emit(Event::Misused(misuse));
                }
            }
            Command::Grant { search, credit } => self.lookups.add_credit(search, credit),
            Command::Stop { search } => {
                let ended = self.lookups.stop_search(search);
                self.emit_all(ended.into_iter().collect());
            }
            Command::Ping(contact) => {
                if !self.ping(now, contact, Purpose::Application) {
                    let there = false;
                    self.emit(Event::Pinged { contact, there });
                }
            }
            Command::Report => {
                let report = Event::Reported(Box::new(self.report()));
                self.emit(report);
            }
        }
    }

    fn publish(&mut self, now: Instant, slot: u16, keys: Vec<Key>, value: Vec<u8>) {
        match self.publications.publish(slot, keys, value) {
            Ok(old_keys) => {
                self.withdraw(slot, old_keys);
                self.renew(now, slot);
            }
            Err(misuse) => self.emit(Event::Misused(misuse)),
        }
    }

    fn withdraw(&mut self, slot: u16, keys: Vec<Key>) {
        for key in keys {
            let level = 0;
            self.lookups.add_job(Job::Withdraw { slot, key, level });
        }
    }

    /// Stores the records of a publication again.
    fn renew(&mut self, now: Instant, slot: u16) {
        for key in self.publications.renew(now, slot, &mut self.random) {
            self.lookups.add_publish_job(slot, key);
        }
    }

    // -- deadlines --

    /// The earliest deadline, and the part that has it.
    fn next_deadline(&self) -> Option<(Instant, Part)> {
        let deadlines = [
            (self.requests.deadline(), Part::Requests),
            (self.publications.deadline(), Part::Publications),
            (self.lookups.deadline(), Part::Lookups),
            (self.alarms.next(), Part::Machine),
        ];
        let set = |(at, part): (Option<Instant>, Part)| Some((at?, part));
        deadlines.into_iter().filter_map(set).min()
    }

    /// Handles an expired deadline of a part.
    fn on_deadline(&mut self, now: Instant, part: Part) {
        match part {
            Part::Requests => {
                if let Some(outcome) = self.requests.time_out(now) {
                    self.on_silence(now, outcome.place);
                    self.conclude(now, outcome);
                }
            }
            Part::Publications => {
                if let Some(slot) = self.publications.next_due(now) {
                    self.renew(now, slot);
                }
            }
            Part::Lookups => {
                let ended = self.lookups.time_out(now);
                self.emit_all(ended.into_iter().collect());
            }
            Part::Machine => match self.alarms.pop(now) {
                Some(Alarm::Housekeeping) => self.run_maintenance(now),
                Some(Alarm::Enter) => self.enter_again(now),
                Some(Alarm::Rejoin) => self.rejoin(now),
                None => {}
            },
        }
    }
}

/// Seconds since the origin of time; overflows after 136 years.
fn seconds(now: Instant) -> u32 {
    seconds_of(now - Instant::ZERO)
}

fn seconds_of(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

impl<C: Cryptography> Machine for Kad<C> {
    type Receive = Datagram;
    type Command = Command;
    type Transmit = Datagram;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<Datagram, Command>) {
        match input {
            Input::Receive(datagram) => self.receive(now, &datagram),
            Input::Command(command) => self.execute(now, command),
            Input::Timeout => {}
        }
        while let Some((at, part)) = self.next_deadline()
            && at <= now
        {
            self.on_deadline(now, part);
        }
        self.run_tasks(now);
    }

    fn poll_output(&mut self) -> Option<Output<Datagram, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_deadline().map(|(at, _)| at)
    }
}

impl<C: Cryptography> Invariant for Kad<C> {
    fn check(&self) -> Result<(), String> {
        self.table.check()?;
        self.publications.check()?;
        self.lost.check(&self.table)?;
        self.requests.check()?;
        self.lookups.check()
    }
}
